//! Words to systemd, where a unit of `Type=notify` started the process. Elsewhere nobody hears them.

/// The process answers requests.
pub(crate) fn ready() {
    #[cfg(target_os = "linux")]
    tell(&[sd_notify::NotifyState::Ready]);
}

/// It reads its files again, until it is [`ready`].
pub(crate) fn reloading() {
    #[cfg(target_os = "linux")]
    if let Ok(now) = sd_notify::NotifyState::monotonic_usec_now() {
        tell(&[sd_notify::NotifyState::Reloading, now]);
    }
}

/// It ends.
pub(crate) fn stopping() {
    #[cfg(target_os = "linux")]
    tell(&[sd_notify::NotifyState::Stopping]);
}

#[cfg(target_os = "linux")]
fn tell(state: &[sd_notify::NotifyState<'_>]) {
    // A service manager that does not listen changes nothing about the service.
    drop(sd_notify::notify(state));
}
