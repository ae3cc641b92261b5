#![doc = include_str!("../../docs/quickstart.md")]
