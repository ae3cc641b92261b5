//! A model of a store that leases: one subject, a bucket or a window, in microseconds.

use std::collections::BTreeMap;

use super::*;

/// The limit and its counter.
#[derive(Debug, Clone)]
pub(super) enum Meter {
    /// The time until which the bucket is charged; the time of a unit; the capacity.
    Bucket { tat: u64, unit: u64, most: u64 },
    /// The window and its count; the period; the limit.
    Window {
        count: (u64, u64),
        period: u64,
        most: u64,
    },
}

#[derive(Debug)]
struct Row {
    seq: u32,
    born: bool,
    units: u64,
    demand: u64,
    end: u64,
}

#[derive(Debug)]
pub(super) struct Model {
    pub(super) meter: Meter,
    rows: BTreeMap<[u8; 8], Row>,
}

impl Meter {
    pub(super) fn available(&self, now: u64) -> u64 {
        match self {
            Self::Bucket { tat, unit, most } => {
                most.saturating_sub(tat.saturating_sub(now).div_ceil(*unit))
            }
            Self::Window {
                count,
                period,
                most,
            } => {
                let current = count.0 == now / period;
                most - if current { count.1 } else { 0 }
            }
        }
    }

    pub(super) fn charge(&mut self, units: u64, at: u64) {
        match self {
            Self::Bucket { tat, unit, .. } => *tat = (*tat).max(at) + units * *unit,
            Self::Window { count, period, .. } => {
                let window = at / *period;
                if window > count.0 {
                    *count = (window, 0);
                }
                if window == count.0 {
                    count.1 += units;
                }
            }
        }
    }

    fn end(&self, now: u64, length: u64) -> u64 {
        match self {
            Self::Bucket { .. } => now + length,
            Self::Window { period, .. } => (now + length).min((now / period + 1) * period),
        }
    }
}

impl Model {
    pub(super) const fn new(meter: Meter) -> Self {
        Self {
            meter,
            rows: BTreeMap::new(),
        }
    }

    fn held(&self) -> u64 {
        self.rows.values().map(|row| row.units).sum()
    }

    fn end_rows(&mut self, now: u64) {
        let over = |(name, row): (&[u8; 8], &Row)| (row.end <= now).then_some((row.end, *name));
        let mut ended: Vec<_> = self.rows.iter().filter_map(over).collect();
        ended.sort_unstable();
        for (end, name) in ended {
            let row = self.rows.remove(&name).expect("it was just found");
            let at = if matches!(self.meter, Meter::Window { .. }) {
                end - 1
            } else {
                end
            };
            self.meter.charge(row.units, at);
        }
    }

    /// Runs a call at `now`, with a message and perhaps an acquisition.
    pub(super) fn call(
        &mut self,
        message: Option<&NodeMessage>,
        cost: u64,
        now: u64,
    ) -> (bool, Option<NodeReply>) {
        self.end_rows(now);
        let status = message.map(|message| self.begin(message, now));
        let fits = cost + self.held() <= self.meter.available(now);
        if fits && cost > 0 {
            self.meter.charge(cost, now);
        }
        let reply = message.zip(status).map(|(message, (status, repeats))| {
            let asked = (status != RowStatus::Stale && !repeats).then_some(message);
            let pause = asked.map(|message| self.grant(message, status, now));
            let row = self.rows.get(&message.name);
            let row = row.filter(|_| status != RowStatus::Stale);
            let others = self.held() - row.map_or(0, |row| row.units);
            NodeReply {
                status,
                units: row.map_or(0, |row| row.units) as u32,
                ttl: Duration::from_micros(row.map_or(0, |row| row.end - now)),
                pause: pause.unwrap_or_default(),
                others,
                hold: Duration::from_millis(20),
            }
        });
        assert!(self.held() <= self.meter.available(now), "I1: {self:?}");
        (fits, reply)
    }

    /// The status of a message, and whether it repeats the last one.
    fn begin(&mut self, message: &NodeMessage, now: u64) -> (RowStatus, bool) {
        let Some(row) = self.rows.get_mut(&message.name) else {
            return (RowStatus::New, false);
        };
        if row.seq == message.seq {
            let status = if row.born {
                RowStatus::New
            } else {
                RowStatus::Known
            };
            return (status, true);
        }
        if row.seq + 1 != message.seq {
            return (RowStatus::Stale, false);
        }
        // A message that is executed once more when its row has ended makes another row, which may
        // reserve less than the next message reports.
        let [spent, back, ..] = message.report.numbers().map(u64::from);
        let spent = row.units.min(spent);
        row.units = (row.units - spent).saturating_sub(back);
        (row.seq, row.born) = (message.seq, false);
        self.meter.charge(spent, now);
        (RowStatus::Known, false)
    }

    fn grant(&mut self, message: &NodeMessage, status: RowStatus, now: u64) -> Duration {
        let free = self.meter.available(now) - self.held();
        let others = self.rows.iter().filter(|(name, _)| **name != message.name);
        let others: u64 = others.map(|(_, row)| row.demand).sum();
        let [_, _, want, demand] = message.report.numbers().map(u64::from);
        let share = free * demand / (others + demand).max(1);
        let grant = Some(share.min(want)).filter(|grant| *grant >= 2);
        let grant = grant.unwrap_or(0);
        let length = message.length.as_micros() as u64;
        let end = self.meter.end(now, length);
        let row = self.rows.entry(message.name).or_insert(Row {
            seq: message.seq,
            born: status == RowStatus::New,
            units: 0,
            demand,
            end,
        });
        row.units += grant;
        (row.seq, row.demand, row.end) = (message.seq, demand, end);
        let is_scarce = others + demand > free && grant < want;
        if is_scarce {
            message.length / 50
        } else {
            Duration::ZERO
        }
    }
}
