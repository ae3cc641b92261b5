//! [cookbook-page]: https://docs.rs/tower-ratelimit/latest/tower_ratelimit/guide/cookbook/index.html#another-http-client
// The page is also read on GitHub, where the links at its end apply. Of two definitions of a link
// the first one counts: here links lead to these, and pictures are embedded.
#![doc = include_str!("../docs/plots/links.md")]
#![doc = include_str!("../docs/clients.md")]
