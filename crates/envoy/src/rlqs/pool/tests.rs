//! Rows that pass from an ended stream to the next one of the client, and pools as bytes.

use std::{num::NonZeroU64, time::Duration};

use super::{Pool, RowId, StoredPool};
use crate::rlqs::row::{CUT_DELAY, ClientId, DivisibleRate, Row, Share};

const SECOND: Duration = Duration::from_secs(1);
const TTL: Duration = Duration::from_secs(15);

const FIRST: RowId = RowId(1);
const NEXT: RowId = RowId(2);

fn client(name: u64) -> Option<ClientId> {
    NonZeroU64::new(name).map(ClientId)
}

/// A pool whose rate is all the first row's, and that share.
fn used_up() -> (Pool, Share) {
    let rate = DivisibleRate::of_second(100).expect("a rate");
    let mut pool = Pool::new(rate, TTL, Duration::ZERO);
    assert_eq!(pool.report(SECOND, (FIRST, client(1)), 1), None);
    let [(FIRST, share)] = pool.messages(SECOND)[..] else {
        panic!("no share");
    };
    assert_eq!((share.tokens, share.size), (5_400, 8));
    (pool, share)
}

#[test]
fn a_row_passes_to_the_next_stream_of_its_client() {
    let (mut pool, share) = used_up();
    pool.leave(2 * SECOND, FIRST);
    let taken = pool.report(3 * SECOND, (NEXT, client(1)), 1);
    assert_eq!(taken, Some(FIRST));
    assert_eq!(pool.messages(3 * SECOND), [(NEXT, share)]);
}

#[test]
fn a_row_does_not_pass_to_others() {
    for other in [client(2), None] {
        let (mut pool, _) = used_up();
        pool.leave(2 * SECOND, FIRST);
        assert_eq!(pool.report(3 * SECOND, (NEXT, other), 1), None);
        assert_eq!(pool.messages(3 * SECOND), [], "nothing is free");
    }
}

#[test]
fn a_row_passes_when_its_reports_are_missing() {
    let (mut pool, share) = used_up();
    // A client may have several streams.
    assert_eq!(pool.report(6 * SECOND, (NEXT, client(1)), 1), None);
    let cut = Share {
        tokens: share.tokens / 2,
        size: share.size / 2,
    };
    assert_eq!(
        pool.messages(6 * SECOND),
        [(FIRST, cut)],
        "its stream is open"
    );
    let taken = pool.report(11 * SECOND, (NEXT, client(1)), 1);
    assert_eq!(taken, Some(FIRST));
    assert_eq!(pool.messages(11 * SECOND), [(NEXT, cut)]);
}

#[test]
fn a_row_does_not_pass_after_its_end() {
    let (mut pool, _) = used_up();
    pool.leave(2 * SECOND, FIRST);
    assert_eq!(pool.report(19 * SECOND, (NEXT, client(1)), 1), None);
}

/// The client may be another process.
#[test]
fn the_first_message_to_a_new_stream_takes_a_full_bucket_from_the_pool() {
    let (mut pool, share) = used_up();
    assert_eq!(pool.level, 2 * super::NANO);
    for (number, stream) in (2..5).map(RowId).enumerate() {
        let now = SECOND * (2 + number as u32);
        pool.leave(now, RowId(stream.0 - 1));
        assert!(pool.report(now, (stream, client(1)), 1).is_some());
        assert_eq!(pool.messages(now), [(stream, share)]);
        assert_eq!(pool.level, 0);
    }
    assert_eq!(pool.lacked, 6 + 8 + 8);
}

fn stored() -> StoredPool {
    let (mut pool, _) = used_up();
    pool.report(2 * SECOND, (NEXT, client(2)), 3);
    assert_eq!(pool.messages(2 * SECOND).len(), 1, "a cut");
    StoredPool {
        birth: 5,
        writes: 6,
        pool,
    }
}

#[test]
fn a_pool_survives_its_bytes() {
    let before = stored();
    let now = 2 * SECOND;
    let read = StoredPool::read(&before.to_bytes(), TTL, now).expect("a pool");
    assert_eq!(read.to_bytes(), before.to_bytes());
    assert_eq!((read.birth, read.writes), (5, 6));
    let mut pools = [before.pool, read.pool];
    for now in (3..30).map(|seconds| SECOND * seconds) {
        let [before, read] = pools.each_mut().map(|pool| {
            pool.report(now, (NEXT, client(2)), 1_000);
            pool.messages(now)
        });
        assert_eq!(before, read);
    }
}

#[test]
fn a_pool_of_the_future_is_of_now() {
    let mut before = stored();
    before.pool.close(2 * SECOND);
    let read = StoredPool::read(&before.to_bytes(), TTL, SECOND).expect("a pool");
    assert_eq!(read.pool.at, SECOND);
    assert_eq!(read.pool.closed_until, SECOND + TTL + CUT_DELAY);
    let with_shares = |(_, row): &(_, &Row)| row.share.is_some();
    let mut rows = read.pool.rows().filter(with_shares);
    assert!(rows.all(|(_, row)| row.sent_at == SECOND));
}

#[test]
fn damaged_bytes_are_refused_or_harmless() {
    let bytes = stored().to_bytes();
    let now = 2 * SECOND;
    let mut refused = 0;
    for at in 0..bytes.len() {
        for byte in [0, 0x7f, 0xff, bytes[at] ^ 1] {
            let mut damaged = bytes.clone();
            damaged[at] = byte;
            for damaged in [&damaged, &bytes[..at]] {
                let Some(mut read) = StoredPool::read(damaged, TTL, now) else {
                    refused += 1;
                    continue;
                };
                read.pool.set_rate(read.pool.rate(), now);
                read.pool.report(now, (FIRST, client(1)), u64::MAX);
                read.pool.messages(now);
                read.pool.messages(now + TTL);
                read.to_bytes();
                read.lasts(now);
            }
        }
    }
    assert!(refused > bytes.len());
}

/// However long no call is about the pool.
#[test]
fn an_ended_share_is_free_from_its_end_on() {
    let (mut pool, share) = used_up();
    pool.leave(2 * SECOND, FIRST);
    pool.report(100 * SECOND, (NEXT, None), 1);
    assert_eq!(pool.messages(100 * SECOND), [(NEXT, share)]);
    assert_eq!(pool.level, 2 * super::NANO);
}
