//! The units of a response while it passes, as its handler, the bill of its body and the account of the request's body
//! share them.

use std::{
    any::Any,
    fmt, mem,
    sync::{Arc, Mutex},
};

#[cfg(feature = "axum")]
use axum::extract::{FromRequestParts, OptionalFromRequestParts};
#[cfg(feature = "axum")]
use http::{StatusCode, request::Parts};

use super::{reservation::OpenUnits, stream_balance::Upload};
use tower_ratelimit_core::{decision::Receipt, lock::unpoisoned, token_usage::Tokens};

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

    /// The units for a reservation.
    pub(super) fn followed(&self) -> Arc<dyn OpenUnits> {
        Arc::clone(&self.state) as _
    }

    /// The units that a reservation has followed.
    /// # Panics
    ///
    /// When the units are of another type, which no layer makes.
    pub(super) fn of(followed: Arc<dyn OpenUnits>) -> Self {
        let state: Arc<dyn Any + Send + Sync> = followed;
        Self {
            state: state.downcast().expect("the one type of such units"),
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

impl OpenUnits for Mutex<State> {
    fn break_off(self: Arc<Self>, receipt: Option<&Receipt>) -> Option<u64> {
        let spent = Spent { state: self };
        let upload = spent.take_upload().filter(|upload| upload.has_begun)?;
        let (tokens, _) = spent.settle();
        let (least, late) = upload.settle(&tokens, receipt);
        spent.end(late);
        Some(least)
    }
}

impl fmt::Debug for Spent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Spent").field(&self.so_far()).finish()
    }
}

/// The units of the response, for handlers behind a [`SpendLayer`](crate::rate_limit::SpendLayer). Without one, and for a request that
/// it does not count: 500, or `None` for `Option<Spent>`.
#[cfg(feature = "axum")]
impl<S: Sync> FromRequestParts<S> for Spent {
    type Rejection = (StatusCode, &'static str);

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        parts.extensions.get().cloned().ok_or((
            StatusCode::INTERNAL_SERVER_ERROR,
            "no units of the response: the router needs a SpendLayer that counts this request",
        ))
    }
}

#[cfg(feature = "axum")]
impl<S: Sync> OptionalFromRequestParts<S> for Spent {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Self::Rejection> {
        Ok(parts.extensions.get().cloned())
    }
}
