//! [priority-shares]: crate::guide::limits#priority-shares
//! [lines]: crate::guide::troubleshooting#lines-in-the-log
#![doc = include_str!("../../docs/rules.md")]
