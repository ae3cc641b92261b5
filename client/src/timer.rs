//! The timer of the current tokio runtime, if it has one.

use std::{panic::catch_unwind, time::Duration};

use tokio::{runtime::Handle, time::sleep};

/// Whether the current task can wait.
pub(crate) fn has_timer() -> bool {
    // Tokio panics where it has no timer, and no function of it checks that.
    Handle::try_current().is_ok() && catch_unwind(|| sleep(Duration::ZERO)).is_ok()
}
