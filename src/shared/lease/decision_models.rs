//! Model decisions: the quotas that many leases share, with one reference count each.

use std::sync::{Arc, Mutex};

use crate::{decision::Decision, lock::unpoisoned};

/// The most decisions that are searched: a limiter has few tiers, but each request may bring a quota.
const MOST: usize = 16;

/// One decision of each tier in recent use. A lease stores a reference to it, and numbers of its own.
#[derive(Debug, Default)]
pub(in crate::shared) struct DecisionModels(Mutex<Vec<Arc<Decision>>>);

impl DecisionModels {
    /// A decision by the quotas of `decision`.
    pub(in crate::shared) fn of(&self, decision: &Decision) -> Arc<Decision> {
        let mut models = unpoisoned(self.0.lock());
        if let Some(model) = models.iter().find(|model| model.is_alike(decision)) {
            return Arc::clone(model);
        }
        if models.len() == MOST {
            models.remove(0);
        }
        let model = Arc::new(decision.clone());
        models.push(Arc::clone(&model));
        model
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Key, LocalLimiter, Quota};

    #[test]
    fn decisions_by_equal_quotas_share_a_model() {
        let models = DecisionModels::default();
        let limiters = [1, 1, 2].map(|limit| LocalLimiter::new(Quota::per_day(limit)));
        let of =
            |limiter: &LocalLimiter, key: &str| models.of(&limiter.acquire(&Key::from(key), 1));
        let first = of(&limiters[0], "a");
        // A denial is by the same quota.
        assert!(Arc::ptr_eq(&first, &of(&limiters[0], "a")));
        assert!(Arc::ptr_eq(&first, &of(&limiters[1], "b")));
        assert!(!Arc::ptr_eq(&first, &of(&limiters[2], "a")));
    }

    #[test]
    fn number_of_models_is_bounded() {
        let models = DecisionModels::default();
        for limit in 1..=2 * MOST as u64 {
            let limiter = LocalLimiter::new(Quota::per_day(limit));
            models.of(&limiter.acquire(&Key::global(), 1));
        }
        assert_eq!(unpoisoned(models.0.lock()).len(), MOST);
    }
}
