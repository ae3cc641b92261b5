//! The progress of a call, and the sending of its command.

use std::io;

use redis::{Cmd, RedisResult, Value};
use tokio::time::Instant;

use super::{
    connection::Live,
    in_flight::CallPlace,
    script_by_digest::{Script, is_unknown},
};
use crate::store::error::StoreError;

/// The progress of a call.
pub(super) struct CallProgress {
    pub(super) connection: u64,
    /// `None` for a call that is sent however many are in flight.
    pub(super) place: Option<CallPlace>,
    pub(super) sent_at: Option<Instant>,
    /// When the caller began to wait.
    pub(super) began_at: Instant,
    /// When the caller stops waiting for the response.
    pub(super) until: Instant,
    /// When the last caller stops waiting. A call is not sent from then on: its operations were
    /// decided without the server. `None` for a call that is sent in any case.
    pub(super) needed_until: Option<Instant>,
    /// Whether the key's slot is moving to the server, so that `ASKING` is needed.
    pub(super) is_asking: bool,
}

impl CallProgress {
    pub(super) fn new(needed_until: Option<Instant>) -> Self {
        Self {
            connection: 0,
            needed_until,
            place: None,
            sent_at: None,
            began_at: Instant::now(),
            until: Instant::now(),
            is_asking: false,
        }
    }

    pub(super) fn send(&mut self) -> Result<(), StoreError> {
        let now = Instant::now();
        if self.needed_until.is_some_and(|at| at <= now) {
            return Err(StoreError::crowded());
        }
        self.sent_at = Some(now);
        Ok(())
    }
}

/// Sends a command, and sends it again if the server does not know the script: after loading it, or
/// with its text.
pub(super) async fn send_command(
    live: &Live,
    script: &Script,
    command: &Cmd,
    progress: &mut CallProgress,
) -> RedisResult<Value> {
    let loads = live.loads.done();
    let is_asking = progress.is_asking;
    let send = async |command: &Cmd| {
        if is_asking {
            live.wire.send_asking(command).await
        } else {
            live.wire.send(command).await
        }
    };
    match send(command).await {
        Err(error) if is_unknown(&error) => {
            live.loads.load(script, &live.wire, loads).await?;
            // The call has a place already, so it fails only if nobody waits any more.
            if progress.send().is_err() {
                return Err(io::Error::from(io::ErrorKind::TimedOut).into());
            }
            if live.loads.are_needless() {
                return send(&script.with_text(command)).await;
            }
            send(command).await
        }
        answer => answer,
    }
}
