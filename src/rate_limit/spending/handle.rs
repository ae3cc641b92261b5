//! The handle for a handler that reports its units itself.

use std::{
    fmt, mem,
    sync::{Arc, Mutex},
};

use crate::{lock::unpoisoned, spend::Tokens};

/// The units of a response, for a handler that knows them: in the extensions of a request that a
/// [`SpendLayer`](super::SpendLayer) passes, and with axum an extractor.
///
/// Clones share the units. If a handler reports anything, the layer does not read the body. After the end of the body
/// [`add`](Self::add) charges at once.
///
/// ```
/// use axum::{Router, routing::post};
/// use tower_ratelimit::{Global, Quota, RateLimitLayer, rate_limit::Spent, spend::Tokens};
///
/// async fn work(spent: Spent) -> &'static str {
///     spent.add(&Tokens::output(37));
///     "done"
/// }
///
/// let nothing = |_: &http::response::Parts| None::<fn(&[u8], &mut Tokens)>;
/// let app: Router = Router::new()
///     .route("/work", post(work))
///     .layer(RateLimitLayer::new(Quota::per_minute(1_000), Global).spending(nothing));
/// ```
#[derive(Clone)]
pub struct Spent {
    state: Arc<Mutex<State>>,
}

/// Charges tokens after the end of the body.
type LateCharge = dyn Fn(&Tokens) + Send + Sync;

struct State {
    tokens: Tokens,
    is_used: bool,
    /// Set at the end of the body.
    late: Option<Arc<LateCharge>>,
}

impl Spent {
    pub(in crate::rate_limit) fn new(tokens: Tokens) -> Self {
        let state = State {
            tokens,
            is_used: false,
            late: None,
        };
        Self {
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// Adds tokens that the response has used.
    pub fn add(&self, tokens: &Tokens) {
        let late = {
            let state = &mut *unpoisoned(self.state.lock());
            if !mem::replace(&mut state.is_used, true) {
                // The estimates of the layer.
                state.tokens = Tokens::default();
            }
            state.tokens.add(tokens);
            state.late.clone()
        };
        if let Some(late) = late {
            late(tokens);
        }
    }

    /// Replaces the tokens that the response has used. After the end of the body it changes nothing.
    pub fn set(&self, tokens: Tokens) {
        let state = &mut *unpoisoned(self.state.lock());
        if state.late.is_none() {
            state.is_used = true;
            state.tokens = tokens;
        }
    }

    /// Sets the model that responds.
    pub fn model(&self, model: &str) {
        unpoisoned(self.state.lock()).tokens.set_model(model);
    }

    /// The tokens so far, read from the body or reported.
    #[must_use]
    pub fn so_far(&self) -> Tokens {
        unpoisoned(self.state.lock()).tokens.clone()
    }

    /// Whether a handler has a clone.
    pub(super) fn is_shared(&self) -> bool {
        Arc::strong_count(&self.state) > 1
    }

    /// Runs `read` with the tokens, unless a handler reports them. Returns the result of `then`, and whether a handler
    /// reports.
    pub(super) fn read<T>(
        &self,
        read: impl FnOnce(&mut Tokens),
        then: impl FnOnce(&Tokens) -> T,
    ) -> (T, bool) {
        let state = &mut *unpoisoned(self.state.lock());
        if !state.is_used {
            read(&mut state.tokens);
        }
        (then(&state.tokens), state.is_used)
    }

    /// Charges tokens by `late` from now on.
    pub(super) fn end(&self, late: Arc<LateCharge>) {
        unpoisoned(self.state.lock()).late = Some(late);
    }
}

impl fmt::Debug for Spent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Spent").field(&self.so_far()).finish()
    }
}
