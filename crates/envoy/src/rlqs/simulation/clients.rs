//! The clients, and the messages on their way.

use std::{cmp::max, num::NonZeroU64, time::Duration};

use super::{
    STEP, TTL,
    random::Random,
    simulated_envoy::{Client, Sent, Stream, UnderWay},
};
use crate::rlqs::{
    client_share::{ClientId, DivisibleRate, Share},
    divided_rate::{Pool, RowId},
};

const NANO: u64 = 1_000_000_000;

/// The longest delays of a simulation, in steps: none, up to that of cuts, and 30 seconds.
const DELAYS: [u64; 4] = [1, 41, 41, 600];

#[derive(Debug, Default)]
pub(super) struct Clients {
    clients: Vec<Client>,
    rows: u64,
    instances: u64,
    /// The number of rows that new streams took over.
    pub(super) taken: u64,
    /// The delay of a message is below this number of steps.
    delays: u64,
    /// Streams and clients fail once in this number of steps.
    failures: u64,
    /// Whether the load of all clients is always above the limit.
    is_greedy: bool,
    lies: bool,
    reports: Vec<Report>,
}

/// A report on its way.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) arrives_at: Duration,
    pub(super) row: RowId,
    pub(super) name: Option<ClientId>,
    pub(super) requests: Content,
}

#[derive(Debug)]
pub(super) enum Content {
    Requests(u64),
    /// The service notices that the stream has ended.
    End,
}

impl Clients {
    /// Clients of this number of instances.
    pub(super) fn new(random: &mut Random, instances: u64) -> Self {
        let number = if random.one_in(20) {
            40
        } else {
            1 + random.up_to(8)
        };
        let names = [0, 1, 3].map(|each: u64| move |at: u64| NonZeroU64::new(at * each / 2));
        let name = names[random.up_to(3) as usize];
        let client = |at: u64| Client {
            name: name(at + 2).map(ClientId),
            ..Client::default()
        };
        Self {
            clients: (0..number).map(client).collect(),
            instances,
            delays: DELAYS[random.up_to(4) as usize],
            failures: [60, 400, 4_000, u64::MAX][random.up_to(4) as usize],
            is_greedy: random.one_in(2),
            lies: random.one_in(2),
            ..Self::default()
        }
    }

    /// Clients whose load is above the limit, with a delay of a step.
    pub(super) fn greedy(number: usize, instances: u64) -> Self {
        Self {
            clients: (0..number).map(|_| Client::default()).collect(),
            instances,
            delays: 1,
            failures: u64::MAX,
            is_greedy: true,
            ..Self::default()
        }
    }

    /// Clients that never fail.
    pub(super) const fn healthy(mut self) -> Self {
        self.failures = u64::MAX;
        self
    }

    /// Breaks streams, opens new ones, and sends reports each 5 seconds.
    pub(super) fn send_reports(&mut self, now: Duration, random: &mut Random) {
        let Self {
            clients,
            rows,
            instances,
            delays,
            failures,
            lies,
            reports,
            ..
        } = self;
        for client in clients {
            if random.one_in(*failures) {
                client.fail(now, *delays, random, reports);
            }
            if now < client.report_at {
                continue;
            }
            client.report_at = now + Duration::from_secs(5);
            if !client.is_open() {
                *rows += 1;
                client.open(RowId(*rows * *instances + random.up_to(*instances)), now);
            }
            let mut requests = std::mem::take(&mut client.requests);
            if *lies {
                requests = [0, requests, requests * 20, u64::MAX][random.up_to(4) as usize];
            }
            client.push(now, Content::Requests(requests), *delays, random, reports);
        }
    }

    pub(super) fn deliver_reports(&mut self, now: Duration, service: &mut impl Service) {
        let (arrived, under_way): (Vec<_>, _) = std::mem::take(&mut self.reports)
            .into_iter()
            .partition(|report| report.arrives_at <= now);
        self.reports = under_way;
        for report in arrived {
            match report.requests {
                Content::Requests(requests) => {
                    let taken = service.report(now, (report.row, report.name), requests);
                    if let Some(taken) = taken {
                        self.pass_row(taken, report.row);
                    }
                }
                Content::End => service.leave(now, report.row),
            }
        }
    }

    /// Counts the messages of a stream for the one that has taken over its row. The client of the first may be another
    /// one, whose bucket no row counts any more.
    pub(super) fn pass_row(&mut self, from: RowId, to: RowId) {
        let stream = self.stream(from);
        let sent = stream.sent.clone();
        stream.passed = sent.len();
        let stream = self.stream(to);
        let last = stream.sent.last().map_or(Duration::ZERO, |sent| sent.at);
        let later = sent.into_iter().filter(|sent| sent.at > last);
        stream.sent.extend(later);
        stream.taken_at = Some(stream.sent.len());
        self.taken += 1;
    }

    pub(super) fn stream(&mut self, row: RowId) -> &mut Stream {
        let streams = self.clients.iter_mut();
        let mut streams = streams.flat_map(|client| &mut client.streams);
        streams.find(|stream| stream.row == row).expect("a stream")
    }

    /// Sends a share, which the service counts from now on.
    pub(super) fn send(&mut self, now: Duration, row: RowId, share: Share, random: &mut Random) {
        self.count(row, (now, share, true));
        self.put_on_its_way(now, (row, share), TTL, random);
    }

    /// Counts a share.
    pub(super) fn count(&mut self, row: RowId, (at, share, is_counted): (Duration, Share, bool)) {
        let sent = Sent {
            at,
            share,
            is_counted,
        };
        self.stream(row).sent.push(sent);
    }

    /// Puts the message about a counted share on its way. One for a stream that the client has closed never arrives.
    pub(super) fn put_on_its_way(
        &mut self,
        now: Duration,
        (row, share): (RowId, Share),
        ttl: Duration,
        random: &mut Random,
    ) {
        let delay = STEP * random.up_to(self.delays) as u32;
        let stream = self.stream(row);
        let place = stream.sent.iter().rposition(|sent| sent.share == share);
        let before = stream.under_way.back().map_or(now, |last| last.arrives_at);
        stream.under_way.push_back(UnderWay {
            arrives_at: max(before, now + delay),
            place: place.expect("a share"),
            ttl,
        });
    }

    /// Ends all streams to an instance, and what is under way to it. It does not know them any more.
    pub(super) fn lose_instance(&mut self, instance: u64, now: Duration, random: &mut Random) {
        let instances = self.instances;
        let is_its = |row: RowId| row.0 % instances == instance;
        self.reports.retain(|report| !is_its(report.row));
        for client in &mut self.clients {
            let last = client.streams.last();
            if last.is_some_and(|stream| stream.is_open && is_its(stream.row)) {
                client.break_stream();
                client.report_at = now + STEP * random.up_to(100) as u32;
            }
        }
    }

    /// Delivers messages. Returns the rate that clients have beyond those of timely messages, and the tokens that late
    /// messages make or keep.
    pub(super) fn receive(&mut self, now: Duration, rate: DivisibleRate) -> (u64, u64) {
        let (mut late_rate, mut late_size) = (0, 0);
        for client in &mut self.clients {
            late_rate += client.late_rate(now.saturating_sub(STEP));
            late_size += client.receive(now, rate);
            let timely = client.timely(now);
            let size = client.bucket.as_ref().map_or(0, |bucket| bucket.share.size);
            let late = size.saturating_sub(timely.size);
            late_size += late.saturating_sub(client.late_size);
            client.late_size = late;
        }
        (late_rate, late_size)
    }

    /// The requests that pass in a step.
    pub(super) fn pass(&mut self, now: Duration, random: &mut Random) -> u64 {
        let mut all = 0;
        for client in &mut self.clients {
            if self.is_greedy {
                client.load = 100_000;
            } else if random.one_in(100) {
                client.load = [0, 1, 20, 100_000][random.up_to(4) as usize];
            }
            client.requests += client.load;
            if let Some(bucket) = client.bucket.as_mut().filter(|bucket| now < bucket.ends_at) {
                let passed = client.load.min(bucket.level / NANO);
                bucket.level -= passed * NANO;
                all += passed;
            }
        }
        all
    }
}

/// The receiver of reports.
pub(super) trait Service {
    /// Returns the row that this one has taken over.
    fn report(
        &mut self,
        now: Duration,
        row: (RowId, Option<ClientId>),
        requests: u64,
    ) -> Option<RowId>;

    fn leave(&mut self, now: Duration, row: RowId);
}

impl Service for Pool {
    fn report(
        &mut self,
        now: Duration,
        row: (RowId, Option<ClientId>),
        requests: u64,
    ) -> Option<RowId> {
        self.report(now, row, requests)
    }

    fn leave(&mut self, now: Duration, row: RowId) {
        self.leave(now, row);
    }
}
