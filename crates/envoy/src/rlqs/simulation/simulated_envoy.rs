//! One client: a bucket as Envoy's, its streams, and what was sent to them.

use std::{cmp::max, collections::VecDeque, time::Duration};

use super::{
    STEP, TTL,
    clients::{Content, Report},
    random::Random,
};
use crate::rlqs::{
    client_share::{CUT_DELAY, ClientId, DivisibleRate, Share},
    divided_rate::RowId,
};

const NANO: u64 = 1_000_000_000;

#[derive(Debug, Default)]
pub(super) struct Client {
    /// Another client may have the same name.
    pub(super) name: Option<ClientId>,
    pub(super) bucket: Option<Bucket>,
    pub(super) streams: Vec<Stream>,
    /// Requests in a step.
    pub(super) load: u64,
    pub(super) requests: u64,
    pub(super) report_at: Duration,
    /// The part of the bucket's size that a timely one lacks.
    pub(super) late_size: u64,
}

#[derive(Debug)]
pub(super) struct Bucket {
    pub(super) share: Share,
    /// Billionths of tokens.
    pub(super) level: u64,
    at: Duration,
    pub(super) ends_at: Duration,
}

#[derive(Debug)]
pub(super) struct Stream {
    pub(super) row: RowId,
    pub(super) is_open: bool,
    /// The place in `sent` of the first message after the stream has taken over a row.
    pub(super) taken_at: Option<usize>,
    /// The number of messages that a row of another stream counts.
    pub(super) passed: usize,
    pub(super) sent: Vec<Sent>,
    pub(super) under_way: VecDeque<UnderWay>,
    /// When the last report arrives.
    reported_at: Duration,
}

/// A share of a stream.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sent {
    pub(super) at: Duration,
    pub(super) share: Share,
    /// False for what an instance sends without Redis.
    pub(super) is_counted: bool,
}

/// A message under way, about a share at this place of `sent`.
#[derive(Debug, Clone, Copy)]
pub(super) struct UnderWay {
    pub(super) arrives_at: Duration,
    pub(super) place: usize,
    pub(super) ttl: Duration,
}

impl Stream {
    fn new(row: RowId, now: Duration) -> Self {
        Self {
            row,
            is_open: true,
            taken_at: None,
            passed: 0,
            sent: Vec::new(),
            under_way: VecDeque::new(),
            reported_at: now,
        }
    }

    /// The share that the service may count, if all messages arrive in time.
    fn timely(&self, now: Duration) -> Share {
        let mut share = Share::default();
        let counted = self.sent.iter().skip(self.passed);
        let counted = counted.filter(|sent| sent.is_counted).rev();
        for sent in counted.skip_while(|sent| sent.at > now) {
            if sent.at + TTL + CUT_DELAY > now {
                share = share.max(sent.share);
            }
            if sent.at + CUT_DELAY <= now {
                break;
            }
        }
        share
    }
}

impl Client {
    /// Ends the stream, and with it all messages; maybe the client restarts.
    pub(super) fn fail(
        &mut self,
        now: Duration,
        delays: u64,
        random: &mut Random,
        to: &mut Vec<Report>,
    ) {
        if random.one_in(2) {
            self.bucket = None;
        }
        if self.is_open() {
            self.push(now, Content::End, delays, random, to);
        }
        self.break_stream();
        self.report_at = now + STEP * random.up_to(100) as u32;
    }

    pub(super) fn push(
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

    /// Opens a stream with this row.
    pub(super) fn open(&mut self, row: RowId, now: Duration) {
        self.streams.push(Stream::new(row, now));
    }

    pub(super) fn is_open(&self) -> bool {
        self.streams.last().is_some_and(|stream| stream.is_open)
    }

    /// Ends the stream without a word. Messages under way are lost.
    pub(super) fn break_stream(&mut self) {
        if let Some(stream) = self.streams.last_mut() {
            stream.is_open = false;
            stream.under_way.clear();
        }
    }

    /// The sum of what the service may count for each stream.
    pub(super) fn timely(&self, now: Duration) -> Share {
        let mut sum = Share::default();
        for stream in &self.streams {
            let share = stream.timely(now);
            sum.tokens += share.tokens;
            sum.size += share.size;
        }
        sum
    }

    /// The rate of the bucket beyond that of timely messages.
    pub(super) fn late_rate(&self, now: Duration) -> u64 {
        let bucket = self.bucket.as_ref();
        let tokens = bucket.map_or(0, |bucket| bucket.share.tokens);
        tokens.saturating_sub(self.timely(now).tokens)
    }

    /// Refills the bucket and applies messages. Returns the tokens of a full bucket that the service has not counted.
    pub(super) fn receive(&mut self, now: Duration, rate: DivisibleRate) -> u64 {
        if let Some(bucket) = &mut self.bucket {
            bucket.refill(now, rate);
        }
        let mut made = 0;
        if let Some(stream) = self.streams.last_mut() {
            let has_arrived = |message: &mut UnderWay| message.arrives_at <= now;
            while let Some(message) = stream.under_way.pop_front_if(has_arrived) {
                let place = message.place;
                let sent = stream.sent[place];
                let before = place.checked_sub(1).map(|before| stream.sent[before].at);
                let is_recent = before.is_some_and(|at| sent.at <= at + TTL - CUT_DELAY);
                let is_renewal = !sent.is_counted || is_recent && stream.taken_at != Some(place);
                let known = self.bucket.take_if(|bucket| bucket.ends_at >= now);
                if known.is_none() && is_renewal {
                    made += sent.share.size;
                }
                self.bucket = Some(Bucket::assign(known, sent.share, (now, message.ttl)));
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
    fn assign(known: Option<Self>, share: Share, (now, ttl): (Duration, Duration)) -> Self {
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
            ends_at: now + ttl,
        }
    }
}
