//! Leases: permits that expire if the process that holds them dies.
//!
//! In: a key that needs a permit. Out: a `Lease` to hold, or a refusal. The server keeps a list of leases for each subject.
//!
//! 1. `leases.rs` names the lease, notes it in the registry of this process (`lease_registry.rs`), and calls the script
//!    `permit_leases.lua`, which drops expired leases of the subject and adds this one if it fits.
//! 2. One task (`lease_renewer.rs`) renews the leases in use: each after a third of its length, so two renewals may fail.
//! 3. A dropped lease wakes the task, which releases it. A release that fails is sent again. The drop itself never
//!    waits, so a lease may be dropped on any thread.
//! 4. The task ends when the registry is empty; the next lease starts another one. While the breaker is open it sends
//!    nothing that is due.
//!
//! Example: a process is killed with three permits of a key. Nobody renews them, so the server drops them when they expire,
//! at the next request for a permit of that key.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use siphasher::sip::SipHasher13;
use tokio::time::Instant;

pub(crate) use super::lease_renewer::Acquired;
use super::{lease_registry::LeaseName, lease_renewer::Renewer};
use tower_ratelimit_core::{hash_seed::keyed_hash, key::Key};
use tower_ratelimit_store::{
    error::{StoreError, StoreErrorKind},
    key_name,
    redis::store::redis_store::RedisStore,
};

/// The part of the key at the position of a rate limit's plan. It has six letters, a plan's has
/// four.
const PLAN_ID: &str = "leases";

#[derive(Clone)]
pub(crate) struct Leases(Arc<Inner>);

struct Inner {
    renewer: Arc<Renewer>,
    /// The common beginning of all subjects' keys.
    keyspace: String,
    names: SipHasher13,
    count: AtomicU64,
}

/// A lease of one request, acquired or not. Dropping it releases it, on any thread.
pub(crate) struct Lease {
    renewer: Arc<Renewer>,
    subject: Arc<str>,
    name: LeaseName,
}

impl Leases {
    /// Creates a limit of `limit` leases for each subject. A lease expires after `lease` unless it
    /// is renewed. Limits of one `name` on one server are counted together. Nodes of one simulation
    /// need a `seed` each.
    pub(crate) fn new(
        store: &RedisStore,
        name: &str,
        limit: u64,
        lease: Duration,
        seed: Option<u64>,
    ) -> Self {
        Self(Arc::new(Inner {
            keyspace: key_name::keyspace(store.prefix(), name, PLAN_ID),
            renewer: Arc::new(Renewer::new(store.clone(), limit, lease)),
            names: keyed_hash(seed),
            count: AtomicU64::new(0),
        }))
    }

    /// Returns the error with which a call about this key would fail at once, if any.
    pub(crate) fn refusal(&self, key: &Key) -> Option<StoreError> {
        let subject = key_name::of_subject(&self.0.keyspace, key);
        self.0.renewer.store.refusal(subject.as_bytes())
    }

    /// Records that a decision was made without the server, because of this error.
    pub(crate) fn record_degraded(&self, error: &StoreError) {
        self.0.renewer.store.record_degraded(error);
    }

    pub(crate) fn lease(&self, key: &Key) -> Lease {
        let inner = &*self.0;
        let number = inner.count.fetch_add(1, Ordering::Relaxed);
        // 64 random bits: two equal names among millions of leases of one subject are unlikely.
        let name = inner.names.hash(&number.to_ne_bytes());
        let lease = Lease {
            renewer: Arc::clone(&inner.renewer),
            subject: key_name::of_subject(&inner.keyspace, key).into(),
            name: name.to_be_bytes(),
        };
        let mut registry = inner.renewer.registry();
        registry.begin(lease.name, &lease.subject);
        lease
    }
}

impl Lease {
    /// Acquires the lease, if fewer than `part` of the limit's leases are held.
    ///
    /// After an error, and when the future is dropped, the server may have granted it all the same.
    pub(crate) async fn acquire(&self, part: u64) -> Result<Acquired, StoreError> {
        self.renewer.registry().set_requested(self.name, true);
        let requested_at = Instant::now();
        let answer = self.renewer.acquire(&self.subject, self.name, part).await;
        match &answer {
            Ok(Acquired::Granted(_)) => self.renew_at(self.renewer.renewal(requested_at)),
            Ok(Acquired::Refused { .. }) => self.renewer.registry().remove(self.name),
            Err(error) if may_have_run(error.kind()) => {}
            Err(_) => self.renewer.registry().set_requested(self.name, false),
        }
        answer
    }

    /// Keeps the lease although the server has not granted it. The next renewal reports it.
    pub(crate) fn hold(&self) {
        self.renew_at(Instant::now().into_std());
    }

    fn renew_at(&self, at: std::time::Instant) {
        self.renewer.registry().hold(self.name, at);
        self.renewer.keep();
    }
}

/// Whether the server may have run a call that failed with this error. Errors of all other kinds
/// mean that it has not.
const fn may_have_run(kind: StoreErrorKind) -> bool {
    matches!(
        kind,
        StoreErrorKind::Timeout | StoreErrorKind::Disconnected | StoreErrorKind::Other
    )
}

impl Drop for Lease {
    fn drop(&mut self) {
        let now = Instant::now().into_std();
        let is_dropped = self.renewer.registry().drop_lease(self.name, now);
        if is_dropped {
            self.renewer.wake();
            self.renewer.keep();
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").finish_non_exhaustive()
    }
}

impl fmt::Debug for Leases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leases")
            .field("keyspace", &self.0.keyspace)
            .finish_non_exhaustive()
    }
}
