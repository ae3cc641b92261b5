//! The common parts of all layers: keys, outcome and responses.
//!
//! In: the head of a request. Out: a key to charge, or the reason why it is not charged; later, fields in the response or a
//! rejection. What is charged is a matter of each layer: `rate_limit/`, `concurrency/`, `crates/rules/src/layer/`.
//!
//! 1. A layer's builder collects `settings.rs`, and makes a `Responder` of them (`responder.rs`).
//! 2. For each request it reads the switch, the lists and the extractor (`settings.rs`). A request
//!    without a key is rejected, shares a key with all such, or passes, by the kind of the error.
//! 3. The layer decides. Its result is a `RequestOutcome` (`gate.rs`): the request passes, is rejected, or waits
//!    with the instance of the inner service that was ready for it.
//! 4. The responder writes the fields of an admitted request, makes the rejection of a denied one, and sends events to the
//!    observer. In shadow mode it rejects nothing.
//!
//! `setup_diagnostics.rs` watches the first requests of a layer for a wrong set-up, such as a proxy whose address is the
//! key of all, and logs when a limiter begins or ceases to fail.
//!
//! Example: a layer with `skip` for `/health` and a key by header. `GET /health` passes at the second step, with an event
//! and without fields. Requests without the header share a key, or get 400 if the layer has
//! `MissingKey::Reject` for them. All others have a key of their own.

pub mod gate;
#[cfg(feature = "tokio")]
pub mod peeked_body;
pub mod responder;
pub mod settings;
pub(crate) mod setup_diagnostics;
pub mod wrapped_bodies;
