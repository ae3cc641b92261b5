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
