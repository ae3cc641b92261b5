//! The clients, and the messages on their way.

use std::{cmp::max, collections::VecDeque, num::NonZeroU64, time::Duration};

use super::{
    super::{
        client::ClientId,
        pool::{Pool, RowId},
        rate::DivisibleRate,
        row::{CUT_DELAY, Share},
    },
    STEP, TTL,
    random::Random,
    row,
};

const NANO: u64 = 1_000_000_000;

/// The longest delays of a simulation, in steps: none, up to that of cuts, and 30 seconds.
const DELAYS: [u64; 4] = [1, 41, 41, 600];

#[derive(Debug, Default)]
pub(super) struct Clients {
    clients: Vec<Client>,
    rows: u64,
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
struct Report {
    arrives_at: Duration,
    row: RowId,
    name: Option<ClientId>,
    requests: Content,
}

#[derive(Debug)]
enum Content {
    Requests(u64),
    /// The service notices that the stream has ended.
    End,
}

#[derive(Debug, Default)]
struct Client {
    /// Another client may have the same name.
    name: Option<ClientId>,
    bucket: Option<Bucket>,
    streams: Vec<Stream>,
    /// Requests in a step.
    load: u64,
    requests: u64,
    report_at: Duration,
    /// The part of the bucket's size that a timely one lacks.
    late_size: u64,
}

#[derive(Debug)]
struct Bucket {
    share: Share,
    /// Billionths of tokens.
    level: u64,
    at: Duration,
    ends_at: Duration,
}

#[derive(Debug)]
struct Stream {
    row: RowId,
    is_open: bool,
    /// The place in `sent` of the first message after the stream has taken over a row.
    taken_at: Option<usize>,
    /// The number of messages that a row of another stream counts.
    passed: usize,
    /// The instants of sending, and the shares.
    sent: Vec<(Duration, Share)>,
    /// The instants of arrival, and the places in `sent`.
    under_way: VecDeque<(Duration, usize)>,
    /// When the last report arrives.
    reported_at: Duration,
}

impl Clients {
    pub(super) fn new(random: &mut Random) -> Self {
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
            delays: DELAYS[random.up_to(4) as usize],
            failures: [60, 400, 4_000, u64::MAX][random.up_to(4) as usize],
            is_greedy: random.one_in(2),
            lies: random.one_in(2),
            ..Self::default()
        }
    }

    /// Clients whose load is above the limit, with a delay of a step.
    pub(super) fn greedy(number: usize) -> Self {
        Self {
            clients: (0..number).map(|_| Client::default()).collect(),
            delays: 1,
            failures: u64::MAX,
            is_greedy: true,
            ..Self::default()
        }
    }

    /// Breaks streams, opens new ones, and sends reports each 5 seconds.
    pub(super) fn send_reports(&mut self, now: Duration, random: &mut Random) {
        let Self {
            clients,
            rows,
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
            if client.streams.last().is_none_or(|stream| !stream.is_open) {
                *rows += 1;
                client.streams.push(Stream {
                    row: row(*rows),
                    is_open: true,
                    taken_at: None,
                    passed: 0,
                    sent: Vec::new(),
                    under_way: VecDeque::new(),
                    reported_at: now,
                });
            }
            let mut requests = std::mem::take(&mut client.requests);
            if *lies {
                requests = [0, requests, requests * 20, u64::MAX][random.up_to(4) as usize];
            }
            client.push(now, Content::Requests(requests), *delays, random, reports);
        }
    }

    pub(super) fn deliver_reports(&mut self, now: Duration, pool: &mut Pool) {
        let (arrived, under_way): (Vec<_>, _) = std::mem::take(&mut self.reports)
            .into_iter()
            .partition(|report| report.arrives_at <= now);
        self.reports = under_way;
        for report in arrived {
            match report.requests {
                Content::Requests(requests) => {
                    let taken = pool.report(now, (report.row, report.name), requests);
                    if let Some(taken) = taken {
                        self.pass_row(taken, report.row);
                    }
                }
                Content::End => pool.leave(now, report.row),
            }
        }
    }

    /// Counts the messages of a stream for the one that has taken over its row. The client of the first may be another
    /// one, whose bucket no row counts any more.
    fn pass_row(&mut self, from: RowId, to: RowId) {
        let stream = self.stream(from);
        let sent = stream.sent.clone();
        stream.passed = sent.len();
        let stream = self.stream(to);
        let last = stream.sent.last().map_or(Duration::ZERO, |(at, _)| *at);
        let later = sent.into_iter().filter(|(at, _)| *at > last);
        stream.sent.extend(later);
        stream.taken_at = Some(stream.sent.len());
        self.taken += 1;
    }

    fn stream(&mut self, row: RowId) -> &mut Stream {
        let streams = self.clients.iter_mut();
        let mut streams = streams.flat_map(|client| &mut client.streams);
        streams.find(|stream| stream.row == row).expect("a stream")
    }

    /// Puts a message of the service on its way. One for a stream that the client has closed never arrives.
    pub(super) fn send(&mut self, now: Duration, row: RowId, share: Share, random: &mut Random) {
        let delay = STEP * random.up_to(self.delays) as u32;
        let stream = self.stream(row);
        stream.sent.push((now, share));
        let before = stream.under_way.back().map_or(now, |(at, _)| *at);
        let arrival = (max(before, now + delay), stream.sent.len() - 1);
        stream.under_way.push_back(arrival);
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

impl Client {
    /// Ends the stream, and with it all messages; maybe the client restarts.
    fn fail(&mut self, now: Duration, delays: u64, random: &mut Random, to: &mut Vec<Report>) {
        if random.one_in(2) {
            self.bucket = None;
        }
        if self.streams.last().is_some_and(|stream| stream.is_open) {
            self.push(now, Content::End, delays, random, to);
        }
        if let Some(stream) = self.streams.last_mut() {
            stream.is_open = false;
            stream.under_way.clear();
        }
        self.report_at = now + STEP * random.up_to(100) as u32;
    }

    fn push(
        &mut self,
        now: Duration,
        requests: Content,
        delays: u64,
        random: &mut Random,
        to: &mut Vec<Report>,
    ) {
        let delay = STEP * random.up_to(delays) as u32;
        if let Some(stream) = self.streams.last_mut() {
            stream.reported_at = max(stream.reported_at, now + delay);
            to.push(Report {
                arrives_at: stream.reported_at,
                row: stream.row,
                name: self.name,
                requests,
            });
        }
    }

    /// The sum of what the service may count for each stream, if all its messages arrive in time.
    fn timely(&self, now: Duration) -> Share {
        let mut sum = Share::default();
        for stream in &self.streams {
            let mut share = Share::default();
            let sent = stream.sent.iter().skip(stream.passed).rev();
            for (sent_at, sent) in sent.skip_while(|(sent_at, _)| *sent_at > now) {
                let (sent_at, sent) = (*sent_at, *sent);
                if sent_at + TTL + CUT_DELAY > now {
                    share = share.max(sent);
                }
                if sent_at + CUT_DELAY <= now {
                    break;
                }
            }
            sum.tokens += share.tokens;
            sum.size += share.size;
        }
        sum
    }

    /// The rate of the bucket beyond that of timely messages.
    fn late_rate(&self, now: Duration) -> u64 {
        let bucket = self.bucket.as_ref();
        let tokens = bucket.map_or(0, |bucket| bucket.share.tokens);
        tokens.saturating_sub(self.timely(now).tokens)
    }

    /// Refills the bucket and applies messages. Returns the tokens of a full bucket that the service has not counted.
    fn receive(&mut self, now: Duration, rate: DivisibleRate) -> u64 {
        if let Some(bucket) = &mut self.bucket {
            bucket.refill(now, rate);
        }
        let mut made = 0;
        if let Some(stream) = self.streams.last_mut() {
            while let Some((_, place)) = stream.under_way.front().filter(|(at, _)| *at <= now) {
                let place = *place;
                stream.under_way.pop_front();
                let (sent_at, share) = stream.sent[place];
                let before = place.checked_sub(1).map(|before| stream.sent[before].0);
                let is_renewal = before.is_some_and(|at| sent_at - at <= TTL - CUT_DELAY)
                    && stream.taken_at != Some(place);
                let known = self.bucket.take_if(|bucket| bucket.ends_at >= now);
                if known.is_none() && is_renewal {
                    made += share.size;
                }
                self.bucket = Some(Bucket::assign(known, share, now));
            }
        }
        self.bucket.take_if(|bucket| bucket.ends_at < now);
        made
    }
}

impl Bucket {
    fn refill(&mut self, now: Duration, rate: DivisibleRate) {
        let nanos = (now - self.at).as_nanos();
        let made = u128::from(self.share.tokens) * nanos / u128::from(rate.interval);
        self.level = (self.level + made as u64).min(self.share.size * NANO);
        self.at = now;
    }

    /// The bucket after a message: the same share keeps the level, another one its part, and a new bucket is full.
    fn assign(known: Option<Self>, share: Share, now: Duration) -> Self {
        let level = match known {
            None => share.size * NANO,
            Some(bucket) if bucket.share == share => bucket.level,
            Some(bucket) => {
                let tokens = u128::from(bucket.level) * u128::from(share.size);
                (tokens / u128::from(bucket.share.size)) as u64
            }
        };
        Self {
            share,
            level,
            at: now,
            ends_at: now + TTL,
        }
    }
}
