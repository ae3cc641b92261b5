//! A cluster: each of its servers has a connection, a window and a breaker of its own.

mod map;
mod seeds;

use std::{
    mem,
    sync::{Arc, Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak},
    time::Duration,
};

use futures_util::future::{BoxFuture, join_all};
use redis::{Cmd, ConnectionInfo, RedisResult, Value};
use tokio::time::{Instant, sleep, timeout};

use self::{
    map::SlotMap,
    seeds::{Seeds, ask_for_slots},
};
use super::{
    breaker::BreakerState,
    call::CallProgress,
    common::StoreCommon,
    connector::{ClusterEntry, Connector, Timeouts},
    core::Core,
    error::StoreError,
    guard::Guarded as _,
    health::StoreHealth,
    membership::{Membership, Siblings},
    pace::{CallPlace, CallSize},
    script::Script,
    slots::{NodeAddress, Redirect, SlotRange, slot_of},
    transport::Transport,
};
use crate::{decision::Degradation, lock::unpoisoned};

/// The map of the slots is fetched at most this often. Redirections correct it meanwhile.
const BETWEEN_FETCHES: Duration = Duration::from_secs(1);

/// How often one call is redirected at most.
const MAX_REDIRECTS: u32 = 8;

/// The pause before a call is repeated that the cluster could not place yet.
const UNSETTLED_PAUSE: Duration = Duration::from_millis(10);

/// The servers of a cluster, and which of them has which slots.
///
/// Until a server has told that, all slots belong to an entry whose connection leads to whichever
/// of the given addresses answers first.
#[derive(Debug)]
pub(super) struct Cluster {
    this: Weak<Self>,
    seeds: Seeds,
    timeouts: Timeouts,
    common: Arc<StoreCommon>,
    map: RwLock<SlotMap>,
    fetches: Mutex<Fetches>,
}

#[derive(Debug, Default)]
struct Fetches {
    /// The number of the latest.
    begun: u64,
    /// The number of the one by whose answer the map was made.
    applied: u64,
    last_at: Option<Instant>,
}

impl Cluster {
    pub(super) fn new(
        seeds: Vec<ConnectionInfo>,
        timeouts: Timeouts,
        common: Arc<StoreCommon>,
    ) -> Arc<Self> {
        Arc::new_cyclic(|this: &Weak<Self>| {
            let opener = Connector::Entry(this.clone(), timeouts);
            let membership = Membership {
                cluster: this.clone(),
                address: None,
            };
            let entry = Core::new(Arc::clone(&common), opener, Some(membership));
            Self {
                this: Weak::clone(this),
                seeds: Seeds(seeds),
                timeouts,
                common,
                map: RwLock::new(SlotMap::unknown(Arc::new(entry))),
                fetches: Mutex::default(),
            }
        })
    }

    /// The server that has the key.
    pub(super) fn server_of(&self, key: &[u8]) -> Arc<Core> {
        self.read().server_of(slot_of(key))
    }

    /// All servers that have slots.
    pub(super) fn servers(&self) -> Vec<Arc<Core>> {
        self.read().servers().to_vec()
    }

    /// Runs a call on the server of its key, and follows it to others, all within the deadline.
    pub(super) async fn call(
        &self,
        script: &Script,
        command: Arc<Cmd>,
        key: &[u8],
        (place, within): (CallPlace, Option<Duration>),
    ) -> Result<Value, StoreError> {
        let mut server = self.server_of(key);
        let mut progress = match server.is_place_here(&place) {
            true => CallProgress::new(place, within),
            false => CallProgress::new(server.insist(CallSize::ONE), None),
        };
        let mut redirects = 0;
        let began_at = progress.began_at;
        loop {
            let command = Arc::clone(&command);
            let outcome = server.attempt(script, command, progress).await;
            let Err(error) = &outcome else { return outcome };
            let is_asking = matches!(error.redirect(), Some(Redirect::Ask { .. }));
            let is_over = redirects == MAX_REDIRECTS || began_at.elapsed() >= self.common.deadline;
            let next = match is_over {
                true => None,
                false => self.next(&server, key, error).await,
            };
            let Some(next) = next else {
                if redirects == MAX_REDIRECTS || error.is_of_unsettled_cluster() {
                    server.blame(error);
                }
                return outcome;
            };
            redirects += u32::from(error.redirect().is_some());
            server = next;
            progress = CallProgress::new(server.insist(CallSize::ONE), None);
            (progress.began_at, progress.is_asking) = (began_at, is_asking);
        }
    }

    /// The server that is to be asked after such an error, when it is time to; none if the error is
    /// the call's own.
    async fn next(&self, server: &Core, key: &[u8], error: &StoreError) -> Option<Arc<Core>> {
        if let Some(redirect) = error.redirect() {
            return self.follow(server.host(), key, redirect);
        }
        if !error.is_of_unsettled_cluster() {
            return None;
        }
        self.fetch_from(None);
        sleep(UNSETTLED_PAUSE).await;
        Some(self.server_of(key))
    }

    /// The server that the one at this host names for a key.
    fn follow(&self, host: Option<&str>, key: &[u8], redirect: &Redirect) -> Option<Arc<Core>> {
        let (Redirect::Ask { to } | Redirect::Moved { to, .. }) = redirect;
        let to = to.clone().seen_from(host.unwrap_or_default());
        if to.host.is_empty() {
            // The map is newer than the entry, and may tell more.
            return Some(self.server_of(key));
        }
        let Redirect::Moved { slot, .. } = redirect else {
            return self.server_at(to, None);
        };
        let server = self.server_at(to, Some(*slot))?;
        self.fetch_from(Some(&server));
        Some(server)
    }

    /// The server at an address, which has this slot from now on, if one is named.
    fn server_at(&self, address: NodeAddress, slot: Option<u16>) -> Option<Arc<Core>> {
        let mut map = self.write();
        let server = match map.find(&address) {
            Some(known) => known,
            None => self.member(address)?,
        };
        if let Some(slot) = slot {
            map.give(slot..=slot, &server);
        }
        Some(server)
    }

    fn member(&self, address: NodeAddress) -> Option<Arc<Core>> {
        let opener = Connector::node(self.seeds.at(&address)?, self.timeouts).ok()?;
        let membership = Membership {
            cluster: self.this.clone(),
            address: Some(address),
        };
        let common = Arc::clone(&self.common);
        Some(Arc::new(Core::new(common, opener, Some(membership))))
    }

    /// Has a task fetch the map, unless that was done just now. It asks this server first.
    fn fetch_from(&self, first: Option<&Arc<Core>>) {
        let Some(this) = self.this.upgrade() else {
            return;
        };
        if !unpoisoned(self.fetches.lock()).is_due(Instant::now()) {
            return;
        }
        let number = self.begin_fetch();
        let first = first.cloned();
        self.common.home.spawn(async move {
            if let Some(ranges) = this.fetch(first).await {
                this.apply(number, &ranges);
            }
        });
    }

    fn begin_fetch(&self) -> u64 {
        let mut fetches = unpoisoned(self.fetches.lock());
        fetches.begun += 1;
        fetches.last_at = Some(Instant::now());
        fetches.begun
    }

    /// Asks servers that answer for the map, one after another, and at last the given addresses.
    async fn fetch(&self, first: Option<Arc<Core>>) -> Option<Vec<SlotRange>> {
        let works = |server: &Arc<Core>| server.link.is_live() && !server.guard().is_open();
        let others = self.servers().into_iter().filter(works);
        for server in first.into_iter().chain(others) {
            let Some(host) = server.host() else { continue };
            let mut number = 0;
            let ask = async {
                let live = server.link.live(&mut number).await.ok()?;
                ask_for_slots(&live.wire, host).await.ok()
            };
            if let Ok(Some(ranges)) = timeout(self.timeouts.connect, ask).await {
                return Some(ranges);
            }
        }
        let (_, ranges) = self.seeds.ask().await.ok()?;
        Some(ranges)
    }

    /// Makes the map from what a server has told. Servers that have no slots any more go.
    fn apply(&self, number: u64, ranges: &[SlotRange]) {
        {
            let mut fetches = unpoisoned(self.fetches.lock());
            if number < fetches.applied {
                return;
            }
            fetches.applied = number;
        }
        let gone = {
            let mut map = self.write();
            let mut new = SlotMap::default();
            for SlotRange { first, last, owner } in ranges {
                let known = map.find(owner).or_else(|| new.find(owner));
                if let Some(server) = known.or_else(|| self.member(owner.clone())) {
                    new.give(*first..=*last, &server);
                }
            }
            if new.servers().is_empty() {
                return;
            }
            let old = mem::replace(&mut *map, new);
            let gone = old.servers().iter().filter(|server| !map.has(server));
            gone.cloned().collect::<Vec<_>>()
        };
        for server in gone {
            server.retire();
        }
    }

    /// How long an answer takes of the farthest server that works.
    pub(super) fn expected(&self) -> Option<Duration> {
        let servers = self.servers();
        let works = servers.iter().filter(|server| !server.guard().is_open());
        works.filter_map(|server| server.expected()).max()
    }

    /// Tries all servers at the same time. One that works is enough.
    pub(super) async fn check(&self) -> Result<(), StoreError> {
        if !self.read().is_known() {
            // Its connection tells who has which slots.
            let entry = self.server_of(b"");
            let outcome = entry.check().await;
            if outcome.is_err() || !self.read().is_known() {
                return outcome;
            }
        }
        let servers = self.servers();
        let each = join_all(servers.iter().map(|server| server.check())).await;
        match each.iter().any(Result::is_ok) {
            true => Ok(()),
            false => each.into_iter().collect(),
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, SlotMap> {
        unpoisoned(self.map.read())
    }

    fn write(&self) -> RwLockWriteGuard<'_, SlotMap> {
        unpoisoned(self.map.write())
    }
}

impl Siblings for Cluster {
    fn fetch_soon(&self) {
        self.fetch_from(None);
    }

    fn has(&self, address: &NodeAddress, key: &[u8]) -> bool {
        self.server_of(key).address() == Some(address)
    }

    fn note(&self, host: Option<&str>, key: &[u8], redirect: &Redirect) {
        if matches!(redirect, Redirect::Moved { .. }) {
            self.follow(host, key, redirect);
        }
    }

    fn health(&self) -> StoreHealth {
        let map = self.read();
        let states = map.servers().iter().map(|server| server.guard().state());
        whole(states, map.is_known())
    }
}

impl ClusterEntry for Cluster {
    /// What the server says of the slots is known before the connection is used.
    fn open(&self) -> BoxFuture<'_, RedisResult<Transport>> {
        Box::pin(async {
            let number = self.begin_fetch();
            let (wire, ranges) = self.seeds.ask().await?;
            self.apply(number, &ranges);
            Ok(wire)
        })
    }
}

impl Fetches {
    fn is_due(&self, now: Instant) -> bool {
        let rested = |at: Instant| now.saturating_duration_since(at) >= BETWEEN_FETCHES;
        self.last_at.is_none_or(rested)
    }
}

/// The health of all servers together. The cluster is down when none of those works that were
/// asked; while some do, others that do not are a strain.
fn whole(states: impl Iterator<Item = BreakerState>, is_found: bool) -> StoreHealth {
    let mut works = false;
    let mut down = None;
    for state in states {
        match state {
            BreakerState::Untried => {}
            BreakerState::Works => works = true,
            BreakerState::Fails { since, cause } => {
                let first = |(earlier, _): &(std::time::Instant, _)| *earlier <= since;
                down = down.filter(first).or(Some((since, cause.kind())));
            }
        }
    }
    match down {
        Some(_) if works => StoreHealth::Strained {
            by: Degradation::GivenUp,
        },
        Some((since, cause)) => StoreHealth::Down { since, cause },
        None if works || is_found => StoreHealth::Up,
        None => StoreHealth::Untried,
    }
}
