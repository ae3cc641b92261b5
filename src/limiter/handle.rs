//! The methods of a handle: those of the trait, callable without an import.

/// Gives a limiter whose answers may have to be waited for the methods that a
/// [`LocalLimiter`](crate::LocalLimiter) has, by the same names and arguments.
macro_rules! handle_methods {
    ($limiter:ty $(where $store:ident: $bound:path)?) => {
        impl$(<$store: $bound>)? $limiter {
            /// Takes `cost` units if they are available.
            pub fn acquire(&self, key: &Key, cost: u64) -> Pending<<Self as Limiter>::Future> {
                Limiter::acquire(self, key, cost)
            }

            /// Takes what is available, at most `most` units;
            /// [`Decision::charged`](crate::Decision::charged) says how many.
            pub fn acquire_up_to(
                &self,
                key: &Key,
                most: u64,
            ) -> Pending<<Self as Limiter>::Future> {
                Limiter::acquire_up_to(self, key, most)
            }

            /// Says what [`acquire`](Self::acquire) would say, and takes nothing.
            pub fn peek(&self, key: &Key, cost: u64) -> Pending<<Self as Limiter>::Future> {
                Limiter::peek(self, key, cost)
            }

            /// Takes `cost` units whether or not they are available, down to exhaustion.
            pub fn hit(&self, key: &Key, cost: u64) -> Pending<<Self as Limiter>::Future> {
                Limiter::hit(self, key, cost)
            }

            /// Gives back `cost` units: with the receipt of the decision that charged them, at most
            /// what it charged, less what has come back by itself meanwhile; without one, of the
            /// newest charge.
            pub fn refund(
                &self,
                key: &Key,
                cost: u64,
                receipt: Option<$crate::Receipt>,
            ) -> Pending<<Self as Limiter>::Future> {
                Limiter::refund(self, key, cost, receipt)
            }

            /// Denies the key everything for this long from now on, at most 18 years; zero ends a
            /// block.
            pub fn block(
                &self,
                key: &Key,
                block: std::time::Duration,
            ) -> Pending<<Self as Limiter>::Future> {
                Limiter::block(self, key, block)
            }

            /// Forgets the key and ends its block: it is as good as new.
            pub fn reset(&self, key: &Key) -> Pending<<Self as Limiter>::Future> {
                Limiter::reset(self, key)
            }
        }
    };
}

pub(crate) use handle_methods;
