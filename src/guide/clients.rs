//! [cookbook-page]: crate::guide::cookbook#another-http-client
// As on the page before: of two definitions of a link the first one counts.
#![doc = include_str!("../../docs/client-plots/links.md")]
#![doc = include_str!("../../docs/clients.md")]
