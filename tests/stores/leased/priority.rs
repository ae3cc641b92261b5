//! Classes of requests that share a limit, whose units nodes lease.

use tower_ratelimit::{ConfigErrorKind, Limiter, Priority, decision::Op, limiter::Tier};

use super::*;

/// Requests of a class, and how many of them passed.
struct OfClass {
    class: Priority,
    passed: Passed,
}

impl OfClass {
    fn new(percent: u8) -> Self {
        let class = Priority::share(percent).unwrap();
        Self {
            class,
            passed: Passed::default(),
        }
    }

    fn apply(&self, node: &Node) -> Pending<<Node as Limiter>::Future> {
        let in_class = (&Tier::DEFAULT, self.class);
        testkit::apply_in_class(node, in_class, &key(), Op::Acquire(1))
    }

    fn request(&self, node: &Node) {
        match self.apply(node) {
            Pending::Ready(answer) => self.passed.note(&answer.unwrap()),
            Pending::Later(answer) => {
                let passed = self.passed.clone();
                tokio::spawn(async move { passed.note(&answer.await.unwrap()) });
            }
        }
    }
}

/// Sends so many requests of each class to each node in each millisecond.
async fn load(nodes: &[Node], classes: &[(&OfClass, u32)], time: Duration) {
    for _ in 0..time.as_millis() {
        for node in nodes {
            for (class, each) in classes {
                (0..*each).for_each(|_| class.request(node));
            }
        }
        sleep(MS).await;
    }
}

#[tokio::test(start_paused = true)]
async fn units_of_a_class_serve_it_and_those_above_it() {
    let wire = Wire::new();
    let nodes = nodes(3, Quota::per_day(10_000).fixed_window(), &wire);
    let [batch, reads, critical] = [50, 80, 100].map(OfClass::new);
    // A flood of batch jobs gets half of the limit and no more.
    load(&nodes, &[(&batch, 5)], 2 * LENGTH).await;
    assert!(batch.passed.count() <= 5_000, "{}", batch.passed.count());
    assert!(batch.passed.count() > 4_500, "{}", batch.passed.count());
    // A flood of reads, with batch jobs among them.
    load(&nodes, &[(&batch, 5), (&reads, 5)], 2 * LENGTH).await;
    let both = batch.passed.count() + reads.passed.count();
    assert!((7_500..=8_000).contains(&both), "{both}");
    // Critical requests get all the rest, also what the nodes still hold for the others.
    load(
        &nodes,
        &[(&batch, 1), (&reads, 1), (&critical, 5)],
        4 * LENGTH,
    )
    .await;
    let others = batch.passed.count() + reads.passed.count();
    assert!(others <= 8_000, "{others}");
    let all = others + critical.passed.count();
    assert!((9_900..=10_000).contains(&all), "{all}");
}

#[tokio::test(start_paused = true)]
async fn node_spends_units_of_a_lower_class_for_a_higher_one() {
    let wire = Wire::new();
    let nodes = nodes(1, Quota::per_day(1_000).fixed_window(), &wire);
    let batch = OfClass::new(50);
    load(&nodes, &[(&batch, 2)], LENGTH / 10).await;
    let critical = OfClass::new(100);
    let Pending::Ready(decision) = critical.apply(&nodes[0]) else {
        panic!("the node has units");
    };
    assert!(decision.unwrap().is_leased());
}

#[test]
fn eventual_mode_has_no_classes() {
    let mode = Mode::eventual(Duration::from_millis(50)).ahead(8);
    let limiter = SharedLimiter::builder(Quota::per_day(1_000)).mode(mode);
    let limiter = limiter.build_on(Wire::new()).unwrap();
    assert!(limiter.facts().classes.is_err());
    let layer = tower_ratelimit::RateLimitLayer::new(limiter, tower_ratelimit::Global);
    let error = layer.try_priority(|_| Priority::CRITICAL).unwrap_err();
    assert_eq!(error.kind(), ConfigErrorKind::Priority);
    assert!(error.to_string().contains("eventual mode"), "{error}");
}
