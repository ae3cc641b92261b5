//! A cluster: each of its servers has a connection, a window and a breaker of its own.
//!
//! In: a call with the key of its subject. Out: the reply of the server that owns the key's slot.
//!
//! 1. Until a server has reported the map of slots, all slots belong to the entry, a pipeline to whichever configured
//!    address responds first. To open it is to fetch the map.
//! 2. `call` takes the server of the slot and attempts the call there. `MOVED` and `ASK` name another server, which is
//!    tried next; a slot that is moving is tried again after a pause. All attempts are within one deadline.
//! 3. `MOVED` also corrects the map for that slot at once, and has the whole map fetched, as does a server that fails
//!    (`fetch_from`). At most one fetch begins in `BETWEEN_FETCHES`, and no call waits for it.
//! 4. `apply` replaces the map. Servers that are in both keep their pipelines; those without slots are retired, and their
//!    breakers close.
//!
//! Why not the cluster client of redis-rs (1.8)? It was tried in this one's place. While it fetches the map it drives no
//! call, and it sends to servers that hang, so that calls for the keys of all others fail at each fetch. It follows redirections
//! only as often as it repeats a charge whose reply was lost, which then ran more than once. Its errors do not name the
//! server that failed, so a breaker for each would need a map of slots beside its own.
//!
//! Example: a replica takes over from a server that is lost. Calls to the lost one fail until its breaker opens, and the
//! fallback decides about its keys. The next map names the replica; their calls go there from then on.

use std::{
    fmt, mem,
    ops::RangeInclusive,
    sync::{Arc, Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak},
    time::Duration,
};

use futures_util::future::{BoxFuture, join_all, select_ok};
use redis::{Cmd, ConnectionAddr, ConnectionInfo, ErrorKind, RedisError, RedisResult, Value};
use tokio::time::{Instant, sleep, timeout};

use super::{
    connection::{self, ClusterEntry, Connector, StoreCommon, Transport},
    pipeline::{CallProgress, Membership, Pipeline, Siblings},
    script::Script,
};
use crate::{
    breaker::Guarded as _,
    error::{Redirect, ServerAddress, StoreError},
    health::StoreHealth,
};
use tower_ratelimit_core::{decision::Degradation, lock::unpoisoned};

/// The shortest time between two fetches of the slot map. Redirections correct the map meanwhile.
const BETWEEN_FETCHES: Duration = Duration::from_secs(1);

const MAX_REDIRECTS: u32 = 8;

/// The pause before a call is repeated while its slot is moving.
const MOVING_PAUSE: Duration = Duration::from_millis(10);

/// The servers of a cluster, and the map of their slots.
///
/// Until a server has reported the map, all slots belong to the entry. The entry's connection leads
/// to whichever configured address responds first.
pub(super) struct Cluster {
    this: Weak<Self>,
    /// The configured addresses, with the user and the encryption for all servers.
    seeds: Vec<ConnectionInfo>,
    common: Arc<StoreCommon>,
    map: RwLock<SlotMap>,
    fetches: Mutex<Fetches>,
}

#[derive(Default)]
struct Fetches {
    /// The number of the latest fetch.
    begun: u64,
    /// The number of the fetch that the map is from.
    applied: u64,
    last_at: Option<Instant>,
}

impl Cluster {
    pub(super) fn new(seeds: Vec<ConnectionInfo>, common: Arc<StoreCommon>) -> Arc<Self> {
        Arc::new_cyclic(|this: &Weak<Self>| {
            let opener = Connector::Entry(this.clone());
            let membership = Membership {
                cluster: this.clone(),
                address: None,
            };
            let entry = Pipeline::new(Arc::clone(&common), opener, Some(membership));
            Self {
                this: Weak::clone(this),
                seeds,
                common,
                map: RwLock::new(SlotMap::of(Arc::new(entry), false)),
                fetches: Mutex::default(),
            }
        })
    }

    pub(super) fn server_of(&self, key: &[u8]) -> Arc<Pipeline> {
        self.read().server_of(slot_of(key))
    }

    pub(super) fn servers(&self) -> Vec<Arc<Pipeline>> {
        self.read().servers.clone()
    }

    /// Sends a call to the server of its key and follows redirections, all within the deadline.
    pub(super) async fn call(
        &self,
        script: &Script,
        command: Arc<Cmd>,
        key: &[u8],
        times: (Instant, Option<Instant>),
    ) -> Result<Value, StoreError> {
        let mut server = self.server_of(key);
        let mut progress = CallProgress::new(times);
        let mut redirects = 0;
        loop {
            let command = Arc::clone(&command);
            let outcome = server.attempt(script, command, progress).await;
            let Err(error) = &outcome else { return outcome };
            let is_asking = matches!(error.redirect(), Some(Redirect::Ask { .. }));
            let is_over = redirects == MAX_REDIRECTS || times.0.elapsed() >= self.common.deadline;
            let next = if is_over {
                None
            } else {
                self.next(&server, key, error).await
            };
            let Some(next) = next else {
                if redirects == MAX_REDIRECTS || error.is_of_moving_slot() {
                    server.record_final_failure(error);
                }
                return outcome;
            };
            redirects += u32::from(error.redirect().is_some());
            server = next;
            progress = CallProgress::new(times);
            progress.is_asking = is_asking;
        }
    }

    /// Waits if necessary, then returns the server for the next attempt after such an error. `None`
    /// if a further attempt is of no use.
    async fn next(
        &self,
        server: &Pipeline,
        key: &[u8],
        error: &StoreError,
    ) -> Option<Arc<Pipeline>> {
        if let Some(redirect) = error.redirect() {
            return self.follow(server.host(), key, redirect);
        }
        if !error.is_of_moving_slot() {
            return None;
        }
        self.fetch_from(None);
        sleep(MOVING_PAUSE).await;
        Some(self.server_of(key))
    }

    /// Returns the server that the one at this host names for a key.
    fn follow(&self, host: Option<&str>, key: &[u8], redirect: &Redirect) -> Option<Arc<Pipeline>> {
        let (Redirect::Ask { to } | Redirect::Moved { to, .. }) = redirect;
        let to = to.clone().seen_from(host.unwrap_or_default());
        if to.host.is_empty() {
            // The map is newer than the entry, and may be more exact.
            return Some(self.server_of(key));
        }
        let Redirect::Moved { slot, .. } = redirect else {
            return self.server_at(to, None);
        };
        let server = self.server_at(to, Some(*slot))?;
        self.fetch_from(Some(&server));
        Some(server)
    }

    fn server_at(&self, address: ServerAddress, slot: Option<u16>) -> Option<Arc<Pipeline>> {
        let mut map = self.write();
        let server = map.find(&address).or_else(|| self.member(address))?;
        match slot {
            Some(slot) => map.give(slot..=slot, &server),
            None => map.add(&server),
        }
        Some(server)
    }

    fn member(&self, address: ServerAddress) -> Option<Arc<Pipeline>> {
        let opener = Connector::server(self.info_of(&address)?).ok()?;
        let membership = Membership {
            cluster: self.this.clone(),
            address: Some(address),
        };
        let common = Arc::clone(&self.common);
        Some(Arc::new(Pipeline::new(common, opener, Some(membership))))
    }

    /// Starts a task that fetches the map, unless the last fetch was just now. It tries the server
    /// `first` at first.
    fn fetch_from(&self, first: Option<&Arc<Pipeline>>) {
        let Some(this) = self.this.upgrade() else {
            return;
        };
        let last_at = unpoisoned(self.fetches.lock()).last_at;
        if last_at.is_some_and(|at| at.elapsed() < BETWEEN_FETCHES) {
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

    /// Requests the map from the servers that work, one after another, and at last from the
    /// configured addresses.
    async fn fetch(&self, first: Option<Arc<Pipeline>>) -> Option<Vec<SlotRange>> {
        let works = |server: &Arc<Pipeline>| server.link.is_live() && !server.breaker().is_open();
        let others = self.servers().into_iter().filter(works);
        for server in first.into_iter().chain(others) {
            let Some(host) = server.host() else { continue };
            let mut number = 0;
            let fetch = async {
                let live = server.link.live(&mut number).await.ok()?;
                fetch_slots(&live.wire, host).await.ok()
            };
            if let Ok(Some(ranges)) = timeout(self.common.connect_timeout, fetch).await {
                return Some(ranges);
            }
        }
        let (_, ranges) = self.connect().await.ok()?;
        Some(ranges)
    }

    /// Replaces the map by the ranges that a server reported. Servers without slots are retired.
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
            let mut new: Option<SlotMap> = None;
            for SlotRange { first, last, owner } in ranges {
                let known = map.find(owner).or_else(|| new.as_ref()?.find(owner));
                if let Some(server) = known.or_else(|| self.member(owner.clone())) {
                    let new = new.get_or_insert_with(|| SlotMap::of(Arc::clone(&server), true));
                    new.give(*first..=*last, &server);
                }
            }
            let Some(new) = new else { return };
            let old = mem::replace(&mut *map, new);
            let gone = old.servers.iter().filter(|server| !map.has(server));
            gone.cloned().collect::<Vec<_>>()
        };
        for server in gone {
            server.retire(server.address().is_some());
        }
    }

    /// The expected response time of the slowest server that works.
    pub(super) fn expected(&self) -> Option<Duration> {
        let servers = self.servers();
        let works = servers.iter().filter(|server| !server.breaker().is_open());
        works.filter_map(|server| server.expected()).max()
    }

    /// Tries all servers at the same time. Succeeds if one works.
    pub(super) async fn check(&self) -> Result<(), StoreError> {
        if !self.read().is_known {
            // Opening the entry's connection fetches the slot map.
            let entry = self.server_of(b"");
            let outcome = entry.check().await;
            if outcome.is_err() || !self.read().is_known {
                return outcome;
            }
        }
        let servers = self.servers();
        let each = join_all(servers.iter().map(|server| server.check())).await;
        if each.iter().any(Result::is_ok) {
            return Ok(());
        }
        each.into_iter().collect()
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

    fn first_of(
        &self,
        address: &ServerAddress,
        mut keys: &mut dyn Iterator<Item = String>,
    ) -> Option<String> {
        let owned: Vec<bool> = {
            let map = self.read();
            let is_own = |server: &Arc<Pipeline>| server.address() == Some(address);
            map.owners.iter().map(is_own).collect()
        };
        if !owned.contains(&true) {
            return None;
        }
        Iterator::find(&mut keys, |key| owned[usize::from(slot_of(key.as_bytes()))])
    }

    fn record_redirect(&self, host: Option<&str>, key: &[u8], redirect: &Redirect) {
        if matches!(redirect, Redirect::Moved { .. }) {
            self.follow(host, key, redirect);
        }
    }

    fn lost(&self) -> Vec<String> {
        let servers = self.servers();
        let lost = servers.iter().filter(|server| {
            let cause = server.breaker().cause();
            cause.is_some_and(|cause| !cause.is_of_cluster_down())
        });
        let addresses = lost.filter_map(|server| server.address());
        addresses.map(ToString::to_string).collect()
    }

    fn health(&self) -> StoreHealth {
        let map = self.read();
        let states = map.servers.iter().map(|server| server.breaker().health());
        whole(states, map.is_known)
    }
}

impl ClusterEntry for Cluster {
    fn seed(&self) -> &ConnectionAddr {
        self.seeds[0].addr()
    }

    /// Applies the slot map that the server reports before the connection is used.
    fn open(&self) -> BoxFuture<'_, RedisResult<Transport>> {
        Box::pin(async {
            let number = self.begin_fetch();
            let (wire, ranges) = self.connect().await?;
            self.apply(number, &ranges);
            Ok(wire)
        })
    }
}

/// The health of all servers together, over those that have received calls. The cluster is down if
/// none of them works, and strained if some do not.
fn whole(states: impl Iterator<Item = StoreHealth>, is_found: bool) -> StoreHealth {
    let mut works = false;
    let mut down = None;
    for state in states {
        match state {
            StoreHealth::Down { since, cause } => {
                let first = |(earlier, _): &(std::time::Instant, _)| *earlier <= since;
                down = down.filter(first).or(Some((since, cause)));
            }
            StoreHealth::Untried => {}
            _ => works = true,
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

/// The server of each slot.
struct SlotMap {
    /// Slots without a server belong to the first one, which returns the error for them.
    owners: Vec<Arc<Pipeline>>,
    /// The owners, and those that a server has named for a slot that they do not own yet.
    servers: Vec<Arc<Pipeline>>,
    /// Whether the map is from a server's report.
    is_known: bool,
}

impl SlotMap {
    fn of(first: Arc<Pipeline>, is_known: bool) -> Self {
        Self {
            owners: vec![Arc::clone(&first); SLOTS],
            servers: vec![first],
            is_known,
        }
    }

    fn server_of(&self, slot: u16) -> Arc<Pipeline> {
        Arc::clone(&self.owners[usize::from(slot)])
    }

    fn find(&self, address: &ServerAddress) -> Option<Arc<Pipeline>> {
        let mut known = self.servers.iter();
        let known = known.find(|server| server.address() == Some(address));
        known.cloned()
    }

    fn has(&self, server: &Arc<Pipeline>) -> bool {
        self.servers.iter().any(|own| Arc::ptr_eq(own, server))
    }

    fn add(&mut self, server: &Arc<Pipeline>) {
        if !self.has(server) {
            self.servers.push(Arc::clone(server));
        }
    }

    fn give(&mut self, slots: RangeInclusive<u16>, server: &Arc<Pipeline>) {
        let slots = usize::from(*slots.start())..=usize::from(*slots.end());
        if let Some(owners) = self.owners.get_mut(slots) {
            owners.fill(Arc::clone(server));
            self.add(server);
        }
    }
}

/// Its servers' addresses.
impl Cluster {
    /// Opens a connection to the server that responds first, and fetches the slot ranges from it.
    async fn connect(&self) -> RedisResult<(Transport, Vec<SlotRange>)> {
        let each = self.seeds.iter().map(|seed| {
            let attempt = async {
                let server = connection::with_tcp_settings(seed.clone());
                let wire = connection::server(&server, &self.common.credentials).await?;
                let ranges = fetch_slots(&wire, host_of(seed)).await?;
                Ok((wire, ranges))
            };
            Box::pin(attempt)
        });
        select_ok(each).await.map(|(first, _)| first)
    }

    /// Returns another address with the user, encryption and protocol of all.
    fn info_of(&self, address: &ServerAddress) -> Option<ConnectionInfo> {
        let seed = self.seeds.first()?;
        let mut place = seed.addr().clone();
        match &mut place {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                host.clone_from(&address.host);
                *port = address.port;
            }
            _ => return None,
        }
        Some(seed.clone().set_addr(place))
    }
}

async fn fetch_slots(wire: &Transport, host: &str) -> RedisResult<Vec<SlotRange>> {
    let mut command = redis::cmd("CLUSTER");
    command.arg("SLOTS");
    let answer = wire.send(&command).await?.extract_error()?;
    let ranges = parse_slot_ranges(&answer, host);
    let missing = if lacks_name(&answer) {
        "a server of the cluster has no name for its clients (`?`): it needs \
         cluster-announce-hostname, or cluster-preferred-endpoint-type ip"
    } else {
        "the cluster has given out no slots"
    };
    ranges.ok_or_else(|| (ErrorKind::Client, missing).into())
}

fn host_of(server: &ConnectionInfo) -> &str {
    match server.addr() {
        ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => host,
        _ => "",
    }
}

const SLOTS: usize = 16_384;

/// Consecutive slots of one server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SlotRange {
    pub(super) first: u16,
    pub(super) last: u16,
    pub(super) owner: ServerAddress,
}

impl Redirect {
    pub(super) fn of(error: &RedisError) -> Option<Self> {
        let (address, slot) = error.redirect_node()?;
        let to = ServerAddress::parse(address)?;
        Some(match error.code() {
            Some("ASK") => Self::Ask { to },
            _ => Self::Moved { slot, to },
        })
    }
}

impl ServerAddress {
    /// Parses `host:port`. The host is empty if it is that of the responding server.
    fn parse(text: &str) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        Some(Self {
            host: if host == "?" { "" } else { host }.to_owned(),
            port: port.parse().ok()?,
        })
    }

    /// Fills an empty host with the host of the server that announced the address.
    pub(super) fn seen_from(mut self, host: &str) -> Self {
        if matches!(&*self.host, "" | "0.0.0.0" | "::") {
            host.clone_into(&mut self.host);
        }
        self
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// The slot of a key, computed from the text in its first pair of braces, unless that is empty.
pub(super) fn slot_of(key: &[u8]) -> u16 {
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        let length = rest.iter().position(|byte| *byte == b'}')?;
        (length > 0).then(|| &rest[..length])
    });
    crc16(tag.unwrap_or(key)) % SLOTS as u16
}

/// CRC-16/XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    const POLYNOMIAL: u16 = 0x1021;
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| {
            let shifted = crc << 1;
            if crc & 0x8000 == 0 {
                shifted
            } else {
                shifted ^ POLYNOMIAL
            }
        })
    })
}

/// Whether a response to `CLUSTER SLOTS` has a server without a name, shown as `?`.
fn lacks_name(answer: &Value) -> bool {
    let no_name = Value::BulkString(b"?".to_vec());
    let name = |range: &Value| range.as_sequence()?.get(2)?.as_sequence()?.first().cloned();
    let mut ranges = answer.as_sequence().unwrap_or_default().iter();
    ranges.any(|range| name(range).as_ref() == Some(&no_name))
}

/// Parses the response of the server at `host` to `CLUSTER SLOTS`. `None` if it is not such a
/// response, or if no server has a slot.
pub(super) fn parse_slot_ranges(answer: &Value, host: &str) -> Option<Vec<SlotRange>> {
    let ranges = answer.as_sequence()?.iter();
    let ranges: Vec<_> = ranges
        .filter_map(|range| parse_range(range, host))
        .collect();
    (!ranges.is_empty()).then_some(ranges)
}

/// Parses `first, last, primary, replica…`.
fn parse_range(range: &Value, host: &str) -> Option<SlotRange> {
    let [Value::Int(first), Value::Int(last), primary, ..] = range.as_sequence()? else {
        return None;
    };
    let [name, Value::Int(port), ..] = primary.as_sequence()? else {
        return None;
    };
    let name = match name {
        Value::BulkString(name) => std::str::from_utf8(name).ok()?,
        Value::Nil => "",
        _ => return None,
    };
    // The server itself does not know its address.
    if name == "?" {
        return None;
    }
    let owner = ServerAddress {
        host: name.to_owned(),
        port: u16::try_from(*port).ok()?,
    };
    let slot = |number: &i64| {
        let slot = u16::try_from(*number).ok();
        slot.filter(|slot| usize::from(*slot) < SLOTS)
    };
    let (first, last) = (slot(first)?, slot(last)?);
    (first <= last).then(|| SlotRange {
        first,
        last,
        owner: owner.seen_from(host),
    })
}
