//! [security-page]: crate::guide::security
// As on the first page: of two definitions of a link the first one counts.
#![cfg_attr(feature = "llm", doc = "[budgets-page]: crate::guide::budgets")]
#![doc = include_str!("../../docs/mcp.md")]
