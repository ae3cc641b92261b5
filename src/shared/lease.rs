//! Lease clauses: what a node tells and asks about its lease of a subject, and the store's answer.

use std::time::Duration;

/// The most rows, one for each node that holds or asks, that a subject may have.
#[allow(dead_code)]
pub(crate) const MOST_HOLDERS: usize = 1_024;

/// The most slots of a subject that has leases: a row has one bit for each.
#[allow(dead_code)]
pub(crate) const MOST_LEASED_SLOTS: usize = 8;

/// The longest lease. Rows that end later come from a clock that stepped back.
#[allow(dead_code)]
pub(crate) const LONGEST_LEASE: Duration = Duration::from_secs(60);

/// The largest number of a message.
#[allow(dead_code)]
pub(crate) const LAST_MESSAGE: u32 = (1 << 31) - 1;

/// What one node says about its lease of one subject, with a [`Call`](super::Call) or alone.
///
/// It takes effect once: a node numbers its messages, has one under way for a subject, and repeats
/// that, with all its numbers, until it is answered. First what was spent is charged and what is
/// given back is free; then the operations of the call are done; then units are granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "hidden: made by nodes and tests")]
pub struct LeaseClause {
    /// The holder: random bytes. A node takes another one after [`LeaseStatus::Stale`], and after
    /// message 2^31 - 1.
    pub name: [u8; 8],
    /// The number of the message, one more than that of the one before; at most 2^31 - 1.
    pub seq: u32,
    /// Units that were spent since the message before. They are charged now.
    pub spent: u32,
    /// Units that are given back.
    pub back: u32,
    /// The units that are asked for, beyond those that it keeps.
    pub want: u32,
    /// The units that it could spend in the time ahead: grants are shared in proportion.
    pub demand: u32,
    /// How long a lease lasts from this call on, at most a minute.
    pub length: Duration,
    /// Whether nothing was leased: `spent` is all that was spent under this name, `back` what the store
    /// is known to have counted of it, and the rest is charged, even beyond the limit. The name's row
    /// keeps what was counted, so that no order and no number of messages counts a unit twice.
    pub force: bool,
}

/// Whether the store knew the row that a clause is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "hidden: read by nodes and tests")]
pub enum LeaseStatus {
    /// It did not: what the holder had has ended, and was counted as spent in full. So what it has
    /// spent since the last message is counted, too; neither `spent` nor `back` took effect.
    New,
    /// It did: `spent` and `back` have taken effect, by this message or by one that this repeats.
    Known,
    /// The message is neither the next one nor a repeat, and took no effect. The holder has to
    /// drop what it has, which ends by itself, and to go on under another name.
    Stale,
}

/// The store's answer to a [`LeaseClause`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "hidden: made by nodes and tests")]
pub struct LeaseReply {
    /// Whether the row was known.
    pub status: LeaseStatus,
    /// All units that the row reserves now, those that the holder has spent since it sent the
    /// message included. Where the holder has spent more than that since, what it had has ended
    /// and was counted in full, as after [`LeaseStatus::New`]: a late copy of an earlier message
    /// had made another row before this message came.
    pub units: u32,
    /// The time until the row ends, from the store's time of the call on.
    pub ttl: Duration,
    /// How long the holder is to ask for no more, if there is less than all want and it did not
    /// get all that it asked for; zero otherwise.
    pub pause: Duration,
    /// Units that other holders' rows reserve. Where there are any, a denial's `retry_after` is the
    /// latest time at which the cost fits, and it may fit before.
    pub others: u64,
    /// How long a holder is to hold to a denial at most while there are `others`: the pause as it
    /// would be at scarcity.
    pub hold: Duration,
}

impl LeaseReply {
    /// The bytes of it at the end of a reply.
    #[allow(dead_code)]
    const BYTES: usize = 6 * 8;

    /// The numbers of it, as stores give them.
    pub(super) fn numbers(&self) -> [u64; 6] {
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let status = match self.status {
            LeaseStatus::New => 0,
            LeaseStatus::Known => 1,
            LeaseStatus::Stale => 2,
        };
        let units = u64::from(self.units);
        let [ttl, pause, hold] = [self.ttl, self.pause, self.hold].map(micros);
        [status, units, ttl, pause, self.others, hold]
    }

    /// The reply to the operations of a call that had a clause, and the answer to the clause; `None`
    /// for what no store says.
    #[must_use]
    pub fn split(reply: &[u8]) -> Option<(&[u8], Self)> {
        let at = reply.len().checked_sub(Self::BYTES)?;
        let (ops, numbers) = reply.split_at(at);
        let (numbers, _) = numbers.as_chunks::<8>();
        let number = |at: usize| u64::from_be_bytes(numbers[at]);
        let micros = |at: usize| Duration::from_micros(number(at));
        let status = match number(0) {
            0 => LeaseStatus::New,
            1 => LeaseStatus::Known,
            2 => LeaseStatus::Stale,
            _ => return None,
        };
        let reply = Self {
            status,
            units: u32::try_from(number(1)).ok()?,
            ttl: micros(2),
            pause: micros(3),
            others: number(4),
            hold: micros(5),
        };
        Some((ops, reply))
    }
}

/// The units that a question takes at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Takes {
    pub(super) units: u64,
    /// The largest cost that is taken whole or not at all.
    pub(super) largest: u64,
}

impl Takes {
    pub(super) const NONE: Self = Self {
        units: 0,
        largest: 0,
    };

    /// What both take.
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            units: self.units.saturating_add(other.units),
            largest: self.largest.max(other.largest),
        }
    }
}
