//! Long responses next to a steady stream of short ones.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::*;

async fn to(node: &Node, path: &str) -> Answer {
    let request = get(path).body(String::new()).unwrap();
    node.clone().oneshot(request).await.unwrap()
}

/// Sends a short request every other millisecond, of a hundred keys, until `stop`, and counts those that pass.
async fn short_ones(node: &Node, stop: &AtomicBool, passed: &Arc<AtomicUsize>) {
    let mut running = JoinSet::new();
    let mut tick = tokio::time::interval(Duration::from_millis(2));
    for number in 0.. {
        tick.tick().await;
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let (node, path) = (node.clone(), format!("/short/{}", number % 100));
        let passed = Arc::clone(passed);
        running.spawn(async move {
            let is_ok = to(&node, &path).await.status() == 200;
            passed.fetch_add(usize::from(is_ok), Ordering::Relaxed);
        });
    }
    running.join_all().await;
}

/// Renewals have their turn however many requests end meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_of_long_responses_are_renewed_under_steady_short_ones() {
    needs!(redis);
    let server = Server::start().await;
    let by_path = || key_fn(|parts| Key::from(parts.uri.path()));
    let layer = |lease| ConcurrencyLayer::new(at_most(3, &server.url(), lease), by_path());
    let node = layer(MODERATE).layer(Probe::default());
    let _long = [
        to(&node, "/long").await,
        to(&node, "/long").await,
        to(&node, "/long").await,
    ];
    let names: Vec<_> = leases(&server).await.into_keys().collect();
    assert_eq!(names.len(), 3);

    let (stop, passed) = (AtomicBool::new(false), Arc::<AtomicUsize>::default());
    let renewed = async {
        for _ in 0..3 {
            let before = passed.load(Ordering::Relaxed);
            renewed(&server, &names, MODERATE).await;
            assert!(passed.load(Ordering::Relaxed) > before, "none passed");
        }
        stop.store(true, Ordering::Relaxed);
    };
    tokio::join!(renewed, short_ones(&node, &stop, &passed));
    let stranger = layer(LONG).layer(Probe::default());
    let response = to(&stranger, "/long").await;
    assert_eq!(response.status(), 429, "all three are taken");
}

#[tokio::test]
async fn classes_share_the_permits_of_all_nodes() {
    needs!(redis);
    let server = Server::start().await;
    let of_class = |percent: u8| {
        let class = Priority::share(percent).unwrap();
        let layer = layered(at_most(4, &server.url(), LONG)).priority(move |_| class);
        layer.layer(Probe::default())
    };
    let (half, critical) = (of_class(50), of_class(100));
    let mut running = vec![held(&half).await, held(&critical).await];
    assert_eq!(field(&running[0], "x-ratelimit-remaining"), Some("1"));
    assert_eq!(field(&running[1], "x-ratelimit-remaining"), Some("2"));
    // Two of four run, whoever has them: half of the limit.
    assert_eq!(send(&half).await.status(), 503);
    running.push(held(&critical).await);
    running.push(held(&critical).await);
    for node in [&half, &critical] {
        assert_eq!(send(node).await.status(), 429);
    }
}
