//! Calls: a request, sent when its turn has come, and again if that helps.

use std::{error::Error, fmt, future::Future, pin::pin, sync::Arc, time::Duration};

use http::{HeaderMap, StatusCode, request::Parts};
use tokio::time::{sleep, timeout};

use super::{
    Destination, Failure, Pacer, PacerError, PacerEvent, Retry,
    retry::{Again, Attempts},
    sent_request::SentRequest,
};
use crate::key::Key;

/// A response is held this long while the request is sent again, and may hold the only connection.
const HELD_FOR: Duration = Duration::from_secs(1);

/// Any error, as tower's own layers have it.
pub(super) type BoxError = Box<dyn Error + Send + Sync>;

/// What a layer knows of all its calls.
#[derive(Clone)]
pub(super) struct Calls {
    pub(super) pacer: Pacer,
    pub(super) retry: Retry,
    pub(super) destination: Option<Destination>,
    pub(super) key: Option<Arc<KeyOf>>,
    pub(super) cost: Option<Arc<CostOf>>,
}

pub(super) type KeyOf = dyn Fn(&Parts) -> Key + Send + Sync;
pub(super) type CostOf = dyn Fn(&Parts) -> u64 + Send + Sync;

/// A request of some client, which can be sent at least once.
pub(super) trait Outgoing: Send {
    type Response: Send;
    type Error: Send;

    /// The request without its body; `None` once it cannot be sent again.
    fn parts(&self) -> Option<&Parts>;

    /// Sends the request.
    fn send(&mut self) -> impl Future<Output = Result<Self::Response, Self::Error>> + Send;

    /// The response's status, and those of its fields that are the destination's.
    fn head<'r>(&self, response: &'r Self::Response) -> (StatusCode, &'r HeaderMap);

    /// Whether the connection failed.
    fn is_connection(error: &Self::Error) -> bool;
}

/// The end of a call without a response.
#[derive(Debug)]
pub(super) enum Failed<E> {
    /// It was not sent.
    Refused(PacerError),
    /// The client failed.
    Client(E),
}

/// A call that is under way.
struct Ongoing<'c, O: Outgoing> {
    calls: &'c Calls,
    outgoing: &'c mut O,
    tried: Attempts,
    left: Duration,
    /// What the caller gets if nothing better comes.
    last: Option<Result<O::Response, Failed<O::Error>>>,
}

impl Calls {
    /// Sends a request when its turn has come, and again while that may help.
    pub(super) async fn call<O: Outgoing>(
        &self,
        outgoing: &mut O,
    ) -> Result<O::Response, Failed<O::Error>> {
        let (destination, cost) = match outgoing.parts() {
            Some(parts) => (self.destination_of(parts), self.cost_of(parts)),
            None => (Err(PacerError::no_host()), 1),
        };
        let destination = destination.map_err(Failed::Refused)?;
        let mut call = Ongoing {
            calls: self,
            outgoing,
            tried: Attempts::default(),
            left: self.pacer.common().max_wait,
            last: None,
        };
        loop {
            let turn = self.pacer.turn_within(&destination, cost, call.left);
            let (sent, waited) = match turn.await {
                Ok(sent) => sent,
                Err(error) => return call.last.unwrap_or(Err(Failed::Refused(error))),
            };
            call.left = call.left.saturating_sub(waited);
            let wait = match call.attempt(sent).await {
                Ok(wait) => wait,
                Err(ended) => return *ended,
            };
            self.pacer.common().tell(PacerEvent::Retried { wait });
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

    fn cost_of(&self, parts: &Parts) -> u64 {
        self.cost.as_ref().map_or(1, |cost| cost(parts))
    }
}

/// Boxed because it is as large as a response.
type Ended<O> = Box<Result<<O as Outgoing>::Response, Failed<<O as Outgoing>::Error>>>;

impl<O: Outgoing> Ongoing<'_, O> {
    /// Sends the request once.
    ///
    /// # Errors
    ///
    /// The call's end, if the request is not sent again: else the time until it is.
    async fn attempt(&mut self, mut sent: SentRequest) -> Result<Duration, Ended<O>> {
        let result = match self.last {
            // Boxed because it is rare.
            Some(Ok(_)) => Box::pin(self.send_again()).await,
            _ => self.outgoing.send().await,
        };
        let wait = match &result {
            Ok(response) => {
                let (status, headers) = self.outgoing.head(response);
                let heard = sent.hear(self.calls.pacer.common(), status, headers);
                self.again(|again, tried| again.after_response(tried, &sent, status, heard))
            }
            Err(error) if O::is_connection(error) => {
                self.again(|again, tried| again.after_failure(tried, &sent, Failure::Connection))
            }
            Err(_) => None,
        };
        let has_response = matches!(self.last, Some(Ok(_)));
        let result = result.map_err(Failed::Client);
        // The last response is worth more than any error.
        if result.is_ok() || !has_response {
            self.last = Some(result);
        }
        match (wait, self.last.take()) {
            (None, Some(ended)) => Err(Box::new(ended)),
            (wait, last) => {
                self.last = last;
                Ok(wait.unwrap_or_default())
            }
        }
    }

    /// Sends, and gives the response that is held up if it may be the reason that this takes so long.
    async fn send_again(&mut self) -> Result<O::Response, O::Error> {
        let mut sending = pin!(self.outgoing.send());
        if let Ok(result) = timeout(HELD_FOR, sending.as_mut()).await {
            return result;
        }
        self.last = None;
        sending.await
    }

    fn again(
        &mut self,
        wait: impl FnOnce(Again<'_>, &mut Attempts) -> Option<Duration>,
    ) -> Option<Duration> {
        let retry = &self.calls.retry;
        let parts = self.outgoing.parts().filter(|_| !retry.is_none())?;
        let again = Again {
            retry,
            parts,
            left: self.left,
            common: self.calls.pacer.common(),
        };
        wait(again, &mut self.tried)
    }
}

/// A request was asked for more often than it can be copied, which no call does.
#[derive(Debug)]
pub(super) struct SentAlready;

impl fmt::Display for SentAlready {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the request's body cannot be copied any more")
    }
}

impl Error for SentAlready {}
