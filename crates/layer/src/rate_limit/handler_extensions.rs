//! The extensions of a request, for handlers: the decisions that passed it, and the units of its response.

use std::{
    fmt, mem,
    sync::{Arc, Mutex},
};

use http::Extensions;

use super::spend_balance::Upload;
use tower_ratelimit_core::{
    decision::{Decision, Receipt},
    key::Key,
    limiter::Charge,
    lock::unpoisoned,
    reject::AnswerStyle,
    small_list::SmallList,
    used_tokens::Tokens,
};

/// The decisions of all layers with [`expose_decision`](crate::rate_limit::layer::RateLimitLayer::expose_decision) that
/// a request has passed, and the denials of layers that let it [overflow](crate::rate_limit::layer::RateLimitLayer::overflow), the
/// outermost first; in the request's extensions, and with axum an
/// extractor.
///
/// The extensions have the innermost one as a [`Decision`], too. A handler that calls a limiter for the
/// [key](Exposed::key) itself responds to a denial as the layer would, see
/// [`Denial`](tower_ratelimit_core::reject::Denial).
///
/// ```
/// use axum::{Router, routing::get};
/// use tower_ratelimit::{Global, PeerIp, Quota, RateLimitLayer, rate_limit::Decisions};
///
/// async fn left(decisions: Decisions) -> String {
///     let left = decisions.iter().map(|exposed| {
///         let quota = exposed.decision().binding();
///         format!("{}: {:?}\n", quota.name(), quota.remaining())
///     });
///     left.collect()
/// }
///
/// let everybody = Quota::per_second(1_000).named("everybody");
/// let each = Quota::per_second(10).named("each");
/// let app: Router = Router::new()
///     .route("/left", get(left))
///     .layer(RateLimitLayer::new(everybody, Global).expose_decision(true))
///     // Outside, so that what it denies takes nothing from everybody.
///     .layer(RateLimitLayer::new(each, PeerIp).expose_decision(true));
/// ```
#[derive(Debug, Clone)]
pub struct Decisions(Vec<Exposed>);

/// A layer's decision, and whom it is about.
#[derive(Debug, Clone)]
pub struct Exposed {
    /// The key of each limit that counts the request.
    keys: SmallList<Key, 1>,
    decision: Decision,
}

impl Decisions {
    /// The decisions, the outermost first.
    pub fn iter(&self) -> std::slice::Iter<'_, Exposed> {
        self.0.iter()
    }
}

impl<'a> IntoIterator for &'a Decisions {
    type Item = &'a Exposed;
    type IntoIter = std::slice::Iter<'a, Exposed>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl Exposed {
    /// The decision.
    pub const fn decision(&self) -> &Decision {
        &self.decision
    }

    /// The key that the [binding](Decision::binding) quota counts the request by, see
    /// [`Decided::key`](crate::observe::Decided::key); `None` when it was [not counted](Decision::is_counted).
    pub fn key(&self) -> Option<&Key> {
        let limit = self.decision.limit_of(self.decision.binding_place());
        let keys = self.keys.as_slice();
        keys.get(limit).or(keys.first())
    }

    /// The keys of all limits that count the request, in their order.
    pub fn keys(&self) -> &[Key] {
        self.keys.as_slice()
    }
}

/// Adds a layer's decision to those of the layers around it, and replaces the style of their responses.
#[inline(never)]
pub(super) fn expose(
    charges: &[Charge<'_>],
    decision: &Decision,
    style: AnswerStyle,
    to: &mut Extensions,
) {
    let exposed = Exposed {
        keys: SmallList::of_exact(charges.iter().map(|charge| charge.key.clone())),
        decision: decision.clone(),
    };
    match to.get_mut::<Decisions>() {
        Some(decisions) => decisions.0.push(exposed),
        None => {
            to.insert(Decisions(vec![exposed]));
        }
    }
    to.insert(decision.clone());
    to.insert(style);
}

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

type LateCharge = dyn Fn(&Tokens) + Send + Sync;

type SharedUpload = Arc<Mutex<Option<Upload>>>;

struct State {
    tokens: Tokens,
    is_used: bool,
    phase: Phase,
}

/// The phase of the bill that charges the tokens.
enum Phase {
    /// With the account of the request's body until the head of the response, if its bytes are charged. Here, since a
    /// stream takes little memory.
    Open(Option<SharedUpload>),
    /// The bill settles. It charges these tokens, which were added meanwhile, when it has.
    Settling(Vec<Tokens>),
    Settled(Arc<LateCharge>),
}

impl State {
    /// Adds tokens, which the bill charges if it has settled, or when it has. Returns what charges them now, and them: their
    /// price is that of the model that has responded.
    fn add(&mut self, tokens: &Tokens) -> Option<(Arc<LateCharge>, Tokens)> {
        self.tokens.add(tokens);
        let priced = || tokens.or_model_of(&self.tokens);
        match &mut self.phase {
            Phase::Open(_) => None,
            Phase::Settling(added) => {
                added.push(priced());
                None
            }
            Phase::Settled(late) => Some((Arc::clone(late), priced())),
        }
    }
}

impl Spent {
    pub(super) fn new(tokens: Tokens) -> Self {
        let state = State {
            tokens,
            is_used: false,
            phase: Phase::Open(None),
        };
        Self {
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// Charges the bytes of the request's body by this account, once a layer counts them.
    pub(super) fn with_upload(self, upload: Upload) -> Self {
        let upload = Some(Arc::new(Mutex::new(Some(upload))));
        unpoisoned(self.state.lock()).phase = Phase::Open(upload);
        self
    }

    /// The account of the request's body, which is locked without the lock of the tokens.
    fn shared_upload(&self) -> Option<SharedUpload> {
        match &unpoisoned(self.state.lock()).phase {
            Phase::Open(upload) => upload.clone(),
            Phase::Settling(_) | Phase::Settled(_) => None,
        }
    }

    /// The handle for a request's body that is counted, which replaces the length that it declares; `None` if its bytes
    /// are not charged.
    pub(super) fn begin_upload(&self) -> Option<Self> {
        let upload = self.shared_upload()?;
        let begins = unpoisoned(upload.lock())
            .as_mut()
            .is_some_and(|upload| !mem::replace(&mut upload.has_begun, true));
        if begins {
            unpoisoned(self.state.lock()).tokens.input = 0;
        }
        begins.then(|| self.clone())
    }

    /// Counts bytes of the request's body.
    pub(super) fn upload(&self, bytes: u64) {
        let late = {
            let state = &mut *unpoisoned(self.state.lock());
            if state.is_used {
                return;
            }
            state.add(&Tokens::input(bytes))
        };
        if let Some((late, passed)) = late {
            late(&passed);
        } else if let Some(upload) = self.shared_upload()
            && let Some(upload) = &mut *unpoisoned(upload.lock())
        {
            upload.charge_passed(&self.so_far());
        }
    }

    /// Takes the account of the request's body.
    pub(super) fn take_upload(&self) -> Option<Upload> {
        unpoisoned(self.shared_upload()?.lock()).take()
    }

    /// Adds tokens that the response has used.
    pub fn add(&self, tokens: &Tokens) {
        let late = {
            let state = &mut *unpoisoned(self.state.lock());
            if !mem::replace(&mut state.is_used, true) {
                // The estimates of the layer go, and the model stays.
                state.tokens = state.tokens.output_of_model(0);
            }
            state.add(tokens)
        };
        if let Some((late, tokens)) = late {
            late(&tokens);
        }
    }

    /// Replaces the tokens that the response has used. After the end of the body it changes nothing.
    pub fn set(&self, tokens: Tokens) {
        let state = &mut *unpoisoned(self.state.lock());
        if matches!(state.phase, Phase::Open(_)) {
            state.is_used = true;
            state.tokens = tokens;
        }
    }

    /// Sets the model that responds.
    pub fn model(&self, model: &str) {
        unpoisoned(self.state.lock()).tokens.set_model(model);
    }

    /// The tokens so far, read from the body or reported.
    pub fn so_far(&self) -> Tokens {
        unpoisoned(self.state.lock()).tokens.clone()
    }

    /// Runs `read` with the tokens, unless a handler reports them. Returns the tokens. The caller's closure may use a
    /// clone of this handle, so it runs without the lock.
    pub(super) fn read(&self, read: impl FnOnce(&mut Tokens)) -> Tokens {
        let before = {
            let state = unpoisoned(self.state.lock());
            if state.is_used {
                return state.tokens.clone();
            }
            state.tokens.clone()
        };
        let mut tokens = before.clone();
        read(&mut tokens);
        let state = &mut *unpoisoned(self.state.lock());
        if !state.is_used {
            // A handler may have set the model meanwhile.
            let model = state.tokens.model();
            if let Some(model) = model.filter(|model| before.model() != Some(model)) {
                tokens.set_model(model);
            }
            // More of the request's body may have passed.
            let passed = state.tokens.input.saturating_sub(before.input);
            tokens.input = tokens.input.saturating_add(passed);
            state.tokens = tokens;
        }
        state.tokens.clone()
    }

    /// Returns the tokens that the bill settles, and whether a handler has reported them.
    pub(super) fn settle(&self) -> (Tokens, bool) {
        let state = &mut *unpoisoned(self.state.lock());
        state.phase = Phase::Settling(Vec::new());
        (state.tokens.clone(), state.is_used)
    }

    /// Whether tokens were added while the bill settled, or can be from now on.
    pub(super) fn has_late_tokens(&mut self) -> bool {
        // A handler that has no clone any more adds nothing.
        Arc::get_mut(&mut self.state).is_none_or(|state| {
            let state = unpoisoned(state.get_mut());
            matches!(&state.phase, Phase::Settling(added) if !added.is_empty())
        })
    }

    /// Charges a request's body without a response by what has passed of it. Returns the units that the least limit keeps;
    /// `None` if it is not counted.
    pub(super) fn break_off(&self, receipt: Option<&Receipt>) -> Option<u64> {
        let upload = self.take_upload().filter(|upload| upload.has_begun)?;
        let (tokens, _) = self.settle();
        let (least, late) = upload.settle(&tokens, receipt);
        self.end(late);
        Some(least)
    }

    /// Charges tokens by `late`: those that were added while the bill settled, and all from now on.
    pub(super) fn end(&self, late: impl Fn(&Tokens) + Send + Sync + 'static) {
        let late: Arc<LateCharge> = Arc::new(late);
        let settled = Phase::Settled(Arc::clone(&late));
        let before = mem::replace(&mut unpoisoned(self.state.lock()).phase, settled);
        if let Phase::Settling(added) = before {
            added.iter().for_each(|tokens| late(tokens));
        }
    }
}

impl fmt::Debug for Spent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Spent").field(&self.so_far()).finish()
    }
}

#[cfg(feature = "axum")]
mod extracted {
    use axum::extract::{FromRequestParts, OptionalFromRequestParts};
    use http::{StatusCode, request::Parts};

    use super::{Decisions, Spent};

    /// The decisions of all layers that allowed this request, for handlers behind layers with
    /// [`expose_decision`](crate::rate_limit::layer::RateLimitLayer::expose_decision). Without one: 500, or `None` for
    /// `Option<Decisions>`.
    impl<S: Sync> FromRequestParts<S> for Decisions {
        type Rejection = (StatusCode, &'static str);

        async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
            parts.extensions.get().cloned().ok_or((
                StatusCode::INTERNAL_SERVER_ERROR,
                "no rate limit decisions: the layers need expose_decision(true)",
            ))
        }
    }

    impl<S: Sync> OptionalFromRequestParts<S> for Decisions {
        type Rejection = std::convert::Infallible;

        async fn from_request_parts(
            parts: &mut Parts,
            _: &S,
        ) -> Result<Option<Self>, Self::Rejection> {
            Ok(parts.extensions.get().cloned())
        }
    }

    /// The units of the response, for handlers behind a [`SpendLayer`](crate::rate_limit::SpendLayer). Without one, and for a request that
    /// it does not count: 500, or `None` for `Option<Spent>`.
    impl<S: Sync> FromRequestParts<S> for Spent {
        type Rejection = (StatusCode, &'static str);

        async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
            parts.extensions.get().cloned().ok_or((
                StatusCode::INTERNAL_SERVER_ERROR,
                "no units of the response: the router needs a SpendLayer that counts this request",
            ))
        }
    }

    impl<S: Sync> OptionalFromRequestParts<S> for Spent {
        type Rejection = std::convert::Infallible;

        async fn from_request_parts(
            parts: &mut Parts,
            _: &S,
        ) -> Result<Option<Self>, Self::Rejection> {
            Ok(parts.extensions.get().cloned())
        }
    }
}
