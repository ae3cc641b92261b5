//! Notifications to systemd, for units of `Type=notify`. Elsewhere they have no effect.

/// The process serves requests.
pub(crate) fn ready() {
    #[cfg(target_os = "linux")]
    notify(&[sd_notify::NotifyState::Ready]);
}

/// The process reads its files again, until it is [`ready`].
pub(crate) fn reloading() {
    #[cfg(target_os = "linux")]
    if let Ok(now) = sd_notify::NotifyState::monotonic_usec_now() {
        notify(&[sd_notify::NotifyState::Reloading, now]);
    }
}

/// The process stops.
pub(crate) fn stopping() {
    #[cfg(target_os = "linux")]
    notify(&[sd_notify::NotifyState::Stopping]);
}

#[cfg(target_os = "linux")]
fn notify(state: &[sd_notify::NotifyState<'_>]) {
    // A failed notification does not affect the service.
    drop(sd_notify::notify(state));
}
