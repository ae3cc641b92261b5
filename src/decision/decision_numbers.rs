//! The numbers of a decision apart from its quotas, for tables of many decisions by the same quotas.

use super::{
    Decision,
    quota_status_without_name::{Marks, Status},
    usage::{Counted, Level, Stepped, Usage, WindowUsage},
};
use crate::{clock::Timestamp, quota::Priority};

/// The numbers in which decisions by the same quotas differ, without waits, charges and outcomes.
#[derive(Debug)]
pub(crate) struct DecisionNumbers {
    usages: Usages,
    decided_at: Timestamp,
}

/// The usage of each quota. One quota, the usual case, needs no allocation. Its marks are in each
/// variant, so that they take the room next to the discriminant.
#[derive(Debug)]
enum Usages {
    Level(Level, Marks),
    Stepped(Stepped, Priority, Marks),
    Window(WindowUsage, Marks),
    Counted(Counted, u32, Marks),
    Several(Box<[(Usage, Marks)]>),
}

impl DecisionNumbers {
    pub(crate) const fn decided_at(&self) -> Timestamp {
        self.decided_at
    }
}

impl Usages {
    fn of(statuses: &[Status]) -> Self {
        let [one] = statuses else {
            return Self::Several(statuses.iter().map(Status::measured_numbers).collect());
        };
        match one.measured_numbers() {
            (Usage::Level(level), marks) => Self::Level(level, marks),
            (Usage::Stepped(stepped, class), marks) => Self::Stepped(stepped, class, marks),
            (Usage::Window(window), marks) => Self::Window(window, marks),
            (Usage::Counted(counted, limit), marks) => Self::Counted(counted, limit, marks),
        }
    }

    fn write_to(&self, statuses: &mut [Status]) {
        let (usage, marks) = match self {
            Self::Level(level, marks) => (Usage::Level(*level), *marks),
            Self::Stepped(stepped, class, marks) => (Usage::Stepped(*stepped, *class), *marks),
            Self::Window(window, marks) => (Usage::Window(*window), *marks),
            Self::Counted(counted, limit, marks) => (Usage::Counted(*counted, *limit), *marks),
            Self::Several(usages) => {
                let both = statuses.iter_mut().zip(usages);
                both.for_each(|(status, (usage, marks))| status.set_measured(*usage, *marks));
                return;
            }
        };
        if let [one] = statuses {
            one.set_measured(usage, marks);
        }
    }
}

impl Decision {
    pub(crate) fn numbers(&self) -> DecisionNumbers {
        DecisionNumbers {
            usages: Usages::of(self.statuses()),
            decided_at: self.charged_at,
        }
    }

    /// This decision with the numbers of one [alike](Self::is_alike).
    pub(crate) fn with_numbers(&self, numbers: &DecisionNumbers) -> Self {
        let mut decision = self.clone();
        decision.charged_at = numbers.decided_at;
        numbers.usages.write_to(decision.quotas.as_mut_slice());
        decision
    }

    /// Whether both decisions are by the same quotas of the same tier.
    pub(crate) fn is_alike(&self, other: &Self) -> bool {
        self.tier == other.tier && self.quotas.are_by_quotas_of(&other.quotas)
    }
}

#[cfg(test)]
mod tests {
    use super::DecisionNumbers;
    use crate::{Key, LocalLimiter, Quota};

    #[test]
    fn numbers_take_forty_bytes() {
        assert_eq!(size_of::<DecisionNumbers>(), 40);
    }

    #[test]
    fn numbers_of_any_quota_restore_the_decision() {
        let day = Quota::per_day(10);
        let stepped = day
            .refill_every(std::time::Duration::from_secs(8_640))
            .named("stepped");
        let windows = [day.fixed_window(), day.sliding_window(), day.sliding_log()];
        for quotas in [vec![day], vec![stepped], vec![day, stepped]]
            .into_iter()
            .chain(windows.map(|window| vec![window]))
        {
            let limiter = LocalLimiter::new(quotas);
            let [first, later] = [1, 3].map(|cost| limiter.acquire(&Key::from("a"), cost));
            assert!(first.is_alike(&later) && first != later);
            let mut restored = first.with_numbers(&later.numbers());
            restored.charged = later.charged;
            assert_eq!(restored, later);
        }
    }
}
