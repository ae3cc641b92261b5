#![doc = include_str!("../../docs/migrate.md")]
