//! Connections: which errors of clients are theirs.

use std::{error::Error, io};

/// Whether the connection failed, somewhere behind the error, before there was an answer. The failures
/// of TLS are none of these, nor is a name that was not found, nor the request's own body.
pub(super) fn is_connection(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<hyper::Error>() {
            // Behind it is the body's error, which may be that of another connection.
            if error.is_user() {
                return false;
            }
            if error.is_incomplete_message() || error.is_canceled() || error.is_closed() {
                return true;
            }
        }
        let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
        if kind.is_some_and(is_of_a_connection) {
            return true;
        }
        #[cfg(feature = "reqwest")]
        if is_late_connection(error) {
            return true;
        }
        next = error.source();
    }
    false
}

/// Whether reqwest had no connection in time.
#[cfg(feature = "reqwest")]
fn is_late_connection(error: &(dyn Error + 'static)) -> bool {
    let error = error.downcast_ref::<reqwest::Error>();
    error.is_some_and(|error| error.is_connect() && error.is_timeout())
}

fn is_of_a_connection(kind: io::ErrorKind) -> bool {
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
