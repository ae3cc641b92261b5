//! Messages about leases: what a node reports with a call, and the store's reply.

use std::time::Duration;

/// The most rows of a subject, one for each node that holds or requests units.
pub(crate) const MOST_ROWS: usize = 1_024;

/// The most slots of a subject that has leases: a row has one bit for each.
pub(crate) const MOST_LEASED_SLOTS: usize = 8;

/// The longest lease. A row that ends later was written before the clock stepped back.
pub(crate) const LONGEST_LEASE: Duration = Duration::from_secs(60);

/// The largest number of a message.
pub(crate) const LAST_MESSAGE: u32 = (1 << 31) - 1;

/// A node's message about its units of one subject, with the operations of a [`StoreCall`](crate::StoreCall)
/// or alone.
///
/// The store applies the report first, then does the operations of the call, then grants units.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "hidden: made by nodes and tests")]
pub struct NodeMessage {
    /// The name of the node's row: random bytes. A node takes another name after
    /// [`RowStatus::Stale`], and after message 2^31 - 1.
    pub name: [u8; 8],
    /// The number of the message, one more than that of the previous one; at most 2^31 - 1.
    pub seq: u32,
    /// How long the row lasts from this call on, at most a minute.
    pub length: Duration,
    /// The units, by the mode of the node.
    pub report: NodeReport,
}

/// The units that a message reports and requests.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "hidden: made by nodes and tests")]
pub enum NodeReport {
    /// Leased mode. The report takes effect once: a node numbers its messages, has one under way
    /// for a subject, and repeats it, with all its numbers, until the store replies.
    Lease {
        /// Units spent since the previous message. The store charges them now.
        spent: u32,
        /// Units that the node returns.
        back: u32,
        /// Units that the node requests, beyond those that it keeps.
        want: u32,
        /// Units that the node could spend in the time ahead. The store grants in proportion.
        demand: u32,
    },
    /// Eventual mode: nothing is leased. The store charges what it has not counted yet, even beyond
    /// the limit. The row keeps what was counted, so that no order and no number of messages
    /// counts a unit twice.
    Eventual {
        /// All units spent under this name.
        total: u32,
        /// The units of `total` that the store has confirmed.
        counted: u32,
    },
}

/// Whether the store knew the row of a message.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "hidden: read by nodes and tests")]
pub enum RowStatus {
    /// The store did not know it: the earlier row has ended, and all its units count as spent,
    /// those spent since the last message included. `spent` and `back` had no effect.
    New,
    /// The store knew it: `spent` and `back` have taken effect, by this message or by one that this
    /// repeats.
    Known,
    /// The message is neither the next one nor a repeat, and had no effect. The node drops its
    /// lease, which ends by itself, and takes another name.
    Stale,
}

/// The store's reply to a [`NodeMessage`].
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "hidden: made by nodes and tests")]
pub struct NodeReply {
    /// Whether the store knew the row.
    pub status: RowStatus,
    /// In leased mode all units that the row reserves now, those spent since the message left
    /// included. If the node has spent more than that since, a late copy of an earlier message has
    /// made another row, and the earlier one counts as spent, as after [`RowStatus::New`]. In
    /// eventual mode the units that the store has counted.
    pub units: u32,
    /// The time until the row ends, from the store's time of the call on.
    pub ttl: Duration,
    /// How long the node requests no more units. Zero unless the nodes want more than there is and
    /// this one got less than it wanted.
    pub pause: Duration,
    /// Units that other nodes' rows reserve. With any, a denial's `retry_after` is the latest time
    /// at which the cost fits: it may fit earlier.
    pub others: u64,
    /// How long the node caches a denial at most while there are `others`: the pause under
    /// scarcity.
    pub hold: Duration,
}

impl NodeReply {
    /// The time until the row ends, and with it the window that it is in.
    pub(crate) const fn until_end(&self) -> Duration {
        // Zero stands for no row.
        if self.ttl.is_zero() {
            Duration::MAX
        } else {
            self.ttl
        }
    }
}

impl NodeReport {
    /// The numbers of the report, in the order of the script's arguments.
    pub(crate) const fn numbers(&self) -> [u32; 4] {
        match *self {
            Self::Lease {
                spent,
                back,
                want,
                demand,
            } => [spent, back, want, demand],
            Self::Eventual { total, counted } => [total, counted, 0, 0],
        }
    }
}

impl NodeReply {
    /// The length of the reply to a message, in bytes, at the end of the reply to a call.
    const BYTES: usize = 6 * 8;

    /// Splits the reply to a call with a message into the part of the operations and the reply to
    /// the message; `None` for bytes that no store sends.
    pub fn split(reply: &[u8]) -> Option<(&[u8], Self)> {
        let at = reply.len().checked_sub(Self::BYTES)?;
        let (ops, numbers) = reply.split_at(at);
        let (numbers, _) = numbers.as_chunks::<8>();
        let number = |at: usize| u64::from_be_bytes(numbers[at]);
        let micros = |at: usize| Duration::from_micros(number(at));
        let status = match number(0) {
            0 => RowStatus::New,
            1 => RowStatus::Known,
            2 => RowStatus::Stale,
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

/// The most units that operations take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Takes {
    pub(crate) units: u64,
    /// The largest cost that is charged in full or not at all.
    pub(crate) largest: u64,
}

impl Takes {
    pub(crate) const NONE: Self = Self {
        units: 0,
        largest: 0,
    };

    /// The most units of both together.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            units: self.units.saturating_add(other.units),
            largest: self.largest.max(other.largest),
        }
    }
}
