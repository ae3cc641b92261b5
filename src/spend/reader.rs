//! Readers of responses: they find the tokens in a body as it passes.

use http::{HeaderMap, request, response};

use super::{Declared, Tokens};

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
