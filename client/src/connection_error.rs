//! Connection errors: recognizes a failed connection among the errors of clients.

use std::{error::Error, io};

/// Whether the error, or a source of it, is a connection that failed before a response arrived.
/// Failures of TLS, of name resolution and of the request's own body are not.
pub(crate) fn is_connection_error(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<hyper::Error>() {
            // The source is the body's error, which may come from another connection.
            if error.is_user() {
                return false;
            }
            if error.is_incomplete_message() || error.is_canceled() || error.is_closed() {
                return true;
            }
        }
        let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
        if kind.is_some_and(is_connection_failure) {
            return true;
        }
        #[cfg(feature = "reqwest")]
        if is_connect_timeout(error) {
            return true;
        }
        next = error.source();
    }
    false
}

/// Whether reqwest timed out while connecting.
#[cfg(feature = "reqwest")]
fn is_connect_timeout(error: &(dyn Error + 'static)) -> bool {
    let error = error.downcast_ref::<reqwest::Error>();
    error.is_some_and(|error| error.is_connect() && error.is_timeout())
}

fn is_connection_failure(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{
        BrokenPipe, ConnectionAborted, ConnectionRefused, ConnectionReset, HostUnreachable,
        NetworkUnreachable, NotConnected, TimedOut, UnexpectedEof,
    };
    matches!(
        kind,
        BrokenPipe
            | ConnectionAborted
            | ConnectionRefused
            | ConnectionReset
            | HostUnreachable
            | NetworkUnreachable
            | NotConnected
            | TimedOut
            | UnexpectedEof
    )
}
