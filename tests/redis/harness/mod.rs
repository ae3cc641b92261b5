//! The servers that these tests start do what they say.

mod clusters;
mod proxies;
mod sentinels;
mod single;

use std::panic::catch_unwind;

use crate::common::programs::left_out;

#[test]
fn a_missing_program_is_an_error_where_all_are_required() {
    assert!(!left_out(true, true, "a server", "install it"));
    assert!(!left_out(true, false, "a server", "install it"));
    assert!(left_out(false, false, "a server", "install it"));
    let panic = catch_unwind(|| left_out(false, true, "a server", "install it")).unwrap_err();
    let text = panic.downcast_ref::<String>().unwrap();
    assert!(
        text.ends_with("needs a server, which is missing: install it"),
        "{text}"
    );
}
