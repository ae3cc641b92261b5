//! Requests that wait for their bodies, which reservations need: the rules decide first what needs none, and a client
//! has few that wait.

use std::{
    collections::HashMap,
    future::{Future, poll_fn},
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    task::Poll,
};

use http::request::Parts;
use metrics::Counter;
use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore},
};
use tower_ratelimit::{
    Key, KeyExtractor as _,
    rate_limit::{DeclaredBody, DeclaredLayer},
    rules::RulesHandle,
};

use crate::{
    connections::{Peer, RequestBody},
    events,
};

/// The most requests of a client that wait for their bodies.
const MOST: usize = 16;

/// Reads the bodies of requests before the rules decide. A request that waits takes no place of those in flight.
pub(super) struct BodyWaits {
    rules: RulesHandle,
    declared: DeclaredLayer,
    room: Arc<Semaphore>,
    /// The requests of each client that wait.
    clients: Arc<Clients>,
    refused: Counter,
}

type Clients = Mutex<HashMap<Key, usize>>;

/// The end of a wait before the body's end.
enum Ended {
    /// The rules decide without the body.
    Decided,
    /// The client has too many requests that wait.
    Refused,
}

impl BodyWaits {
    /// At most `most` requests wait: beyond that, requests are decided without a body that has to be awaited.
    pub(super) fn new(rules: RulesHandle, most: u32) -> Self {
        let of_body = rules.clone();
        Self {
            rules,
            declared: DeclaredLayer::by(move |parts| of_body.spend_body(parts)),
            room: Arc::new(Semaphore::new(most as usize)),
            clients: Arc::default(),
            refused: events::refused_waits(),
        }
    }

    /// The requests that wait.
    pub(super) fn room(&self) -> &Semaphore {
        &self.room
    }

    /// The body whose beginning was read; `None` if its client has too many requests that wait. A request that ends
    /// meanwhile counts at its rules.
    pub(super) async fn read(
        &self,
        parts: &mut Parts,
        body: RequestBody,
        peer: Peer,
    ) -> Option<DeclaredBody<RequestBody>> {
        let mut request = UnreadRequest {
            rules: &self.rules,
            parts,
            is_read: false,
        };
        let read = self
            .declared
            .read_until(request.parts, body, |parts| self.wait(parts, peer));
        let (body, ended) = read.await;
        request.is_read = true;
        if let Some(Ended::Refused) = ended {
            self.refused.increment(1);
            return None;
        }
        Some(body)
    }

    /// Ends if nobody has to wait for the body of this request.
    fn wait(&self, parts: &Parts, peer: Peer) -> impl Future<Output = Ended> + Send + use<> {
        let denied = self.rules.denied_without_body(parts);
        let rules = self.rules.rules();
        let client_ip = rules.client_ip();
        let client = client_ip.extract(parts);
        let client = client.unwrap_or_else(|_| client_ip.prefix().key(peer.address.ip()));
        let (clients, room) = (Arc::clone(&self.clients), Arc::clone(&self.room));
        async move {
            let mut denied = pin!(denied);
            if poll_fn(|cx| Poll::Ready(denied.as_mut().poll(cx).is_ready())).await {
                return Ended::Decided;
            }
            let Some(_wait) = Wait::begin(&clients, client) else {
                return Ended::Refused;
            };
            let Ok::<OwnedSemaphorePermit, _>(_place) = room.try_acquire_owned() else {
                return Ended::Decided;
            };
            denied.await;
            Ended::Decided
        }
    }
}

/// A request that waits, of a client; it ends on drop.
struct Wait {
    clients: Arc<Clients>,
    client: Key,
}

impl Wait {
    /// `None` if the client has too many.
    fn begin(clients: &Arc<Clients>, client: Key) -> Option<Self> {
        let mut counts = clients.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(client.clone()).or_default();
        if *count >= MOST {
            return None;
        }
        *count += 1;
        Some(Self {
            clients: Arc::clone(clients),
            client,
        })
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        let mut counts = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.client);
            }
        }
    }
}

/// A request that is read. If its client leaves meanwhile, its rules count it: it was a request.
struct UnreadRequest<'a> {
    rules: &'a RulesHandle,
    parts: &'a mut Parts,
    is_read: bool,
}

impl Drop for UnreadRequest<'_> {
    fn drop(&mut self) {
        if !self.is_read
            && let Ok(runtime) = Handle::try_current()
        {
            let check = self.rules.check(self.parts, None, false);
            runtime.spawn(async move { drop(check.await) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_has_few_requests_that_wait() {
        let clients = Arc::default();
        let begin = |client: u64| Wait::begin(&clients, Key::from(client));
        let mut waits: Vec<_> = (0..MOST).filter_map(|_| begin(1)).collect();
        assert_eq!(waits.len(), MOST);
        assert!(begin(1).is_none() && begin(2).is_some());
        waits.pop();
        assert!(begin(1).is_some() && begin(1).is_some());
        waits.clear();
        assert!(clients.lock().unwrap().is_empty());
    }
}
