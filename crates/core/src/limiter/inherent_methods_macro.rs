//! Inherent methods of limiters, equal to those of the trait, callable without an import.

/// Implements for an asynchronous limiter the methods of a [`LocalLimiter`](crate::LocalLimiter), with
/// equal names and arguments.
#[doc(hidden)]
#[macro_export]
macro_rules! handle_methods {
    ($limiter:ty $(where $store:ident: $bound:path)?) => {
        impl$(<$store: $bound>)? $limiter {
            /// Takes `cost` units if they are available, all or nothing. A cost above the capacity, soft
            /// share included, is always denied, without a
            /// [`retry_after`](crate::Decision::retry_after).
            pub fn acquire(&self, key: &Key, cost: u64) -> Pending<<Self as Limiter>::Future> {
                Limiter::acquire(self, key, cost)
            }

            /// Takes what is available, at most `most` units;
            /// [`Decision::charged`](crate::Decision::charged) returns how many. Denied if there are none.
            pub fn acquire_up_to(
                &self,
                key: &Key,
                most: u64,
            ) -> Pending<<Self as Limiter>::Future> {
                Limiter::acquire_up_to(self, key, most)
            }

            /// Decides like [`acquire`](Self::acquire) and takes nothing. Another request, also of another
            /// node, may take the units before a later `acquire` does.
            pub fn peek(&self, key: &Key, cost: u64) -> Pending<<Self as Limiter>::Future> {
                Limiter::peek(self, key, cost)
            }

            /// Takes `cost` units whether or not they are available, down to exhaustion: for work that was
            /// done already. The outcome is that of [`acquire`](Self::acquire).
            pub fn hit(&self, key: &Key, cost: u64) -> Pending<<Self as Limiter>::Future> {
                Limiter::hit(self, key, cost)
            }

            /// Refunds `cost` units. With the receipt of the decision that charged them, at most its
            /// charge less the units that have returned since; without a receipt, units of the newest
            /// charge.
            pub fn refund(
                &self,
                key: &Key,
                cost: u64,
                receipt: Option<$crate::decision::Receipt>,
            ) -> Pending<<Self as Limiter>::Future> {
                Limiter::refund(self, key, cost, receipt)
            }

            /// Denies the key everything for this time from now on, at most 18 years; zero ends a
            /// block.
            pub fn block(
                &self,
                key: &Key,
                block: std::time::Duration,
            ) -> Pending<<Self as Limiter>::Future> {
                Limiter::block(self, key, block)
            }

            /// Resets the key to its initial state, in all tiers, and ends its block.
            pub fn reset(&self, key: &Key) -> Pending<<Self as Limiter>::Future> {
                Limiter::reset(self, key)
            }
        }
    };
}

#[doc(hidden)]
pub use handle_methods;
