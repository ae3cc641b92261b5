//! The time that a thread was running, which other processes on a busy machine do not lengthen. What
//! they do to its caches still counts, and so does what threads of one process do to each other.

use rustix::time::{ClockId, clock_gettime};

/// A start, to be read in the thread that made it.
#[derive(Debug, Clone, Copy)]
pub struct CpuTime(u64);

impl CpuTime {
    pub fn now() -> Self {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        Self(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
    }

    pub fn nanos_since(self) -> u64 {
        Self::now().0 - self.0
    }
}
