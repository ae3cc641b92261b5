//! Calls: one request of the caller, with its wait and its retries.

use std::{error::Error, fmt, future::Future, io, pin::pin, sync::Arc, time::Duration};

use http::{HeaderMap, StatusCode, request::Parts};
use tokio::time::{sleep, timeout};
use tower_ratelimit::Key;

use crate::{
    deadlines_and_jitter::has_timer,
    destination::Destination,
    error::PacerError,
    pacer::Pacer,
    pacer_state::PacerEvent,
    permission_to_send::{SentRequest, Verdict},
    request_cost::{self, OtherUnits, Units},
    retry::{Attempts, Failure, Retry},
};

/// The longest time that a response is held during a retry: it may hold the only connection.
const MAX_RESPONSE_HOLD: Duration = Duration::from_secs(1);

/// Any error, as in tower's own layers.
pub(crate) type BoxError = Box<dyn Error + Send + Sync>;

/// Settings of a layer, shared by all its calls.
#[derive(Clone)]
pub(crate) struct CallSettings {
    pub(crate) pacer: Pacer,
    pub(crate) retry: Retry,
    pub(crate) destination: Option<Destination>,
    pub(crate) key: Option<Arc<KeyFn>>,
    pub(crate) cost: Option<Arc<CostFn>>,
    pub(crate) units: Option<Arc<UnitsFn>>,
}

pub(crate) type KeyFn = dyn Fn(&Parts) -> Key + Send + Sync;
pub(crate) type CostFn = dyn Fn(&Parts) -> u64 + Send + Sync;
pub(crate) type UnitsFn = dyn Fn(&Parts) -> Vec<Units> + Send + Sync;

/// The request of a response, if its charge may change until the response has ended.
pub(crate) type OpenRequest = Option<Box<SentRequest>>;

/// A request of any client, which can be sent at least once.
pub(crate) trait OutgoingRequest: Send {
    type Response: Send;
    type Error: Send;

    /// The request without its body; `None` once it can no longer be sent.
    fn parts(&self) -> Option<&Parts>;

    /// Sends the request.
    fn send(&mut self) -> impl Future<Output = Result<Self::Response, Self::Error>> + Send;

    /// The response's status and header fields, empty if another server sent them.
    fn head<'r>(&self, response: &'r Self::Response) -> (StatusCode, &'r HeaderMap);

    /// Whether the error is a failed connection.
    fn is_connection_error(error: &Self::Error) -> bool;
}

/// The failure of a call that has no response.
#[derive(Debug)]
pub(crate) enum Failed<E> {
    /// The pacer did not send the request.
    Refused(PacerError),
    /// The client failed.
    Client(E),
}

/// A call in progress.
struct Call<'c, O: OutgoingRequest> {
    settings: &'c CallSettings,
    outgoing: &'c mut O,
    attempts: Attempts,
    left: Duration,
    open: &'c mut OpenRequest,
    /// The result of the newest attempt, which the caller gets when no later attempt succeeds.
    last: Option<Result<O::Response, Failed<O::Error>>>,
}

impl CallSettings {
    /// Waits for a turn, sends the request, and retries while that may help. `open` becomes the request of
    /// the response.
    pub(crate) async fn call<O: OutgoingRequest>(
        &self,
        outgoing: &mut O,
        open: &mut OpenRequest,
    ) -> Result<O::Response, Failed<O::Error>> {
        let (destination, (cost, others)) = match outgoing.parts() {
            Some(parts) => (self.destination_of(parts), self.cost_of(parts)),
            None => (Err(PacerError::no_host()), (1, None)),
        };
        let destination = destination.map_err(Failed::Refused)?;
        let mut call = Call {
            settings: self,
            outgoing,
            attempts: Attempts::default(),
            left: self.pacer.state().max_wait,
            open,
            last: None,
        };
        loop {
            let units = others.clone();
            let turn = self.pacer.turn_within(&destination, cost, units, call.left);
            let (sent, waited) = match turn.await {
                Ok(sent) => sent,
                Err(error) => return call.last.unwrap_or(Err(Failed::Refused(error))),
            };
            call.left = call.left.saturating_sub(waited);
            let wait = match (call.attempt(sent).await, call.last.take()) {
                (None, Some(ended)) => return ended,
                (wait, last) => {
                    call.last = last;
                    wait.unwrap_or_default()
                }
            };
            self.pacer.state().report(PacerEvent::Retried { wait });
            sleep(wait).await;
            call.left = call.left.saturating_sub(wait);
        }
    }

    fn destination_of(&self, parts: &Parts) -> Result<Destination, PacerError> {
        let destination = match &self.destination {
            Some(destination) => destination.clone(),
            None => Destination::of(&parts.uri)?,
        };
        Ok(match &self.key {
            Some(key) => destination.with_key(key(parts)),
            None => destination,
        })
    }

    /// The cost in requests, and the other units.
    fn cost_of(&self, parts: &Parts) -> (u64, OtherUnits) {
        if let Some(units) = &self.units {
            return request_cost::split(units(parts));
        }
        let cost = self.cost.as_ref().map_or(1, |cost| cost(parts));
        (cost, None)
    }
}

impl<O: OutgoingRequest> Call<'_, O> {
    /// Sends the request once. Returns the time until the retry; `None` if the newest result is the
    /// call's.
    async fn attempt(&mut self, mut sent: SentRequest) -> Option<Duration> {
        let result = match self.last {
            // Boxed, since it is rare.
            Some(Ok(_)) => Box::pin(self.send_again()).await,
            _ => self.outgoing.send().await,
        };
        let (pacer, retry) = (self.settings.pacer.state(), &self.settings.retry);
        let failure = match &result {
            Ok(response) => {
                let (status, headers) = self.outgoing.head(response);
                let verdict = sent.on_response(pacer, status, headers);
                Some((Failure::Status(status), verdict))
            }
            Err(error) => {
                O::is_connection_error(error).then_some((Failure::Connection, Verdict::Nothing))
            }
        };
        let parts = self.outgoing.parts().filter(|_| !retry.is_none());
        let wait = failure.zip(parts).and_then(|(failure, parts)| {
            let attempts = &mut self.attempts;
            retry.wait(attempts, parts, self.left, (pacer, &sent), failure)
        });
        let wait = wait.filter(|_| has_timer());
        let has_response = matches!(self.last, Some(Ok(_)));
        let result = result.map_err(Failed::Client);
        // Any response is worth more than an error.
        if result.is_ok() || !has_response {
            self.last = Some(result);
            *self.open = sent.has_units().then(|| Box::new(sent));
        }
        wait
    }

    /// Sends the request while the previous response is held. Drops that response after a second:
    /// its connection may be the one that the request waits for.
    async fn send_again(&mut self) -> Result<O::Response, O::Error> {
        let mut sending = pin!(self.outgoing.send());
        if let Ok(result) = timeout(MAX_RESPONSE_HOLD, sending.as_mut()).await {
            return result;
        }
        (self.last, *self.open) = (None, None);
        sending.await
    }
}

/// The request was requested more often than its body can be copied; no call does that.
#[derive(Debug)]
pub(crate) struct BodyConsumed;

impl fmt::Display for BodyConsumed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the request's body cannot be copied any more")
    }
}

impl Error for BodyConsumed {}

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
