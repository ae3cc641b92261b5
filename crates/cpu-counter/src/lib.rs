//! The CPU's counter, as [`OsClock`](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/clock/struct.OsClock.html) of
//! tower-ratelimit reads it.
//!
//! It has no unit, and is not checked: counters of two cores may differ, and one may stop, or change its rate, while
//! the machine sleeps. Who reads it compares it with another clock.

#![no_std]

/// Whether the target has a counter that a program may read.
pub const EXISTS: bool = cfg!(all(
    not(miri),
    any(
        all(target_arch = "x86_64", not(target_env = "sgx")),
        all(
            target_arch = "aarch64",
            any(
                target_os = "linux",
                target_os = "android",
                target_vendor = "apple",
                windows
            )
        ),
    )
));

/// The counter now; always 0 where there is [none](EXISTS).
///
/// The read is not ordered with other instructions of the thread. A fence would make it as slow as a clock of the
/// operating system, most of whose time is that fence, and all that it would save is less than a microsecond: as long
/// as a processor works ahead.
#[inline]
#[must_use]
#[allow(unsafe_code, reason = "no other way to read the counter")]
pub fn ticks() -> u64 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if EXISTS {
        // SAFETY: every x86-64 has the instruction. It changes no memory and no flags. Where an operating system forbids
        // it, which is not the usual, it ends the process and does nothing else.
        return unsafe { core::arch::x86_64::_rdtsc() };
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    if EXISTS {
        let ticks: u64;
        // SAFETY: every AArch64 has the register, and the systems of `EXISTS` let programs read it, as their own clocks do.
        // The read changes no memory, no stack and no flags.
        unsafe {
            core::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack, preserves_flags));
        }
        return ticks;
    }
    0
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_counter_goes_on_where_there_is_one() {
        let first = super::ticks();
        // A thread that is moved to a core whose counter is behind reads on until that one is ahead, too.
        while super::EXISTS && super::ticks() <= first {}
        assert_eq!(super::EXISTS, first != 0);
    }
}
