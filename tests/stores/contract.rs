//! The contract, for each store of the library.

macro_rules! contract {
    ($($test:ident),*) => {
        mod memory {
            use testkit::store_contract;

            use crate::Bench;

            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    store_contract::$test(&Bench::memory()).await;
                }
            )*
        }

        mod compare_and_swap {
            use testkit::store_contract;

            use crate::Bench;

            $(
                #[tokio::test(start_paused = true)]
                async fn $test() {
                    store_contract::$test(&Bench::versions()).await;
                }
            )*
        }

        #[cfg(target_os = "linux")]
        mod redis {
            use testkit::store_contract;

            use crate::Bench;

            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    testkit::needs!(redis);
                    store_contract::$test(&Bench::redis().await).await;
                }
            )*
        }
    };
}

contract!(one_limit, exact_waits, corrections, at_once, counts_on);
