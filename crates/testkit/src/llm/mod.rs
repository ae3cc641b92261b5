//! Responses of language models by the published formats of their providers, a body that streams them, and a slow
//! reader of their tokens.

pub mod bodies;
pub mod competing_streams;
pub mod formats;
pub mod oracle;
mod streaming_body;

pub use self::streaming_body::StreamingBody;
