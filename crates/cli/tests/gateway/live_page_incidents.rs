//! The live page while something goes wrong, in a real browser: a hostile key among a thousand rules, a fault of the file,
//! limits that are switched off, a store that is down, an end and a new start.

use std::fs;

use serde_json::{Value, json};
use testkit::{browser::Browser, needs, servers::Setup};
use tokio::{runtime::Handle, task::spawn_blocking};

use crate::{
    admin::operate,
    gateway_process::{Gateway, bounded},
    metrics::reported,
    recording_upstream::Upstream,
};

/// A key that would run as a script if the page took it for markup.
const HOSTILE: &str = "<img src=x onerror=document.title='broken'>";

const OPTIONS: [&str; 3] = ["--reveal-keys", "--drain", "1s"];

fn rules() -> String {
    let others = (1..1_000).map(|at| {
        format!("  - {{name: r{at}, match: {{path: /r{at}}}, key: global, quota: 1/day}}\n")
    });
    let others: String = others.collect();
    format!(
        "rules:\n  - {{name: names, match: {{path: /names}}, key: {{header: x-user}}, quota: 2/day}}\n{others}"
    )
}

async fn denied(gateway: &Gateway, number: usize) {
    let mut wire = gateway.connect().await;
    for at in 0..number + 2 {
        let request = format!("GET /names HTTP/1.1\nx-user: {HOSTILE}");
        let (head, _) = wire.answer(&request).await;
        assert_eq!(head.status(), if at < 2 { 200 } else { 429 });
    }
}

/// Sends requests of another key, whoever decides about them.
async fn requests(gateway: &Gateway, number: usize) {
    let mut wire = gateway.connect().await;
    for _ in 0..number {
        wire.answer("GET /names HTTP/1.1\nx-user: bob").await;
    }
}

/// The browser's page, whose parts eventually have a text.
struct Page<'b>(&'b Browser);

impl Page<'_> {
    fn shows(&self, id: &str, text: &str) {
        let found = format!(
            "return document.getElementById('{id}').innerText.includes({})",
            json!(text)
        );
        self.0.eventually(&format!("{text} in #{id}"), &found);
    }

    fn number(&self, script: &str) -> Value {
        self.0.js(&format!("return {script}"))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn page_shows_what_is_wrong() {
    needs!(redis);
    let Some(browser) = Browser::start() else {
        return;
    };
    bounded(async {
        let mut redis = Setup::redis().start().await;
        let upstream = Upstream::start().await;
        let url = redis.url();
        let options = [&OPTIONS[..], &["--redis", &url]].concat();
        let gateway = Gateway::start_with(&rules(), upstream.port, &options).await;
        denied(&gateway, 5).await;
        let (handle, options) = (Handle::current(), OPTIONS);
        let work = move || {
            let page = Page(&browser);
            let address = format!("http://127.0.0.1:{}/", gateway.admin);
            browser.open(&address, "document.querySelector('#limits tbody tr')");
            page.shows("summary", "names denied 5 of 7 requests");
            page.shows("keys", &format!("str:{HOSTILE}"));
            assert_eq!(page.number("document.images.length"), json!(0));
            assert_ne!(page.number("document.title"), json!("broken"));
            let series = [r#"ratelimit_denials_total{policy="names",result="limited"}"#];
            assert_eq!(handle.block_on(reported(&gateway, series)), [Some(5.0)]);

            redis.kill9();
            handle.block_on(requests(&gateway, 5));
            page.shows("state", "redis, down");

            fs::write(gateway.folder.path().join("rules.yaml"), "rules: [{name: a}]").unwrap();
            gateway.process.hang_up();
            page.shows("state", "rules.yaml");
            let off = operate(&gateway, "PUT /v1/enabled", r#"{"enabled": false}"#);
            assert_eq!(handle.block_on(off).0, 200);
            page.shows("state", "all limits");
            fs::write(gateway.folder.path().join("rules.yaml"), rules()).unwrap();
            let next = gateway.replaced(upstream.port, &options);
            let next = handle.block_on(next);
            page.shows("state", "local, up");
            handle.block_on(denied(&next, 1));
            page.shows("summary", "names denied 1 of 3 requests");
            // The stream that ended is the only thing that the browser complains about, and nothing is from elsewhere.
            let foreign = "performance.getEntriesByType('resource').filter((one) => !one.name.startsWith(location.origin)).length";
            assert_eq!(page.number(foreign), json!(0));
        };
        spawn_blocking(work).await.expect("no panic");
    })
    .await;
}
