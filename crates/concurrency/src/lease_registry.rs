//! The registry of this process's leases, and the steps that are due for them.

use std::{
    collections::BTreeMap,
    mem,
    sync::Arc,
    time::{Duration, Instant},
};

/// The most steps of one call, so that it does not block the server for long.
const MAX_STEPS_PER_CALL: usize = 256;

/// Identifies a lease among all leases of one subject, on all nodes.
pub(super) type LeaseName = [u8; 8];

#[derive(Debug, Default)]
pub(super) struct Registry {
    /// All leases, renewed in the order of their names.
    leases: BTreeMap<LeaseName, LeaseRecord>,
    /// Leases to release at once.
    dropped: Vec<Dropped>,
    /// Leases whose release failed; released again when the server works.
    unreleased: Vec<Dropped>,
    /// Releases that the task has taken out. They may not have been sent yet.
    releasing: Vec<(Arc<str>, LeaseName)>,
}

#[derive(Debug)]
struct LeaseRecord {
    subject: Arc<str>,
    is_requested: bool,
    /// The time of the next renewal; `None` until the lease's request runs.
    renew_at: Option<Instant>,
    is_renewing: bool,
}

/// A lease whose request has ended.
#[derive(Debug)]
pub(super) struct Dropped {
    subject: Arc<str>,
    pub(super) name: LeaseName,
    dropped_at: Instant,
}

/// The steps of one call: renewals or releases of one subject's leases.
#[derive(Debug)]
pub(super) struct LeaseBatch {
    pub(super) subject: Arc<str>,
    pub(super) steps: Vec<Step>,
}

#[derive(Debug, Default)]
pub(super) struct Due {
    pub(super) renewals: Vec<LeaseBatch>,
    pub(super) releases: Vec<LeaseBatch>,
}

#[derive(Debug)]
pub(super) enum Step {
    Renew(LeaseName),
    Release(Dropped),
}

impl Registry {
    pub(super) fn begin(&mut self, name: LeaseName, subject: &Arc<str>) {
        let entry = LeaseRecord {
            subject: Arc::clone(subject),
            is_requested: false,
            renew_at: None,
            is_renewing: false,
        };
        self.leases.insert(name, entry);
    }

    /// Records whether the server may have the lease: from the call on it may, after a refusal it
    /// does not.
    pub(super) fn set_requested(&mut self, name: LeaseName, is_requested: bool) {
        if let Some(entry) = self.leases.get_mut(&name) {
            entry.is_requested = is_requested;
        }
    }

    /// Starts renewals: the lease's request runs.
    pub(super) fn hold(&mut self, name: LeaseName, renew_at: Instant) {
        if let Some(entry) = self.leases.get_mut(&name) {
            entry.renew_at = Some(renew_at);
            entry.is_renewing = false;
        }
    }

    /// Removes a lease that the server did not grant.
    pub(super) fn remove(&mut self, name: LeaseName) {
        self.leases.remove(&name);
    }

    /// Ends a lease whose request is over. Returns whether there is a release to send: the server
    /// cannot have a lease that no call was sent for.
    pub(super) fn drop_lease(&mut self, name: LeaseName, dropped_at: Instant) -> bool {
        let entry = self.leases.remove(&name);
        let Some(entry) = entry.filter(|entry| entry.is_requested) else {
            return false;
        };
        self.dropped.push(Dropped {
            subject: entry.subject,
            name,
            dropped_at,
        });
        true
    }

    pub(super) fn is_empty(&self) -> bool {
        self.leases.is_empty() && self.dropped.is_empty() && self.unreleased.is_empty()
    }

    pub(super) fn releases(&mut self) -> Vec<LeaseBatch> {
        let dropped = mem::take(&mut self.dropped);
        self.release(dropped)
    }

    fn release(&mut self, dropped: Vec<Dropped>) -> Vec<LeaseBatch> {
        let names = dropped
            .iter()
            .map(|dropped| (Arc::clone(&dropped.subject), dropped.name));
        self.releasing.extend(names);
        let steps = dropped.into_iter();
        batches(steps.map(|dropped| (Arc::clone(&dropped.subject), Step::Release(dropped))))
    }

    /// Takes the releases of one subject, for a call that acquires another lease of it. So a
    /// request can use the permits that earlier ones have released.
    pub(super) fn releases_of(&mut self, subject: &Arc<str>) -> LeaseBatch {
        let own = |dropped: &mut Dropped| dropped.subject == *subject;
        let released = self.dropped.extract_if(.., own).take(MAX_STEPS_PER_CALL);
        LeaseBatch {
            subject: Arc::clone(subject),
            steps: released.map(Step::Release).collect(),
        }
    }

    /// Returns the releases of one subject that the task is sending. A call that acquires another
    /// lease repeats them, since it may overtake the task's call. A repeated release has no effect.
    pub(super) fn releasing(&self, subject: &Arc<str>) -> Vec<LeaseName> {
        let own = self.releasing.iter().filter(|(of, _)| of == subject);
        own.map(|(_, name)| *name)
            .take(MAX_STEPS_PER_CALL)
            .collect()
    }

    /// Drops releases that kept failing for the length of a `lease`: those leases have expired.
    pub(super) fn drop_expired(&mut self, now: Instant, lease: Duration) {
        self.unreleased
            .retain(|dropped| now.duration_since(dropped.dropped_at) <= lease);
    }

    /// Takes all steps that are due at `now`: renewals, failed releases, and new releases.
    pub(super) fn due(&mut self, now: Instant) -> Due {
        let mut dropped = mem::take(&mut self.dropped);
        dropped.append(&mut self.unreleased);
        let releases = self.release(dropped);
        let renewals = self.leases.iter_mut().filter_map(|(name, entry)| {
            entry.renew_at.filter(|at| *at <= now)?;
            if entry.is_renewing {
                return None;
            }
            entry.is_requested = true;
            entry.is_renewing = true;
            Some((Arc::clone(&entry.subject), Step::Renew(*name)))
        });
        Due {
            renewals: batches(renewals),
            releases,
        }
    }

    pub(super) fn done(&mut self, batch: &LeaseBatch, renew_at: Instant) {
        for step in &batch.steps {
            if let Step::Renew(name) = step {
                self.hold(*name, renew_at);
            }
        }
    }

    /// Records that a batch has ended, whether or not the server has done it.
    pub(super) fn ended(&mut self, batch: &LeaseBatch) {
        for step in &batch.steps {
            if let Step::Release(dropped) = step {
                self.releasing.retain(|(_, name)| *name != dropped.name);
            }
        }
    }

    /// Records that a batch failed: the server may not have done it.
    pub(super) fn failed(&mut self, batch: LeaseBatch) {
        self.ended(&batch);
        for step in batch.steps {
            match step {
                Step::Release(dropped) => self.unreleased.push(dropped),
                Step::Renew(name) => {
                    if let Some(entry) = self.leases.get_mut(&name) {
                        entry.is_renewing = false;
                    }
                }
            }
        }
    }
}

fn batches(steps: impl Iterator<Item = (Arc<str>, Step)>) -> Vec<LeaseBatch> {
    let mut open: BTreeMap<Arc<str>, Vec<Step>> = BTreeMap::new();
    let mut batches = Vec::new();
    for (subject, step) in steps {
        let steps = open.entry(Arc::clone(&subject)).or_default();
        steps.push(step);
        if steps.len() == MAX_STEPS_PER_CALL {
            let steps = mem::take(steps);
            batches.push(LeaseBatch { subject, steps });
        }
    }
    let rest = open.into_iter().filter(|(_, steps)| !steps.is_empty());
    batches.extend(rest.map(|(subject, steps)| LeaseBatch { subject, steps }));
    batches
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(3);

    fn held(registry: &mut Registry, name: u8, subject: &str, renew_at: Instant) -> LeaseName {
        let name = [name; 8];
        registry.begin(name, &Arc::from(subject));
        registry.set_requested(name, true);
        registry.hold(name, renew_at);
        name
    }

    #[test]
    fn renewals_are_in_the_order_of_names() {
        let (mut registry, now) = (Registry::default(), Instant::now());
        for name in [7, 1, 200, 3, 40] {
            let subject = if name % 2 == 0 { "even" } else { "odd" };
            held(&mut registry, name, subject, now);
        }
        let due = registry.due(now);
        let names = |batch: &LeaseBatch| -> Vec<u8> {
            let name = |step: &Step| match step {
                Step::Renew(name) => name[0],
                Step::Release(dropped) => dropped.name[0],
            };
            batch.steps.iter().map(name).collect()
        };
        let order: Vec<_> = due.renewals.iter().map(names).collect();
        assert_eq!(order, [vec![40, 200], vec![1, 3, 7]]);
    }

    #[test]
    fn a_lease_that_was_never_requested_is_not_released() {
        let mut registry = Registry::default();
        for name in [[1; 8], [2; 8]] {
            registry.begin(name, &Arc::from("a"));
        }
        registry.set_requested([2; 8], true);
        registry.set_requested([2; 8], false);
        assert!(!registry.drop_lease([1; 8], Instant::now()));
        assert!(!registry.drop_lease([2; 8], Instant::now()));
        assert!(registry.releases().is_empty());
        assert!(registry.is_empty());
    }

    #[test]
    fn a_lease_is_renewed_when_due_while_its_request_runs() {
        let mut registry = Registry::default();
        let start = Instant::now();
        registry.begin([1; 8], &Arc::from("a"));
        let name = held(&mut registry, 2, "a", start + LEASE / 3);
        assert!(registry.due(start).renewals.is_empty());
        let due = registry.due(start + LEASE / 3).renewals;
        assert!(
            matches!(&due[..], [batch] if matches!(batch.steps[..], [Step::Renew(it)] if it == name))
        );

        registry.done(&due[0], start + LEASE);
        assert!(registry.due(start + LEASE / 2).renewals.is_empty());
        assert!(registry.drop_lease(name, start));
        assert!(matches!(
            registry.releases()[0].steps[..],
            [Step::Release(_)]
        ));
        let due = registry.due(start + LEASE);
        assert!(due.renewals.is_empty() && due.releases.is_empty());
    }

    #[test]
    fn a_renewal_is_repeated_only_after_it_has_failed() {
        let mut registry = Registry::default();
        let start = Instant::now();
        held(&mut registry, 1, "a", start);
        let due = registry.due(start).renewals;
        assert_eq!(due.len(), 1);
        let again = registry.due(start + LEASE);
        assert!(again.renewals.is_empty(), "it is under way");
        due.into_iter().for_each(|batch| registry.failed(batch));
        assert_eq!(registry.due(start).renewals.len(), 1);
    }

    #[test]
    fn a_failed_release_is_repeated_until_the_lease_has_expired() {
        let mut registry = Registry::default();
        let start = Instant::now();
        let name = held(&mut registry, 1, "a", start);
        assert!(registry.drop_lease(name, start));
        for _ in 0..3 {
            registry.drop_expired(start + LEASE, LEASE);
            let due = registry.due(start + LEASE).releases;
            assert_eq!(due.len(), 1);
            due.into_iter().for_each(|batch| registry.failed(batch));
            assert!(registry.releases().is_empty(), "not at once");
            assert!(!registry.is_empty());
        }
        registry.drop_expired(start + LEASE * 2, LEASE);
        assert!(registry.due(start + LEASE * 2).releases.is_empty());
        assert!(registry.is_empty());
    }

    #[test]
    fn batches_have_one_subject_and_a_bounded_length() {
        let mut registry = Registry::default();
        let now = Instant::now();
        for number in 0..600_u64 {
            let subject = if number < 590 { "hot" } else { "cold" };
            registry.begin(number.to_be_bytes(), &Arc::from(subject));
            registry.set_requested(number.to_be_bytes(), true);
            registry.drop_lease(number.to_be_bytes(), now);
        }
        let batches = registry.releases();
        let mut lengths: Vec<_> = batches
            .iter()
            .map(|batch| (&*batch.subject, batch.steps.len()))
            .collect();
        lengths.sort_unstable();
        assert_eq!(
            lengths,
            [("cold", 10), ("hot", 78), ("hot", 256), ("hot", 256)]
        );
    }

    /// The task's call is in flight, or has not been sent yet.
    #[test]
    fn a_release_in_flight_is_repeated_by_a_call_that_may_overtake_it() {
        let (mut registry, now) = (Registry::default(), Instant::now());
        let subject: Arc<str> = Arc::from("a");
        let [one, other] = [1, 2].map(|name| held(&mut registry, name, "a", now + LEASE));
        registry.drop_lease(one, now);
        let in_flight = registry.releases();
        registry.drop_lease(other, now);
        assert_eq!(registry.releases_of(&subject).steps.len(), 1);
        assert_eq!(registry.releasing(&subject), [one]);
        assert!(registry.releasing(&Arc::from("b")).is_empty());
        in_flight
            .into_iter()
            .for_each(|batch| registry.failed(batch));
        assert!(registry.releasing(&subject).is_empty());
        let due = registry.due(now).releases;
        assert_eq!(registry.releasing(&subject), [one]);
        due.iter().for_each(|batch| registry.ended(batch));
        assert!(registry.releasing(&subject).is_empty());
    }
}
