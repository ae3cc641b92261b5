//! The layer whose charges follow the response's body.
//!
//! In: a request that was admitted and charged what `Spending` reserves, as a `Reservation`; the head and the body of its
//! response. Out: the same body, and a charge of what it has used.
//!
//! 1. The layer's `Spending` is the cost of requests (`reserve`), by what a request declares (`spend.rs`).
//! 2. `Follows` opens a `Bill` for the response, with a reader by its head, and puts it into the [`SpendBody`]. The
//!    bill has a balance for each limit; the handler's `Spent` has the tokens.
//! 3. For each frame the reader changes the tokens. When a balance comes within half a step of what is charged, the bill
//!    requests a step. A frame waits for its charge only with [`Exhausted::End`].
//! 4. At the end, or if the body is dropped, the bill charges what is missing or refunds what is left over, the newest
//!    receipt first. If the limiter does not answer at once, that continues in the background.
//!
//! Example: 2,048 tokens are reserved, and steps have 256. A response that uses 300 gets 1,748 back at its end. One that
//! uses 2,500 is charged three steps, from 1,920, 2,176 and 2,432 on, and gets 316 back.

use std::{fmt, sync::Arc};

use http::Response;
use http_body::Body;
use tower_layer::Layer;

use super::{
    admission::Admission,
    decide::ResponseWork,
    layer::RateLimitLayer,
    settings::UnitLimit,
    spend_bill::Bill,
    spend_body::{Billed, SpendBody, StreamBill},
    spend_settings::{Exhausted, Missing, Spending},
};
use crate::{
    middleware::{
        gate::{Gate, GateFuture},
        wrapped_bodies::{BoxError, Following, Follows},
    },
    spend::{SpendReaders, content_length},
};
use tower_ratelimit_core::{
    error::{ConfigError, ConfigErrorKind},
    limiter::{limiter::Limiter, local::LocalLimiter},
    reject::rejection::{ProblemJson, Reject},
    token_usage::Tokens,
};

/// Limits the units that responses spend, such as the tokens of a language model.
///
/// Made by [`RateLimitLayer::spending`]. A request reserves units when it arrives. While the body passes, a reader
/// follows what it has used, and the layer charges it in steps; at the end it refunds or charges the rest. The body
/// passes unchanged.
///
/// The [guide](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/guide/budgets/index.html) explains what this promises.
#[must_use]
pub struct SpendLayer<L = LocalLimiter, R = ProblemJson> {
    layer: RateLimitLayer<L, R>,
    spending: Spending,
}

impl<L, R> RateLimitLayer<L, R> {
    /// Charges requests by what their responses have used when they have ended, which `readers` find in the bodies.
    ///
    /// Call it last: it makes a [`SpendLayer`], whose services have responses with a body of their own, a
    /// [`SpendBody`]. With [`count_if`](Self::count_if) or [`final_cost`](Self::final_cost) a
    /// response whose cost is 0 by its head is refunded at once. A [`cost`](Self::cost) replaces the reservation.
    ///
    /// Of [several limits](Self::all) those with [`KeyedLimit::spends`](tower_ratelimit_core::limiter::KeyedLimit::spends) are
    /// charged so, each by its own units. All limits are reserved or none. The others are charged the `cost` of the
    /// request, and keep it.
    ///
    /// ```
    /// # {
    /// use tower_ratelimit::{Header, Quota, RateLimitLayer, spend::llm::Llm};
    ///
    /// let quota = Quota::per_minute(100_000).named("tokens").debt(100_000);
    /// let layer = RateLimitLayer::new(quota, Header::new("x-api-key")).spending(Llm::any());
    /// # let _ = layer;
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// When [`try_spending`](Self::try_spending) fails.
    #[track_caller]
    pub fn spending(self, readers: impl SpendReaders) -> SpendLayer<L, R>
    where
        L: Limiter,
    {
        match self.try_spending(readers) {
            Ok(layer) => layer,
            Err(error) => panic!("{error}"),
        }
    }

    /// Charges requests by what their responses have used. See [`spending`](Self::spending).
    ///
    /// # Errors
    ///
    /// When the limiter cannot charge units that were used already, as one with a leaky bucket, one that blocks keys,
    /// or a `GovernorLimiter`, and when none of several limits has
    /// [`spends`](tower_ratelimit_core::limiter::KeyedLimit::spends).
    pub fn try_spending(self, readers: impl SpendReaders) -> Result<SpendLayer<L, R>, ConfigError>
    where
        L: Limiter,
    {
        let settings = self.settings();
        let limits = if settings.has_several_limits {
            Arc::clone(&settings.spends)
        } else {
            Arc::from([Some(UnitLimit::new(
                self.limiter(),
                Arc::new(Tokens::total),
            ))])
        };
        if limits.is_empty() {
            return Err(ConfigError::new(
                ConfigErrorKind::Joint,
                "none of the layer's limits is charged by responses: say how many units a response takes of one of \
                 them, such as `.by(key).spends(Tokens::total)`",
            ));
        }
        if !limits.iter().flatten().all(|limit| limit.can_spend) {
            return Err(ConfigError::new(
                ConfigErrorKind::Debt,
                "a limit that spends cannot charge units that were used already: use a LocalLimiter or a \
                 RedisLimiter without a leaky bucket and without block_for",
            ));
        }
        let spending = Spending::new(readers, limits);
        let layer = self;
        Ok(SpendLayer { layer, spending }.with(|_| {}))
    }
}

impl<L, R> SpendLayer<L, R> {
    /// Changes the settings, which need another admission.
    fn with(mut self, set: impl FnOnce(&mut Spending)) -> Self {
        set(&mut self.spending);
        let spending = Arc::new(self.spending.clone());
        self.layer = (self.layer).with(|settings| settings.spending = Some(spending));
        self
    }

    /// The units of these tokens. Defaults to [`Tokens::total`]. Called with all that is known so far, after each
    /// frame.
    ///
    /// ```
    /// # {
    /// use tower_ratelimit::{Global, Quota, RateLimitLayer, spend::{Price, Prices, llm::Llm}};
    ///
    /// let prices = Prices::new(Price::new(2_000, 8_000)).model("*-mini", Price::new(400, 1_600))?;
    /// let day = Quota::per_day(5_000_000).fixed_window().named("micro-usd");
    /// let dollars = RateLimitLayer::new(day, Global)
    ///     .spending(Llm::any())
    ///     .spends(prices.units());
    /// # let _ = dollars;
    /// # }
    /// # Ok::<_, tower_ratelimit::ConfigError>(())
    /// ```
    ///
    /// # Panics
    ///
    /// For a layer of [several limits](RateLimitLayer::all): their units are set by
    /// [`KeyedLimit::spends`](tower_ratelimit_core::limiter::KeyedLimit::spends).
    #[track_caller]
    pub fn spends(self, units: impl Fn(&Tokens) -> u64 + Send + Sync + 'static) -> Self
    where
        L: Limiter,
    {
        assert!(
            !self.layer.settings().has_several_limits,
            "a layer of several limits has no units of its own: give each limit its units, `.by(key).spends(units)`"
        );
        let limit = UnitLimit::new(self.limiter(), Arc::new(units));
        self.with(|spending| spending.limits = Arc::from([Some(limit)]))
    }

    /// The most tokens that a request reserves when it arrives. Defaults to 2,048.
    ///
    /// A request reserves the units of ⌈bytes/4⌉ tokens of input by its `Content-Length` and of 1,024 tokens of output,
    /// and never more than the limit holds at once: the quotas of the default tier. A smaller tier denies requests that
    /// reserve more than it holds, so set the least that a tier holds.
    ///
    /// A request whose values are [`Declared`](crate::spend::Declared) reserves the most output that it sets instead, under
    /// [a name of the format](SpendReaders::max_output), and at least [`reserve_least`](Self::reserve_least).
    pub fn reserve(self, most: u64) -> Self {
        self.with(|spending| spending.numbers.reserve = most)
    }

    /// The fewest tokens that a request reserves, whatever it declares: clients choose what they declare, and a server may
    /// ignore it. Defaults to 256; at most [`reserve`](Self::reserve) takes effect.
    pub fn reserve_least(self, least: u64) -> Self {
        self.with(|spending| spending.numbers.reserve_least = least)
    }

    /// The tokens of a further charge while the body passes, at least 1. Defaults to 256. A step, of the units of this
    /// output, is charged when the response comes within half a step of what is charged.
    pub fn step(self, tokens: u64) -> Self {
        self.with(|spending| spending.numbers.step = tokens.max(1))
    }

    /// The treatment of a stream when nothing is left. Defaults to [`Exhausted::Finish`].
    pub fn exhausted(self, exhausted: Exhausted) -> Self {
        self.with(|spending| spending.numbers.exhausted = exhausted)
    }

    /// The charge for a response that ends without a report of its usage. Defaults to [`Missing::Estimate`]. A response
    /// with a status of 400 or more and without a report is always refunded.
    pub fn missing(self, missing: Missing) -> Self {
        self.with(|spending| spending.numbers.missing = missing)
    }

    /// The limiter. A clone of it is a handle to the layer's counters.
    pub fn limiter(&self) -> &L {
        self.layer.limiter()
    }
}

impl<S, L: Limiter, R> Layer<S> for SpendLayer<L, R> {
    type Service = SpendLimit<S, L, R>;

    fn layer(&self, inner: S) -> SpendLimit<S, L, R> {
        if self.layer.settings().reserving().is_some() {
            self.spending.report_large();
        }
        Gate::new(inner, Following(self.layer.admission()))
    }
}

impl<L, R> Clone for SpendLayer<L, R> {
    fn clone(&self) -> Self {
        Self {
            layer: self.layer.clone(),
            spending: self.spending.clone(),
        }
    }
}

impl<L, R> fmt::Debug for SpendLayer<L, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpendLayer")
            .field("layer", &self.layer)
            .finish_non_exhaustive()
    }
}

/// A service whose responses' units are limited. Made by [`SpendLayer`].
pub type SpendLimit<S, L = LocalLimiter, R = ProblemJson> =
    Gate<S, Following<Arc<Admission<L, R>>>>;

/// The response of a [`SpendLimit`] service.
pub type SpendFuture<S, B, L, R> = GateFuture<S, B, Following<Arc<Admission<L, R>>>>;

impl<L, R, B> Follows<B> for Arc<Admission<L, R>>
where
    L: Limiter,
    R: Reject<B>,
    B: Body<Error: Into<BoxError>> + 'static,
{
    type Followed = SpendBody<B>;

    fn follow(work: &mut ResponseWork<L, R>, response: Response<B>) -> Response<SpendBody<B>> {
        let (head, body) = response.into_parts();
        // A body that has ended may still declare the length of another, as that of HEAD does.
        let length = if body.is_end_stream() {
            Some(0)
        } else {
            let exact = body.size_hint().exact();
            exact.or_else(|| content_length(&head.headers))
        };
        let bill = work
            .take_reservation()
            .and_then(|reservation| Bill::open(reservation, &head, length));
        let bill = bill.map(|bill| Box::new(bill) as Box<dyn StreamBill>);
        Response::from_parts(head, SpendBody::new(body, Billed::new(bill)))
    }
}
