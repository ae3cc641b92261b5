//! The servers that these tests start work as documented.

mod clusters;
mod proxies;
mod sentinels;
mod single;

use std::panic::catch_unwind;

use testkit::child_processes::left_out;

#[test]
fn a_missing_program_is_an_error_where_all_are_required() {
    let tried = |there, required| left_out(there, required, "a server", "install it");
    assert_eq!(tried(true, true), None);
    assert_eq!(tried(true, false), None);
    let reason = tried(false, false).unwrap();
    assert!(reason.ends_with("needs a server, which is missing: install it"));
    let panic = catch_unwind(|| tried(false, true)).unwrap_err();
    assert_eq!(panic.downcast_ref(), Some(&reason));
}
