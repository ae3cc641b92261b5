//! Costs that are known when a response has ended: what reads them, and what a request declares.

use std::sync::Arc;

use http::{
    HeaderMap, HeaderName, StatusCode, Version,
    header::{CONTENT_LENGTH, TRANSFER_ENCODING},
    request, response,
};

use tower_ratelimit_core::token_usage::Tokens;

/// Reads the tokens of one response, from its body as it passes.
///
/// Implemented for closures over the body's data. The data comes in frames of any length: a number may be split
/// between two of them.
pub trait SpendReader: Send + 'static {
    /// Reads a frame of data.
    fn data(&mut self, data: &[u8], tokens: &mut Tokens);

    /// Reads the trailers.
    fn trailers(&mut self, trailers: &HeaderMap, tokens: &mut Tokens) {
        let _ = (trailers, tokens);
    }

    /// Reads the rest, if the end of the body completes anything. Also called if the body breaks off.
    fn end(&mut self, tokens: &mut Tokens) {
        let _ = tokens;
    }

    /// Whether the response so far can be charged by what was read of it. If not, its reservation stays charged: a
    /// reader that finds nothing it knows in a body returns `false`. Defaults to `true`.
    fn has_recognised(&self) -> bool {
        true
    }
}

impl<F> SpendReader for F
where
    F: FnMut(&[u8], &mut Tokens) + Send + 'static,
{
    fn data(&mut self, data: &[u8], tokens: &mut Tokens) {
        self(data, tokens);
    }
}

/// Makes a reader for each response.
///
/// Implemented for closures that return one: `|response: &http::response::Parts| Some(reader)`. `None` means that
/// nothing in this response can be read.
pub trait SpendReaders: Send + Sync + 'static {
    /// The reader of one response.
    type Reader: SpendReader;

    /// The reader of the response with this head. `tokens` are those of the head, if the reader finds any there.
    fn reader(&self, response: &response::Parts, tokens: &mut Tokens) -> Option<Self::Reader>;

    /// The most tokens of output of a choice that this request declares, under a name that the server behind reads: a
    /// name that it ignores would let clients choose what they reserve. Defaults to [`Declared::max_tokens`].
    fn max_output(&self, declared: &Declared, request: &request::Parts) -> Option<u64> {
        let _ = request;
        declared.max_tokens
    }

    /// The bodies whose bytes are charged, if nothing else is.
    #[doc(hidden)]
    fn bytes(&self) -> Option<Bytes> {
        None
    }
}

impl<F, R> SpendReaders for F
where
    F: Fn(&response::Parts) -> Option<R> + Send + Sync + 'static,
    R: SpendReader,
{
    type Reader = R;

    fn reader(&self, response: &response::Parts, _: &mut Tokens) -> Option<R> {
        self(response)
    }
}

/// Reads a whole number from a header or a trailer of the response, as [`output`](Tokens::output). A response without
/// the field keeps its reservation.
///
/// ```
/// use tower_ratelimit::spend::Field;
///
/// let units = Field::trailer("x-cost");
/// # let _ = units;
/// ```
#[derive(Debug, Clone)]
pub struct Field {
    name: HeaderName,
    is_trailer: bool,
}

impl Field {
    /// A field of the response's head.
    ///
    /// # Panics
    ///
    /// When `name` is no name of a field in lower case.
    pub const fn header(name: &'static str) -> Self {
        Self::of(HeaderName::from_static(name), false)
    }

    /// A field after the response's body.
    ///
    /// # Panics
    ///
    /// When `name` is no name of a field in lower case.
    pub const fn trailer(name: &'static str) -> Self {
        Self::of(HeaderName::from_static(name), true)
    }

    /// A field of the response's head, or after its body.
    #[doc(hidden)]
    pub const fn of(name: HeaderName, is_trailer: bool) -> Self {
        Self { name, is_trailer }
    }

    fn read(&self, fields: &HeaderMap, tokens: &mut Tokens) -> bool {
        let text = fields.get(&self.name).and_then(|value| value.to_str().ok());
        let units = text.and_then(|text| text.trim().parse().ok());
        if let Some(units) = units {
            tokens.report(&Tokens::output(units));
        }
        units.is_some()
    }
}

impl SpendReaders for Field {
    type Reader = FieldReader;

    fn reader(&self, response: &response::Parts, tokens: &mut Tokens) -> Option<FieldReader> {
        if self.is_trailer {
            return Some(FieldReader {
                field: self.clone(),
                is_found: false,
            });
        }
        self.read(&response.headers, tokens);
        None
    }
}

/// Reads the trailers of one response for a [`Field`].
#[derive(Debug)]
pub struct FieldReader {
    field: Field,
    is_found: bool,
}

impl SpendReader for FieldReader {
    fn data(&mut self, _: &[u8], _: &mut Tokens) {}

    fn trailers(&mut self, trailers: &HeaderMap, tokens: &mut Tokens) {
        self.is_found |= self.field.read(trailers, tokens);
    }

    fn has_recognised(&self) -> bool {
        self.is_found
    }
}

/// The bytes of bodies as the layer sees them, without header fields: those of a request are
/// [`input`](Tokens::input), those of its response [`output`](Tokens::output).
///
/// The length that a body declares is reserved: that of a request when it arrives, that of a response when its head
/// comes. [`SpendLayer::reserve`](crate::rate_limit::SpendLayer::reserve) is the reservation for a body of
/// unknown length, and [`step`](crate::rate_limit::SpendLayer::step) a further charge; both default to 64 KiB.
/// A response is charged what has passed of its body, whatever its status, and also if a side breaks off. A request is
/// charged the length that it declares, or with an [`UploadLayer`](crate::rate_limit::UploadLayer) inside what has passed.
///
/// ```
/// use tower_ratelimit::{PeerIp, Quota, RateLimitLayer, spend::Bytes};
///
/// let quota = Quota::per_minute(50_000_000).debt(50_000_000);
/// let downloads = RateLimitLayer::new(quota, PeerIp).spending(Bytes::response());
/// # let _ = downloads;
/// ```
///
/// Two limits of one layer may each count their side:
///
/// ```
/// use tower_ratelimit::{PeerIp, Quota, RateLimitLayer, spend::Bytes};
///
/// let quota = |name| Quota::per_minute(50_000_000).debt(50_000_000).named(name);
/// let layer = RateLimitLayer::all([
///     quota("in").by(PeerIp).spends(|bytes| bytes.input),
///     quota("out").by(PeerIp).spends(|bytes| bytes.output),
/// ])
/// .spending(Bytes::both());
/// # let _ = layer;
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bytes {
    pub(crate) of_request: bool,
    pub(crate) of_response: bool,
}

impl Bytes {
    /// The bytes of the request's body.
    pub const fn request() -> Self {
        Self {
            of_request: true,
            of_response: false,
        }
    }

    /// The bytes of the response's body.
    pub const fn response() -> Self {
        Self {
            of_request: false,
            of_response: true,
        }
    }

    /// The bytes of both bodies together.
    pub const fn both() -> Self {
        Self {
            of_request: true,
            of_response: true,
        }
    }

    /// The bytes of the request's body by its head; `unknown` for a body that declares no length.
    pub(crate) fn declared(self, parts: &request::Parts, unknown: u64) -> Tokens {
        let has_unknown = || {
            parts.headers.contains_key(TRANSFER_ENCODING)
                || parts.version >= Version::HTTP_2 && !parts.method.is_safe()
        };
        let length = content_length(&parts.headers);
        let length = length.unwrap_or_else(|| if has_unknown() { unknown } else { 0 });
        Tokens::input(if self.of_request { length } else { 0 })
    }
}

impl SpendReaders for Bytes {
    type Reader = fn(&[u8], &mut Tokens);

    fn reader(&self, response: &response::Parts, tokens: &mut Tokens) -> Option<Self::Reader> {
        // The bytes of an upgraded connection pass outside of the body.
        if response.status == StatusCode::SWITCHING_PROTOCOLS {
            return None;
        }
        // Each number is exact, so no status refunds it.
        tokens.report(&Tokens::default());
        self.of_response.then_some(count)
    }

    fn bytes(&self) -> Option<Self> {
        Some(*self)
    }
}

fn count(data: &[u8], tokens: &mut Tokens) {
    tokens.add(&Tokens::output(data.len() as u64));
}

#[doc(hidden)]
pub fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// The values of a request that determine what its response may use, in the request's extensions.
///
/// With the features `llm` and `tokio` a [`DeclaredLayer`](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/rate_limit/struct.DeclaredLayer.html) finds them in requests to
/// language models. A layer or a handler of your own may insert them as well: a [`SpendLayer`](crate::rate_limit::SpendLayer)
/// inside reserves units by them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Declared {
    /// The bytes of the body, as far as they are known: its `Content-Length`, or what was read.
    pub bytes: u64,
    /// The most tokens of output of a choice; `None` if the request sets none. 0 sets none. A request that sets it under
    /// several names has the largest here, but [reserves](crate::rate_limit::SpendLayer::reserve) by the names of the format that is
    /// read.
    pub max_tokens: Option<u64>,
    /// The choices that are requested, each of as much output. At least 1; defaults to 1.
    pub choices: Option<u64>,
    model: Option<Arc<str>>,
    /// The most tokens of output under each name; `None` if no body was read, or sets none.
    by_name: Option<[u64; OutputName::COUNT]>,
}

/// A name under which formats of language models declare the most tokens of output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "hidden")]
#[doc(hidden)]
pub enum OutputName {
    /// `max_tokens`
    MaxTokens,
    /// `max_completion_tokens`
    MaxCompletionTokens,
    /// `max_output_tokens`
    MaxOutputTokens,
    /// `generationConfig.maxOutputTokens`
    Gemini,
    /// `options.num_predict`
    Ollama,
    /// `n_predict`
    LlamaCpp,
    /// `inferenceConfig.maxTokens`
    Bedrock,
}

impl OutputName {
    const COUNT: usize = Self::Bedrock as usize + 1;
}

impl Declared {
    /// The model that is requested.
    pub fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    /// Sets the model that is requested.
    pub fn set_model(&mut self, model: &str) {
        self.model = Some(model.into());
    }

    /// The tokens of output of all choices, if a choice has `usual` where the request sets no limit.
    pub fn output(&self, usual: u64) -> u64 {
        self.output_of(self.max_tokens, usual)
    }

    pub(crate) fn output_of(&self, max_tokens: Option<u64>, usual: u64) -> u64 {
        let choices = self.choices.unwrap_or(1).max(1);
        let max_tokens = max_tokens.filter(|tokens| *tokens > 0);
        choices.saturating_mul(max_tokens.unwrap_or(usual))
    }

    /// Takes the most tokens of output that a body sets under a name.
    #[cfg(feature = "tokio")]
    #[doc(hidden)]
    pub fn set_max_tokens(&mut self, name: OutputName, tokens: u64) {
        if tokens > 0 {
            self.max_tokens = self.max_tokens.max(Some(tokens));
            let own = &mut self.by_name.get_or_insert_default()[name as usize];
            *own = tokens.max(*own);
        }
    }

    /// The most tokens of output of a choice under these names. Where nobody read a body, whoever set
    /// [`max_tokens`](Self::max_tokens) knows the name.
    #[doc(hidden)]
    pub fn max_tokens_under(&self, names: &[OutputName]) -> Option<u64> {
        let Some(by_name) = self.by_name else {
            return self.max_tokens;
        };
        let set = names.iter().map(|name| by_name[*name as usize]);
        set.max().filter(|tokens| *tokens > 0)
    }
}
