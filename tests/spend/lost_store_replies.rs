//! Corrections whose answers are lost: the store may have made them.

use std::sync::atomic::{AtomicUsize, Ordering};

use testkit::limiter;
use tower_ratelimit::{
    AsyncLimiter, Decision, Global, Key, Limiter as _, LimiterError, LocalLimiter, RateLimitLayer,
    decision::{Op, Policy},
    spend::llm::Llm,
};

use crate::{
    streams::{quota, taken},
    test_responses::{chat, read, stream},
};

/// A limiter in a store that makes everything, and loses the first answers to refunds.
struct LosesAnswers {
    limiter: LocalLimiter,
    lost: AtomicUsize,
}

impl AsyncLimiter for LosesAnswers {
    async fn apply(&self, key: &Key, op: Op) -> Result<Decision, LimiterError> {
        let is_refund = matches!(op, Op::Settle(..));
        let decision = tower_ratelimit::Limiter::apply(&self.limiter, key, op).await?;
        let lose = |lost: usize| lost.checked_sub(1);
        let lost = &self.lost;
        if is_refund
            && lost
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, lose)
                .is_ok()
        {
            return Err(LimiterError::unavailable("the answer is lost"));
        }
        Ok(decision)
    }

    fn policies(&self) -> &[Policy] {
        self.limiter.policies()
    }
}

#[tokio::test]
async fn a_refund_whose_answer_is_lost_is_not_made_again_by_the_next_receipt() {
    for lost in [1, 2, 3] {
        let (limiter, _) = limiter(quota());
        let store = LosesAnswers {
            limiter: limiter.clone(),
            lost: AtomicUsize::new(lost),
        };
        let layer = RateLimitLayer::new(store, Global).spending(Llm::any());
        let layer = layer.reserve(100).step(50);
        // Steps charge 300 before the usage is reported.
        let response = stream(&layer, chat(130, Some((11, 254))));
        read(response.into_body());
        crate::streams::settle().await;
        assert_eq!(taken(&limiter), 265, "{lost} answers are lost");
    }
}
