//! The layer around a service: who is limited, how long it waits, and what it gets back.
//!
//! A request flows in. Its key is taken from its head ([`key`]), its charge goes to a limiter, and what flows out is the
//! inner service's response with the fields of the decision, or the answer to a denial ([`rate_limit`]); observers see each
//! decision ([`observe`]). What a response has used is charged by the readers of [`spend`]. Calls of the Model Context Protocol are limited in JSON-RPC (`mcp`).
//!
//! `tower-ratelimit` hands all of it on; items that are hidden here serve its other packages of the same release.

pub mod key;

pub mod observe;

#[doc(hidden)]
pub mod middleware;

pub mod spend;

pub mod rate_limit;

#[cfg(feature = "mcp")]
pub mod mcp;
