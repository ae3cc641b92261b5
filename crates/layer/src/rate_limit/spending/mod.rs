//! Charges that follow the response's body: settings, layer, service and body of [`SpendLayer`](self::SpendLayer).
//!
//! In: a request that was admitted and charged what [`Spending`] reserves, as a `Reservation`; the head and the body of its
//! response. Out: the same body, and a charge of what it has used.
//!
//! 1. The layer's `Spending` is the cost of requests (`reservations`), by what a request declares (`spend.rs`).
//! 2. `Follows` opens a `Bill` for the response, with a reader by its head, and puts it into the [`SpendBody`]. The
//!    bill has a balance for each limit; the handler's [`Spent`] has the tokens.
//! 3. For each frame the reader changes the tokens. When a balance comes within half a step of what is charged, the bill
//!    requests a step. A frame waits for its charge only with [`Exhausted::End`].
//! 4. At the end, or if the body is dropped, the bill charges what is missing or refunds what is left over, the newest
//!    receipt first. If the limiter does not answer at once, that continues in the background.
//!
//! Example: 2,048 tokens are reserved, and steps have 256. A response that uses 300 gets 1,748 back at its end. One that
//! uses 2,500 is charged three steps, from 1,920, 2,176 and 2,432 on, and gets 316 back.

mod balance;
mod bill;
mod body;
mod layer;

pub(super) use self::balance::{OpsOfEach, Upload};
pub use self::{
    body::{SpendBody, SpendExhausted, UploadBody, UploadCount, UploadLayer},
    layer::{SpendFuture, SpendLayer, SpendLimit},
};
