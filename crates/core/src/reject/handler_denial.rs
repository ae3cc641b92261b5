//! Responses of handlers to denied requests, like those of a layer.

use std::{
    error::Error,
    fmt,
    sync::atomic::{AtomicBool, Ordering},
};

use http::{Request, Response, request::Parts};

use super::rejection::{
    AnswerStyle, ErasedReject, ProblemJson, Reject, Rejection, RejectionBody, RejectionKind, answer,
};
use crate::{
    decision::Decision,
    error::LimiterError,
    headers::{Headers, Renderer},
    log::{self, Code},
};

/// A denial whose response is that of a layer: with the rate-limit fields and, by default, as a
/// problem document with status 429.
///
/// [`Decision::into_result`] makes it, for `?`. With the feature `axum` it is a response, and with
/// `tonic` it turns into a `tonic::Status`:
///
/// ```
/// # #[cfg(feature = "axum")] {
/// use axum::{Json, extract::State};
/// use tower_ratelimit::{Key, LocalLimiter, reject::Denial};
///
/// #[derive(serde::Deserialize)]
/// struct Job {
///     customer: u64,
///     pages: u64,
/// }
///
/// async fn render(
///     State(pages): State<LocalLimiter>,
///     Json(job): Json<Job>,
/// ) -> Result<String, Denial> {
///     let key = Key::from(job.customer);
///     let decision = pages.acquire(&key, job.pages).into_result()?;
///     Ok(format!("{} pages left", decision.remaining().unwrap_or_default()))
/// }
/// # let _: axum::Router = axum::Router::new()
/// #     .route("/", axum::routing::post(render))
/// #     .with_state(LocalLimiter::new(tower_ratelimit::Quota::per_day(100)));
/// # }
/// ```
///
/// A handler that fails in other ways as well returns `axum::response::Result`, which takes this
/// and all other responses from `?`.
///
/// The response to HEAD and to a gRPC call is another one, and a layer around the handler may have
/// settings of its own: [`for_request`](Self::for_request) heeds all three.
///
/// A limiter that fails turns into one, too: `limiter.acquire(&key, 1).await?.into_result()?` is
/// a response of 503 with `Retry-After: 1` then.
// Boxed, because every `Result` of the handler would carry the room for it.
pub struct Denial(Box<Inner>);

struct Inner {
    cause: Cause,
    /// The head of the request, if it is known.
    parts: Option<Parts>,
    headers: Option<Headers>,
    rejection: Option<ErasedReject>,
}

enum Cause {
    Denied(Decision),
    Failed(LimiterError),
}

impl Decision {
    /// The decision if the request passes, otherwise its denial, which a handler returns with `?`;
    /// see [`Denial`].
    ///
    /// A [delay](Self::delay) is left to the caller to wait for.
    ///
    /// # Errors
    ///
    /// When the request [does not pass](Self::is_denied).
    pub fn into_result(self) -> Result<Self, Denial> {
        if self.is_denied() {
            Err(Denial::new(Cause::Denied(self)))
        } else {
            Ok(self)
        }
    }
}

impl Denial {
    fn new(cause: Cause) -> Self {
        Self(Box::new(Inner {
            cause,
            parts: None,
            headers: None,
            rejection: None,
        }))
    }

    /// Responds to this request: HEAD without a body, a gRPC call [in gRPC](super#grpc), and by the
    /// settings of the layer around the handler. Defaults to a GET without fields.
    ///
    /// The settings are the [`headers`](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/struct.RateLimitLayer.html#method.headers), the
    /// [`grpc`](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/struct.RateLimitLayer.html#method.grpc) switch and the
    /// [`rejection`](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/struct.RateLimitLayer.html#method.rejection) of the innermost layer with
    /// [`expose_decision`](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/struct.RateLimitLayer.html#method.expose_decision), whether or not it is a
    /// [shadow](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/struct.RateLimitLayer.html#method.shadow). [`headers`](Self::headers) and `rejection` of
    /// this denial take precedence. The layer's rejection applies if the service in that layer has the
    /// same body type as this response, as in an axum `Router`.
    ///
    /// ```
    /// # #[cfg(feature = "axum")] {
    /// use axum::{Router, extract::State, http::request::Parts, routing::get};
    /// use tower_ratelimit::{
    ///     Global, Key, LocalLimiter, Quota, RateLimitLayer,
    ///     reject::{Denial, PlainText},
    /// };
    ///
    /// async fn report(State(reports): State<LocalLimiter>, parts: Parts) -> Result<String, Denial> {
    ///     let decision = reports.acquire(&Key::global(), 1);
    ///     decision.into_result().map_err(|denial| denial.for_request(&parts))?;
    ///     Ok(String::from("all is well"))
    /// }
    ///
    /// // The response to a denial of either limit is plain text.
    /// let layer = RateLimitLayer::new(Quota::per_second(100), Global)
    ///     .rejection(PlainText)
    ///     .expose_decision(true);
    /// let app: Router = Router::new()
    ///     .route("/report", get(report))
    ///     .layer(layer)
    ///     .with_state(LocalLimiter::new(Quota::per_hour(5).named("reports")));
    /// # }
    /// ```
    #[must_use]
    pub fn for_request(mut self, parts: &Parts) -> Self {
        self.0.parts = Some(parts.clone());
        self
    }

    /// Which headers the response carries. Defaults to the layer's, see
    /// [`for_request`](Self::for_request), or else to [`Headers::new`].
    #[must_use]
    pub fn headers(mut self, headers: Headers) -> Self {
        self.0.headers = Some(headers);
        self
    }

    /// The rejection that makes axum's response. Defaults to the layer's, see
    /// [`for_request`](Self::for_request), or else to [`ProblemJson`]. For other bodies than axum's
    /// see [`response_by`](Self::response_by).
    #[cfg(feature = "axum")]
    #[must_use]
    pub fn rejection(mut self, rejection: impl Reject<axum::body::Body>) -> Self {
        self.0.rejection = Some(ErasedReject::new(std::sync::Arc::new(rejection)));
        self
    }

    /// The rejection that makes axum's response, as a closure.
    ///
    /// ```
    /// use axum::response::IntoResponse;
    /// use tower_ratelimit::reject::Denial;
    ///
    /// fn in_short(denial: Denial) -> Denial {
    ///     denial.rejection_fn(|rejection| (rejection.status(), "later").into_response())
    /// }
    /// ```
    #[cfg(feature = "axum")]
    #[must_use]
    pub fn rejection_fn<F>(self, rejection: F) -> Self
    where
        F: Fn(&Rejection<'_>) -> Response<axum::body::Body> + Send + Sync + 'static,
    {
        self.rejection(super::RejectFn::new(rejection))
    }

    /// The decision that denied; `None` when the limiter failed.
    pub const fn decision(&self) -> Option<&Decision> {
        match &self.0.cause {
            Cause::Denied(decision) => Some(decision),
            Cause::Failed(_) => None,
        }
    }

    /// The response with a body that the built-in rejections can make, for services without axum.
    ///
    /// ```
    /// use http::Response;
    /// use tower_ratelimit::{Key, LocalLimiter, Quota};
    ///
    /// fn handle(limiter: &LocalLimiter, name: &str) -> Response<String> {
    ///     match limiter.acquire(&Key::from(name), 1).into_result() {
    ///         Ok(_) => Response::new(format!("hello {name}")),
    ///         Err(denial) => denial.response(),
    ///     }
    /// }
    ///
    /// let limiter = LocalLimiter::new(Quota::per_day(1));
    /// assert_eq!(handle(&limiter, "Ann").status(), 200);
    /// assert_eq!(handle(&limiter, "Ann").status(), 429);
    /// ```
    pub fn response<B: RejectionBody + 'static>(&self) -> Response<B> {
        let own = self.0.rejection.as_ref();
        let layers = self.style().map(|style| &style.rejection);
        let chosen = own.or(layers).and_then(ErasedReject::get);
        self.response_by(chosen.unwrap_or(&ProblemJson))
    }

    /// The response that this rejection makes, with the rate-limit fields.
    pub fn response_by<B>(&self, rejection: &(impl Reject<B> + ?Sized)) -> Response<B> {
        self.with_rejection(|refused, headers| answer(rejection, refused, &Renderer::once(headers)))
    }

    /// Calls `make` with the rejection that a layer would make, and the headers.
    fn with_rejection<T>(&self, make: impl FnOnce(&Rejection<'_>, &Headers) -> T) -> T {
        let style = self.style();
        let detects_grpc = style.is_none_or(|style| style.grpc);
        let of_kind = RejectionKind::Shed.status();
        let shed_status = style.map_or(of_kind, |style| style.shed_status);
        let layers = style.map(|style| &style.headers);
        let headers = self.0.headers.as_ref().or(layers);
        let mut headers = headers.cloned().unwrap_or_default();
        let unknown;
        let parts = match &self.0.parts {
            Some(parts) => parts,
            None => {
                unknown = Request::new(()).into_parts().0;
                &unknown
            }
        };
        match &self.0.cause {
            Cause::Denied(decision) => {
                let mut decision = decision.clone();
                if decision.is_overflow() {
                    // The layer adds the other fields, and has drawn the jitter.
                    headers = headers.of_waits();
                } else {
                    decision.lengthen(headers.draw_jitter());
                }
                let denied = Rejection::denied(parts, &decision)
                    .detecting_grpc(detects_grpc)
                    .with_shed_status(shed_status);
                make(&denied, &headers)
            }
            Cause::Failed(_) => {
                let failed = Rejection::new(RejectionKind::LimiterFailed, parts)
                    .detecting_grpc(detects_grpc);
                make(&failed, &headers)
            }
        }
    }

    /// How the layer around the handler rejects requests.
    fn style(&self) -> Option<&AnswerStyle> {
        self.0.parts.as_ref()?.extensions.get()
    }
}

/// Logs that a handler's limiter fails, once in a process.
#[cold]
fn report(error: &LimiterError) {
    static REPORTED: AtomicBool = AtomicBool::new(false);
    if !REPORTED.swap(true, Ordering::Relaxed) {
        let source = error.source().map(|source| format!(": {source}"));
        let source = source.unwrap_or_default();
        log::report(
            Code::LIMITER_FAILING,
            &format!("the limiter of a handler cannot decide: {error}{source}"),
        );
    }
}

/// Where the limiter failed, the response is 503, as that of a layer. The first error of a process is logged.
impl From<LimiterError> for Denial {
    fn from(error: LimiterError) -> Self {
        report(&error);
        Self::new(Cause::Failed(error))
    }
}

#[cfg(feature = "axum")]
impl axum::response::IntoResponse for Denial {
    fn into_response(self) -> axum::response::Response {
        self.response()
    }
}

/// `RESOURCE_EXHAUSTED` with the wait, for methods of tonic, whatever the request looks like;
/// `UNAVAILABLE` when the limiter failed.
#[cfg(feature = "tonic")]
impl From<Denial> for tonic::Status {
    fn from(denial: Denial) -> Self {
        let response = denial.with_rejection(|refused, _| refused.grpc_response::<String>());
        let mut fields = response.into_parts().0.headers;
        // tonic writes it.
        fields.remove(http::header::CONTENT_TYPE);
        Self::from_header_map(&fields).expect("gRPC's responses have a status")
    }
}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.cause {
            Cause::Denied(decision) => {
                write!(f, "rate limit {:?} exceeded", decision.binding().name())?;
                match decision.retry_after_seconds() {
                    Some(seconds) => write!(f, ", retry after {seconds} s"),
                    None => Ok(()),
                }
            }
            Cause::Failed(_) => f.write_str("the rate limiter could not decide"),
        }
    }
}

impl Error for Denial {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.0.cause {
            Cause::Denied(_) => None,
            Cause::Failed(error) => Some(error),
        }
    }
}

/// The head of the request stays out, where credentials may be.
impl fmt::Debug for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("Denial");
        match &self.0.cause {
            Cause::Denied(decision) => text.field("decision", decision),
            Cause::Failed(error) => text.field("error", error),
        };
        text.finish_non_exhaustive()
    }
}
