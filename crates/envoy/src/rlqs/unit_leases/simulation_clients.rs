//! The clients, and the messages on their way.

use std::{collections::VecDeque, time::Duration};

use super::simulation::{STEP, TTL};
use crate::{
    protobuf_messages::BlanketRule,
    rlqs::{
        client_share::CUT_DELAY, divided_rate::RowId, lease_accounts::Message,
        simulation::random::Random,
    },
};

/// The longest delays of a simulation, in steps: none, up to that of cuts, and 30 seconds.
const DELAYS: [u64; 4] = [1, 21, 21, 300];

/// Requests that passed and that were denied; `None` when the service notices that the stream has ended.
type Report = Option<(u64, u64)>;

#[derive(Debug)]
pub(super) struct Clients {
    clients: Vec<Client>,
    rows: u64,
    /// The delay of a message is below this number of steps.
    delays: u64,
    /// Streams and clients fail once in this number of steps.
    failures: u64,
    is_greedy: bool,
    lies: bool,
    reports: Vec<(Duration, RowId, Report)>,
}

#[derive(Debug, Default)]
struct Client {
    bucket: Option<Bucket>,
    streams: Vec<Stream>,
    load: u64,
    allowed: u64,
    denied: u64,
    report_at: Duration,
}

#[derive(Debug)]
struct Bucket {
    level: u64,
    size: u64,
    ends_at: Duration,
    /// The stream and the lease; `None` if a late extension made it.
    lease: Option<(usize, usize)>,
}

/// A lease as the service counts it.
#[derive(Debug)]
struct Lease {
    units: u64,
    until: Duration,
    expires_at: Duration,
    /// The requests that passed by the reports since.
    reported: u64,
}

#[derive(Debug)]
struct Stream {
    row: RowId,
    is_open: bool,
    leases: Vec<Lease>,
    /// The lease that the last message left.
    current: Option<usize>,
    /// The instants of arrival, the messages, and their leases.
    under_way: VecDeque<(Duration, Message, usize)>,
    reported_at: Duration,
}

impl Clients {
    pub(super) fn new(random: &mut Random) -> Self {
        Self {
            clients: (0..=random.up_to(6)).map(|_| Client::default()).collect(),
            rows: 0,
            delays: DELAYS[random.up_to(4) as usize],
            failures: [60, 400, 4_000, u64::MAX][random.up_to(4) as usize],
            is_greedy: random.one_in(2),
            lies: random.one_in(2),
            reports: Vec::new(),
        }
    }

    /// Whether no message is later than a cut may be.
    pub(super) const fn are_timely(&self) -> bool {
        self.delays <= 21
    }

    /// Breaks streams, opens new ones, and sends reports each 5 seconds.
    pub(super) fn send_reports(&mut self, now: Duration, random: &mut Random) {
        for client in &mut self.clients {
            if random.one_in(self.failures) {
                if random.one_in(2) {
                    client.bucket = None;
                }
                let end = client.end(now, STEP * random.up_to(self.delays) as u32);
                self.reports.extend(end);
                client.report_at = now + STEP * random.up_to(50) as u32;
            }
            if now < client.report_at {
                continue;
            }
            client.report_at = now + Duration::from_secs(5);
            if client.streams.last().is_none_or(|stream| !stream.is_open) {
                self.rows += 1;
                client.streams.push(Stream::new(RowId(self.rows), now));
            }
            let mut report = (client.allowed, client.denied);
            (client.allowed, client.denied) = (0, 0);
            if self.lies {
                let allowed = [0, report.0, report.0 * 20, u64::MAX];
                report = (allowed[random.up_to(4) as usize], random.up_to(100));
            }
            let delay = STEP * random.up_to(self.delays) as u32;
            self.reports
                .extend(client.report(now + delay, Some(report)));
        }
    }

    /// The reports that have arrived.
    pub(super) fn arrived(&mut self, now: Duration) -> Vec<(RowId, Report)> {
        let reports = std::mem::take(&mut self.reports);
        let (arrived, under_way): (Vec<_>, _) =
            reports.into_iter().partition(|(at, ..)| *at <= now);
        self.reports = under_way;
        for (_, row, report) in &arrived {
            let stream = self.stream(*row);
            match (report, stream.current) {
                (Some((allowed, _)), Some(at)) => {
                    let lease = &mut stream.leases[at];
                    lease.reported = lease.reported.saturating_add(*allowed);
                }
                (Some(_), None) => {}
                (None, _) => {
                    // The message that ends a lease may be lost.
                    let leases = stream.leases.iter_mut();
                    for lease in leases.filter(|lease| lease.until > now) {
                        lease.until = lease.expires_at;
                    }
                }
            }
        }
        let reports = arrived.into_iter().map(|(_, row, report)| (row, report));
        reports.collect()
    }

    /// The units of the current lease that reports do not account for.
    pub(super) fn unreported(&self, row: RowId) -> u64 {
        let mut streams = self.clients.iter().flat_map(|client| &client.streams);
        let stream = streams.find(|stream| stream.row == row).expect("a stream");
        stream.current.map_or(0, |at| {
            let lease = &stream.leases[at];
            lease.units.saturating_sub(lease.reported)
        })
    }

    /// The units that clients may spend by the service's account.
    pub(super) fn lent(&self, now: Duration) -> u64 {
        let streams = self.clients.iter().flat_map(|client| &client.streams);
        let leases = streams.flat_map(|stream| &stream.leases);
        let lent = leases.filter(|lease| lease.until > now);
        lent.map(|lease| lease.units).sum()
    }

    /// Puts a message of the service on its way. One for a stream that the client has closed never arrives.
    pub(super) fn send(
        &mut self,
        now: Duration,
        row: RowId,
        message: Message,
        random: &mut Random,
    ) {
        let delay = STEP * random.up_to(self.delays) as u32;
        self.stream(row).send(now, now + delay, message);
    }

    fn stream(&mut self, row: RowId) -> &mut Stream {
        let clients = self.clients.iter_mut();
        let mut streams = clients.flat_map(|client| &mut client.streams);
        streams.find(|stream| stream.row == row).expect("a stream")
    }

    pub(super) fn receive(&mut self, now: Duration) {
        for client in &mut self.clients {
            client.receive(now);
        }
    }

    /// The requests that pass in a step: those of leases that the service counts, and late ones.
    pub(super) fn pass(&mut self, now: Duration, random: &mut Random) -> (u64, u64) {
        let (mut timely, mut late) = (0, 0);
        for client in &mut self.clients {
            if self.is_greedy {
                client.load = 100;
            } else if random.one_in(50) {
                client.load = [0, 0, 1, 100][random.up_to(4) as usize];
            }
            let requests = if client.load == 1 && !random.one_in(10) {
                0
            } else {
                client.load
            };
            let (passed, is_timely) = client.pass(now, requests);
            if is_timely {
                timely += passed;
            } else {
                late += passed;
            }
        }
        (timely, late)
    }
}

impl Client {
    /// Ends the stream, and with it all messages.
    fn end(&mut self, now: Duration, delay: Duration) -> Option<(Duration, RowId, Report)> {
        let stream = self.streams.last_mut().filter(|stream| stream.is_open)?;
        stream.is_open = false;
        stream.under_way.clear();
        self.report(now + delay, None)
    }

    /// A report, which arrives after those before it.
    fn report(
        &mut self,
        arrives_at: Duration,
        report: Report,
    ) -> Option<(Duration, RowId, Report)> {
        let stream = self.streams.last_mut()?;
        stream.reported_at = stream.reported_at.max(arrives_at);
        Some((stream.reported_at, stream.row, report))
    }

    fn receive(&mut self, now: Duration) {
        self.bucket.take_if(|bucket| bucket.ends_at <= now);
        let Some(place) = self.streams.len().checked_sub(1) else {
            return;
        };
        let under_way = &mut self.streams[place].under_way;
        let arrived = under_way.partition_point(|(at, ..)| *at <= now);
        for (_, message, lease) in under_way.drain(..arrived) {
            let made = |units, lease| Bucket {
                level: units,
                size: units,
                ends_at: now + TTL,
                lease,
            };
            self.bucket = match (message, self.bucket.take()) {
                (Message::Lease(units), _) => Some(made(units, Some((place, lease)))),
                (Message::Extension(units), None) => Some(made(units, None)),
                (Message::Extension(units), Some(bucket)) => {
                    let level = bucket.level * units / bucket.size;
                    Some(Bucket {
                        level,
                        size: units,
                        ends_at: now + TTL,
                        ..bucket
                    })
                }
                (Message::Blanket(BlanketRule::DenyAll, _), _) => None,
                (Message::Blanket(BlanketRule::AllowAll, _), _) => panic!("the counters respond"),
            };
        }
    }

    /// Sends requests. Returns the number that passes, and whether the service counts their lease.
    fn pass(&mut self, now: Duration, requests: u64) -> (u64, bool) {
        let mut passed = (0, true);
        if let Some(bucket) = &mut self.bucket {
            passed.0 = requests.min(bucket.level);
            bucket.level -= passed.0;
            passed.1 = bucket
                .lease
                .is_some_and(|(stream, lease)| now < self.streams[stream].leases[lease].until);
        }
        self.allowed += passed.0;
        self.denied += requests - passed.0;
        passed
    }
}

impl Stream {
    fn new(row: RowId, now: Duration) -> Self {
        Self {
            row,
            is_open: true,
            leases: Vec::new(),
            current: None,
            under_way: VecDeque::new(),
            reported_at: now,
        }
    }

    fn send(&mut self, now: Duration, arrives_at: Duration, message: Message) {
        let until = now + TTL + CUT_DELAY;
        let before = self.current.map(|at| &mut self.leases[at]);
        match (message, before) {
            (Message::Extension(_), Some(lease)) => {
                (lease.until, lease.expires_at) = (until, until);
            }
            (Message::Extension(_), None) => panic!("nothing to extend"),
            (_, Some(lease)) => lease.until = lease.until.min(now + 2 * CUT_DELAY),
            (_, None) => {}
        }
        match message {
            Message::Lease(units) => {
                self.leases.push(Lease {
                    units,
                    until,
                    expires_at: until,
                    reported: 0,
                });
                self.current = Some(self.leases.len() - 1);
            }
            Message::Extension(_) => {}
            Message::Blanket(..) => self.current = None,
        }
        if self.is_open {
            let before = self.under_way.back().map_or(now, |(at, ..)| *at);
            let lease = self.leases.len().saturating_sub(1);
            self.under_way
                .push_back((before.max(arrives_at), message, lease));
        }
    }
}
