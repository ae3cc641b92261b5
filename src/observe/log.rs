//! The one place where the crate itself logs.

/// Reports a fault in the server's set-up, which the caller does once.
#[cfg(feature = "tracing")]
pub(crate) fn error(message: &str) {
    tracing::error!("tower-ratelimit: {message}");
}

/// Reports a fault in the server's set-up, which the caller does once. Without a logger it goes to
/// the standard error stream: every request is failing, and somebody is looking for the reason.
#[cfg(not(feature = "tracing"))]
pub(crate) fn error(message: &str) {
    eprintln!("tower-ratelimit: {message}");
}

/// Reports something that works, but not as somebody meant it to. The caller does so once.
#[cfg(feature = "tracing")]
pub(crate) fn warn(message: &str) {
    tracing::warn!("tower-ratelimit: {message}");
}

/// Reports something that works, but not as somebody meant it to. The caller does so once. Without a
/// logger it goes to the standard error stream.
#[cfg(not(feature = "tracing"))]
pub(crate) fn warn(message: &str) {
    eprintln!("tower-ratelimit: {message}");
}

/// Reports that it works again.
#[cfg(all(feature = "redis", feature = "tracing"))]
pub(crate) fn info(message: &str) {
    tracing::info!("tower-ratelimit: {message}");
}

/// Reports that it works again.
#[cfg(all(feature = "redis", not(feature = "tracing")))]
pub(crate) const fn info(_message: &str) {}
