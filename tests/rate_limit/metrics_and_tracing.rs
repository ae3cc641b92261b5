//! The adapters for `tracing` and `metrics`, and the one error that the crate logs itself.

use std::sync::Arc;

use testkit::{Lines, Probe, get, limiter, send};
use tower::Layer;
use tower_ratelimit::{
    Global, Quota, RateLimitLayer,
    observe::{Event, Observer},
};

/// Writes each event under its name.
fn named(name: &'static str, lines: &Lines) -> impl Observer {
    let lines = lines.clone();
    move |event: &Event<'_>| {
        if let Event::Decided(decided) = event {
            lines.push(format!("{name} {:?}", decided.decision().outcome()));
        }
    }
}

#[test]
fn all_observers_of_a_tuple_get_each_event_in_order() {
    let lines = Lines::default();
    let named = |name| named(name, &lines);
    let (limiter, _) = limiter(Quota::per_hour(1));
    let two = RateLimitLayer::new(limiter.clone(), Global).observer((named("a"), named("b")));
    let three = RateLimitLayer::new(limiter, Global).observer((named("c"), named("d"), named("e")));
    send(&two.layer(Probe::default()), get("/"));
    send(&three.layer(Probe::default()), get("/"));
    assert_eq!(
        lines.take(),
        ["a Allowed", "b Allowed", "c Denied", "d Denied", "e Denied"]
    );
}

#[test]
fn layers_can_share_an_observer() {
    let lines = Lines::default();
    let shared: Arc<dyn Observer> = Arc::new(named("shared", &lines));
    let concrete = Arc::new(named("concrete", &lines));
    for _ in 0..2 {
        let (limiter, _) = limiter(Quota::per_hour(1));
        let layer = RateLimitLayer::new(limiter, Global)
            .observer((Arc::clone(&shared), Arc::clone(&concrete)));
        send(&layer.layer(Probe::default()), get("/"));
    }
    let both = ["shared Allowed", "concrete Allowed"];
    assert_eq!(lines.take(), [both, both].concat());
}

#[cfg(feature = "tracing")]
mod tracing {
    use testkit::{Probe, get, limiter, logged, send};
    use tower::Layer;
    use tower_ratelimit::{
        AsyncLimiter, Decision, Global, Header, Key, KeyErrorKind, LimiterError, MissingKey,
        PeerIp, Quota, RateLimitLayer,
        decision::{Op, Policy},
        observe::TracingObserver,
        spend::Tokens,
    };

    #[test]
    fn a_missing_connect_info_is_one_error_that_names_the_fix() {
        let lines = logged(|| {
            let layer = RateLimitLayer::new(Quota::per_hour(1), PeerIp);
            let service = layer.layer(Probe::default());
            for _ in 0..5 {
                assert_eq!(send(&service, get("/")).status(), 500);
            }
        });
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].starts_with("ERROR"), "{lines:?}");
        assert!(
            lines[0].contains("into_make_service_with_connect_info"),
            "{lines:?}"
        );
    }

    #[test]
    fn units_for_responses_that_nobody_reads_are_one_warning() {
        let lines = logged(|| {
            let limits = [Quota::per_hour(3).by(Global).spends(Tokens::total)];
            let layer = RateLimitLayer::all(limits);
            for _ in 0..3 {
                send(&layer.layer(Probe::default()), get("/"));
            }
        });
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].contains("call `.spending(readers)`"), "{lines:?}");
    }

    #[test]
    fn decisions_are_logged_without_their_keys() {
        let lines = logged(|| {
            let (limiter, _) = limiter(Quota::per_hour(1).named("api"));
            let layer = RateLimitLayer::new(limiter, Header::new("x-api-key"))
                .on_missing_key(KeyErrorKind::Absent, MissingKey::Reject)
                .skip(|parts| parts.uri.path() == "/free")
                .observer(TracingObserver::new());
            let service = layer.layer(Probe::default());
            for _ in 0..2 {
                send(&service, get("/").header("x-api-key", "hunter2"));
            }
            send(&service, get("/free"));
            send(&service, get("/"));
        });
        let heads: Vec<_> = lines
            .iter()
            .map(|line| line.split_whitespace().next())
            .collect();
        assert_eq!(
            heads,
            [Some("TRACE"), Some("DEBUG"), Some("TRACE"), Some("DEBUG")]
        );
        assert!(lines[1].contains(r#"policy="api""#), "{lines:?}");
        assert!(lines[1].contains("retry_after=Some(3600s)"), "{lines:?}");
        for decided in &lines[..2] {
            assert!(decided.contains(" latency="), "{decided}");
        }
        assert!(
            lines.iter().all(|line| !line.contains("hunter2")),
            "{lines:?}"
        );
    }

    #[test]
    fn an_overflowed_request_is_logged_as_a_denial_that_passed() {
        let lines = logged(|| {
            let (limiter, _) = limiter(Quota::per_hour(1).named("api"));
            let layer = RateLimitLayer::new(limiter, Global).overflow();
            let service = layer
                .observer(TracingObserver::new())
                .layer(Probe::default());
            for _ in 0..2 {
                assert_eq!(send(&service, get("/")).status(), 200);
            }
        });
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(!lines[0].contains("overflowed"), "{lines:?}");
        assert!(lines[1].trim_start().starts_with("DEBUG"), "{lines:?}");
        assert!(lines[1].contains("rate limit exceeded"), "{lines:?}");
        assert!(lines[1].contains("overflowed=true"), "{lines:?}");
    }

    struct Flaky(std::sync::atomic::AtomicU32);

    impl AsyncLimiter for Flaky {
        async fn apply(&self, _: &Key, _: Op) -> Result<Decision, LimiterError> {
            let call = self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            if call == 3 {
                let status = tower_ratelimit::decision::QuotaStatus::new(&self.policies()[0]);
                return Ok(Decision::allowed(1, Default::default(), status));
            }
            Err(LimiterError::unavailable("connection refused"))
        }

        fn policies(&self) -> &[Policy] {
            const { &[Policy::new("flaky", 1)] }
        }
    }

    #[test]
    fn a_failing_limiter_warns_once_per_outage() {
        let lines = logged(|| {
            let layer =
                RateLimitLayer::new(Flaky(0.into()), Global).observer(TracingObserver::new());
            let service = layer.layer(Probe::default());
            for _ in 0..6 {
                send(&service, get("/"));
            }
        });
        let warned = lines
            .iter()
            .filter(|line| line.trim_start().starts_with("WARN"));
        assert_eq!(warned.count(), 2, "{lines:?}");
        assert!(lines[0].contains("connection refused"), "{lines:?}");
    }
}

#[cfg(feature = "metrics")]
mod metrics {
    use std::collections::BTreeMap;

    use http_body_util::BodyExt;
    use metrics_util::debugging::{DebugValue, DebuggingRecorder};
    use tower::Layer;
    use tower_ratelimit::{
        Global, Header, LocalLimiter, Quota, RateLimitLayer, observe::MetricsObserver,
        quota::OwnedQuota, spend::Tokens,
    };

    use testkit::{Probe, get, limiter, send};

    /// Counters and gauges by name and labels; histograms by their number of samples.
    fn recorded(run: impl FnOnce()) -> BTreeMap<String, u64> {
        let recorder = DebuggingRecorder::new();
        let snapshotter = recorder.snapshotter();
        metrics::with_local_recorder(&recorder, run);
        let metrics = snapshotter.snapshot().into_vec();
        metrics
            .into_iter()
            .map(|(key, _, _, value)| {
                let (name, labels) = key.key().clone().into_parts();
                let labels = labels.iter().map(|l| format!("{}={}", l.key(), l.value()));
                let labels: Vec<_> = labels.collect();
                let value = match value {
                    DebugValue::Counter(count) => count,
                    DebugValue::Gauge(value) => value.into_inner() as u64,
                    DebugValue::Histogram(samples) => samples.len() as u64,
                };
                (format!("{}{{{}}}", name.as_str(), labels.join(",")), value)
            })
            .collect()
    }

    fn service(limiter: &LocalLimiter, shadow: bool) -> impl Fn(&str) {
        service_of(limiter, 2, shadow)
    }

    fn service_of(limiter: &LocalLimiter, cost: u64, shadow: bool) -> impl Fn(&str) {
        let layer = RateLimitLayer::new(limiter.clone(), Header::new("x-api-key"))
            .skip(|parts| parts.uri.path() == "/free")
            .shadow(shadow)
            .cost(move |_| cost)
            .observer(MetricsObserver::new());
        let service = layer.layer(Probe::default());
        move |path| {
            send(&service, get(path).header("x-api-key", "hunter2"));
        }
    }

    #[test]
    fn owned_name_is_a_label_like_a_static_one() {
        let counted = |quota: OwnedQuota| {
            recorded(|| {
                let (limiter, _) = limiter(quota);
                for path in ["/", "/", "/free"] {
                    service(&limiter, false)(path);
                }
            })
        };
        let quota = Quota::per_hour(3);
        let fixed = counted(quota.named("api").into());
        assert_eq!(counted(quota.named_owned("api")), fixed);
        let denials = "ratelimit_denials_total{policy=api,result=limited}";
        assert_eq!(fixed.get(denials), Some(&1), "{fixed:?}");
    }

    #[test]
    fn units_of_responses_are_counted_by_their_source() {
        let (limiter, _) = limiter(Quota::per_hour(3).named("api"));
        let metrics = recorded(|| {
            let reader = |_: &[u8], tokens: &mut Tokens| tokens.report(&Tokens::output(10));
            let layer = RateLimitLayer::new(limiter, Header::new("x-api-key"))
                .observer(MetricsObserver::new())
                .spending(move |_: &http::response::Parts| Some(reader))
                .reserve(1);
            let response = send(&layer.layer(Probe::default()), get("/"));
            testkit::now(response.into_body().collect()).expect("a body");
        });
        for (name, value) in [
            ("ratelimit_cost_total{policy=api}", 3),
            ("ratelimit_spent_units_total{policy=api,source=reported}", 3),
            ("ratelimit_spend_forgotten_units_total{policy=api}", 7),
        ] {
            assert_eq!(metrics.get(name), Some(&value), "{name}: {metrics:?}");
        }
    }

    #[test]
    fn units_of_responses_are_counted_for_each_limit_that_they_charge() {
        let metrics = recorded(|| {
            let reader = |_: &[u8], tokens: &mut Tokens| tokens.report(&Tokens::output(10));
            let limits = [
                Quota::per_hour(3).named("requests").by(Global),
                Quota::per_hour(4)
                    .named("tokens")
                    .by(Global)
                    .spends(Tokens::total),
                Quota::per_hour(90)
                    .named("usd")
                    .by(Global)
                    .spends(|tokens| 8 * tokens.output),
            ];
            let layer = RateLimitLayer::all(limits)
                .observer(MetricsObserver::new())
                .spending(move |_: &http::response::Parts| Some(reader))
                .reserve(1);
            let response = send(&layer.layer(Probe::default()), get("/"));
            testkit::now(response.into_body().collect()).expect("a body");
        });
        let spent =
            |policy| format!("ratelimit_spent_units_total{{policy={policy},source=reported}}");
        for (name, value) in [
            ("ratelimit_cost_total{policy=requests}", Some(&1)),
            ("ratelimit_cost_total{policy=tokens}", Some(&4)),
            ("ratelimit_cost_total{policy=usd}", Some(&80)),
            (&spent("requests"), None),
            (&spent("tokens"), Some(&4)),
            (&spent("usd"), Some(&80)),
            (
                "ratelimit_spend_forgotten_units_total{policy=tokens}",
                Some(&6),
            ),
            ("ratelimit_spend_forgotten_units_total{policy=usd}", None),
        ] {
            assert_eq!(metrics.get(name), value, "{name}: {metrics:?}");
        }
    }

    #[test]
    fn results_costs_and_durations_are_counted_by_policy() {
        let (limiter, _) = limiter(Quota::per_hour(10).named("api"));
        let metrics = recorded(|| {
            let enforced = service(&limiter, false);
            for _ in 0..6 {
                enforced("/");
            }
            enforced("/free");
            service(&limiter, true)("/");
        });
        let expected = [
            ("ratelimit_requests_total{policy=api,result=allowed}", 5),
            ("ratelimit_requests_total{policy=api,result=limited}", 1),
            (
                "ratelimit_requests_total{policy=api,result=shadow_limited}",
                1,
            ),
            ("ratelimit_requests_total{policy=api,result=bypassed}", 1),
            ("ratelimit_denials_total{policy=api,result=limited}", 1),
            (
                "ratelimit_denials_total{policy=api,result=shadow_limited}",
                1,
            ),
            ("ratelimit_near_limit_total{policy=api}", 4),
            ("ratelimit_cost_total{policy=api}", 10),
            (
                "ratelimit_check_duration_seconds{policy=api,backend=local}",
                7,
            ),
        ];
        let expected: BTreeMap<_, _> = expected
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect();
        assert_eq!(metrics, expected);
    }

    #[test]
    fn overflowed_requests_have_a_result_of_their_own() {
        let (limiter, _) = limiter(Quota::per_hour(2).named("api"));
        let metrics = recorded(|| {
            let layer = RateLimitLayer::new(limiter, Header::new("x-api-key")).overflow();
            let service = layer
                .observer(MetricsObserver::new())
                .layer(Probe::default());
            for _ in 0..5 {
                send(&service, get("/").header("x-api-key", "hunter2"));
            }
        });
        let count = |name: &str| metrics.get(&format!("ratelimit_{name}")).copied();
        assert_eq!(count("requests_total{policy=api,result=allowed}"), Some(2));
        assert_eq!(
            count("requests_total{policy=api,result=overflowed}"),
            Some(3)
        );
        assert_eq!(count("requests_total{policy=api,result=limited}"), None);
        assert_eq!(
            count("denials_total{policy=api,result=overflowed}"),
            Some(3)
        );
        assert_eq!(count("cost_total{policy=api}"), Some(2));
    }

    /// The outcome of the request, not of each quota; and the quota that decided it.
    #[test]
    fn a_request_denied_by_one_of_several_quotas_is_limited_under_all() {
        let (limiter, _) = limiter([
            Quota::per_second(1).named("second"),
            Quota::per_day(100).named("day"),
        ]);
        let metrics = recorded(|| {
            let enforced = service_of(&limiter, 1, false);
            enforced("/");
            enforced("/");
        });
        let count = |name: &str| metrics.get(name).copied();
        for policy in ["second", "day"] {
            let requests =
                |result| format!("ratelimit_requests_total{{policy={policy},result={result}}}");
            assert_eq!(count(&requests("allowed")), Some(1));
            assert_eq!(count(&requests("limited")), Some(1));
            assert_eq!(
                count(&format!("ratelimit_cost_total{{policy={policy}}}")),
                Some(1)
            );
        }
        let denials = |policy| format!("ratelimit_denials_total{{policy={policy},result=limited}}");
        assert_eq!(count(&denials("second")), Some(1));
        assert_eq!(count(&denials("day")), None);
    }

    #[test]
    fn cost_is_what_was_charged_in_the_end() {
        let (limiter, _) = limiter(Quota::per_hour(10).named("api"));
        let metrics = recorded(|| {
            let layer = RateLimitLayer::new(limiter, Header::new("x-api-key"))
                .cost(|_| 2)
                .final_cost(|_, charged| charged + 1)
                .observer(MetricsObserver::new());
            let service = layer.clone().layer(Probe::default());
            send(&service, get("/"));
            let free = layer.count_if(|_| false).layer(Probe::default());
            send(&free, get("/"));
        });
        assert_eq!(metrics["ratelimit_cost_total{policy=api}"], 3);
    }

    #[cfg(feature = "tracing")]
    #[test]
    fn logs_and_metrics_go_together() {
        use tower_ratelimit::{Global, observe::TracingObserver};

        let (limiter, _) = limiter(Quota::per_hour(1));
        let layer = RateLimitLayer::new(limiter, Global)
            .observer((TracingObserver::new(), MetricsObserver::new()));
        let service = layer.layer(Probe::default());
        let mut metrics = BTreeMap::new();
        let lines = testkit::logged(|| {
            metrics = recorded(|| {
                send(&service, get("/"));
            });
        });
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert_eq!(
            metrics["ratelimit_requests_total{policy=default,result=allowed}"],
            1
        );
    }

    #[test]
    fn the_table_is_recorded_on_request() {
        let (limiter, _) = limiter(Quota::per_hour(1));
        for key in 0..7_u64 {
            assert!(limiter.acquire(&key.into(), 1).is_allowed());
        }
        let metrics = recorded(|| {
            MetricsObserver::new().record_table(limiter.tracked_keys(), limiter.evictions());
        });
        assert_eq!(metrics["ratelimit_tracked_keys{backend=local}"], 7);
        assert_eq!(metrics["ratelimit_evictions_total{backend=local}"], 0);
    }
}
