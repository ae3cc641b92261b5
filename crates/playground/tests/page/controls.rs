//! The page's controls, by mouse and by keyboard.

use serde_json::{Value, json};
use tower_ratelimit::Quota;

use testkit::browser::Browser;

use crate::open_page::{fresh_page, open};

/// The page in a browser, with its time stopped; `None` if the test is skipped.
pub(crate) fn opened(fragment: &str) -> Option<Browser> {
    let (page, browser) = (fresh_page()?, Browser::start()?);
    open(&browser, &page, fragment);
    browser.js("playground.sim.paused = true");
    Some(browser)
}

fn texts(browser: &Browser) -> Value {
    browser.js("return playground.lanes.map((lane) => lane.quota.text)")
}

#[test]
fn nothing_is_fetched_and_nothing_is_complained_about() {
    let Some(browser) = opened("") else {
        return;
    };
    browser.js("document.querySelectorAll('button').forEach((button) => button.click()); playground.step(20)");
    let addresses: Vec<_> = browser
        .log("performance")
        .iter()
        .filter_map(request)
        .collect();
    assert_eq!(addresses.len(), 1, "{addresses:?}");
    assert!(addresses[0].starts_with("file://"), "{addresses:?}");
    assert_eq!(browser.log("browser"), Vec::<Value>::new());
    // The page's policy forbids all requests: this one tests the policy.
    browser.js("new Image().src = 'http://127.0.0.1:9/picture.png'");
    browser.eventually(
        "the policy refuses",
        "globalThis.refused ??= (addEventListener('securitypolicyviolation', () => { globalThis.refused = 1; }), 0);
         new Image().src = 'http://127.0.0.1:9/other.png'; return globalThis.refused === 1;",
    );
}

/// The address of a request in the log of Chromium's protocol.
fn request(entry: &Value) -> Option<String> {
    let event: Value = serde_json::from_str(entry["message"].as_str()?).ok()?;
    let event = &event["message"];
    let address = event["params"]["request"]["url"].as_str()?;
    let sent = event["method"] == "Network.requestWillBeSent" && address != "about:blank";
    sent.then(|| address.to_owned())
}

#[test]
fn each_control_of_a_lane_shows_its_quota() {
    let Some(browser) = opened("") else {
        return;
    };
    let body = "const [control, value] = arguments;
        const input = playground.lanes[0].inputs[control];
        input.value = value;
        input.dispatchEvent(new Event('input'));
        return [playground.lanes[0].quota.text, playground.lanes[0].find('.rust').textContent,
            input.parentElement.querySelector('.value')?.textContent ?? ''];";
    for (control, value, text, label) in [
        ("limit", "7", "7/10s", "7"),
        ("period", "6", "7/60s", "60 s"),
        ("burst", "20", "7/60s burst 20", "20"),
        ("burst", "0", "7/60s", "as the limit"),
        ("step", "3", "7/60s refill_every 5s", "every 5 s"),
        ("step", "0", "7/60s", "evenly"),
        (
            "algorithm",
            "leaky_bucket",
            "7/60s leaky_bucket queue 10",
            "",
        ),
        ("queue", "3", "7/60s leaky_bucket queue 3", "3"),
        (
            "algorithm",
            "sliding_window",
            "7/60s sliding_window slices 1",
            "",
        ),
        ("slices", "6", "7/60s sliding_window slices 6", "6"),
        ("algorithm", "sliding_log", "7/60s sliding_log", ""),
        ("algorithm", "fixed_window", "7/60s fixed_window", ""),
        ("algorithm", "token_bucket", "7/60s", ""),
        ("text", "9/s burst 3", "9/1s burst 3", ""),
    ] {
        let reported = browser.js_with(body, &json!([control, value]));
        let quota: Quota = text.parse().expect("a quota");
        assert_eq!(reported[0], quota.to_string(), "{control} {value}");
        assert_eq!(reported[2], label, "{control} {value}");
        assert_eq!(
            texts(&browser)[1],
            "5/10s fixed_window",
            "the other lane stays"
        );
    }
    let shown = browser.js(
        "return [...playground.lanes[0].root.querySelectorAll('[data-for]')]
        .filter((label) => !label.hidden).map((label) => label.dataset.for)",
    );
    assert_eq!(shown, json!(["token_bucket", "token_bucket"]));
}

#[test]
fn an_invalid_quota_is_reported_at_the_control_and_the_last_one_stays() {
    let Some(browser) = opened("") else {
        return;
    };
    let body = "const input = playground.lanes[1].inputs[arguments[0]];
        input.value = arguments[1];
        input.dispatchEvent(new Event('input'));
        const fault = playground.lanes[1].find('.fault');
        const before = playground.lanes[1].clients[2].counts.join();
        document.getElementById('one').click();
        return [fault.hidden ? '' : fault.textContent, input.getAttribute('aria-invalid'),
            before !== playground.lanes[1].clients[2].counts.join(), playground.lanes[1].quota.text];";
    for text in [
        "",
        "5/10s brust 3",
        "5/10s fixed_window burst 3",
        "0/s",
        "☃/s",
    ] {
        let fault = text.parse::<Quota>().expect_err("no quota").to_string();
        let reported = browser.js_with(body, &json!(["text", text]));
        assert_eq!(reported, json!([fault, "true", true, "5/10s fixed_window"]));
    }
    // By sliders as well: a seventh of ten seconds is no whole number of microseconds.
    browser.js_with(body, &json!(["text", "5/10s sliding_window"]));
    let reported = browser.js_with(body, &json!(["slices", "7"]));
    let fault = "5/10s sliding_window slices 7"
        .parse::<Quota>()
        .expect_err("no quota")
        .to_string();
    assert_eq!(
        reported,
        json!([fault, "true", true, "5/10s sliding_window"])
    );
    assert_eq!(browser.js_with(body, &json!(["slices", "5"]))[0], "");
}

#[test]
fn requests_are_sent_by_the_buttons_and_by_the_rates() {
    let Some(browser) = opened("#r=0,0,0&w=2") else {
        return;
    };
    let counts =
        "return playground.lanes.map((lane) => lane.clients.map((client) => client.counts))";
    assert_eq!(
        browser.js(counts),
        json!([[[0, 0], [0, 0], [0, 0]], [[0, 0], [0, 0], [0, 0]]])
    );
    browser.js("document.getElementById('one').click()");
    assert_eq!(
        browser.js(counts),
        json!([[[0, 0], [1, 0], [0, 0]], [[0, 0], [1, 0], [0, 0]]])
    );
    browser.js("document.querySelector('[name=watch][value=\"3\"]').click(); document.getElementById('burst').click()");
    assert_eq!(
        browser.js(counts),
        json!([[[0, 0], [1, 0], [5, 15]], [[0, 0], [1, 0], [5, 15]]])
    );
    // A rate of one a second for a minute and a half, with some tolerance.
    browser.js(
        "const rate = document.querySelectorAll('#clients [type=range]')[0];
        rate.value = 7; rate.dispatchEvent(new Event('input')); playground.step(90)",
    );
    let counts = browser.js(counts);
    let sent =
        counts[0][0][0].as_u64().expect("a count") + counts[0][0][1].as_u64().expect("a count");
    assert!((80..=100).contains(&sent), "{counts}");
}

#[test]
fn the_last_response_is_shown_verbatim() {
    let Some(browser) = opened("#r=0,0,0&a=1/minute&w=1") else {
        return;
    };
    let shown = browser.js("const one = document.getElementById('one'); one.click(); one.click(); playground.refresh();
        return [document.getElementById('answer0').textContent, playground.lanes[0].clients[0].answer]");
    let text = shown[0].as_str().expect("a text");
    let answer = &shown[1];
    let head = format!(
        "HTTP/1.1 {} {}\n",
        answer["status"],
        answer["reason"].as_str().expect("a text")
    );
    assert_eq!(head, "HTTP/1.1 429 Too Many Requests\n");
    let fields = answer["headers"].as_array().expect("fields").iter();
    let fields: String = fields
        .map(|field| {
            format!(
                "{}: {}\n",
                field[0].as_str().unwrap_or(""),
                field[1].as_str().unwrap_or("")
            )
        })
        .collect();
    assert!(fields.contains("retry-after: 60\n"), "{fields}");
    assert_eq!(
        text,
        format!(
            "{head}{fields}\n{}",
            answer["body"].as_str().expect("a body")
        )
    );
    let rows = browser.js(
        "return [...document.querySelectorAll('#rows tr')].map((row) => row.cells[2].textContent)",
    );
    assert_eq!(rows, json!(["429, retry in 60 s", "200, 0 left"]));
}

#[test]
fn the_address_keeps_the_settings() {
    let Some(browser) = opened("#a=7/minute+burst+3&b=2/s+sliding_log&r=0,2,20&w=1&x=10") else {
        return;
    };
    let settings = "return [playground.lanes.map((lane) => lane.quota.text), playground.sim.rates,
        playground.sim.watch, playground.sim.speed, location.hash]";
    let reported = browser.js(settings);
    assert_eq!(reported[0], json!(["7/60s burst 3", "2/1s sliding_log"]));
    assert_eq!(
        (&reported[1], &reported[2], &reported[3]),
        (&json!([0, 2, 20]), &json!(1), &json!(10))
    );
    // The address that the page makes has the same state.
    let page = fresh_page().expect("it was there");
    open(&browser, &page, reported[4].as_str().expect("a fragment"));
    assert_eq!(browser.js(settings), reported);
    // The page reports an address with a fault, and uses the defaults.
    open(&browser, &page, "#a=nonsense&r=-1,x,99&w=7&x=3");
    let reported = browser.js(settings);
    assert_eq!(reported[0], json!(["5/10s", "5/10s fixed_window"]));
    assert_eq!(
        (&reported[1], &reported[2], &reported[3]),
        (&json!([0, 0, 20]), &json!(3), &json!(1))
    );
    let fault = browser.js("return playground.lanes[0].find('.fault').textContent");
    assert!(
        fault
            .as_str()
            .is_some_and(|fault| fault.contains("nonsense")),
        "{fault}"
    );
}

/// The page compares algorithms, not limits: both lanes allow as many requests in the same time,
/// with the same burst.
#[test]
fn it_opens_with_equal_limits() {
    let Some(browser) = opened("") else {
        return;
    };
    let limits = browser.js(
        "return playground.lanes.map(({ quota }) => [quota.limit, quota.period, quota.capacity])",
    );
    assert_eq!(limits[0], limits[1]);
    let algorithms = browser.js("return playground.lanes.map((lane) => lane.quota.algorithm)");
    assert_ne!(algorithms[0], algorithms[1]);
    let heading = browser.js("return document.querySelector('h1').textContent");
    let heading = heading.as_str().expect("a text");
    assert!(
        heading.contains("send requests") && heading.contains("compare"),
        "{heading}"
    );
}

/// A change decides the requests of the last minute again, in both lanes: the effect of the other
/// algorithm is visible at once, without new requests.
#[test]
fn a_change_replays_the_past_in_both_lanes() {
    let Some(browser) = opened("#r=0,0,0&w=1&a=5/60s&b=5/60s") else {
        return;
    };
    browser.js(
        "const burst = document.getElementById('burst');
        playground.step(58 - (playground.sim.now / 1e6) % 60 + 60); burst.click(); playground.step(4); burst.click(); playground.step(10)",
    );
    let reported = "const [algorithm] = arguments;
        const { now } = playground.sim;
        const { inputs } = playground.lanes[1];
        inputs.algorithm.value = algorithm;
        inputs.algorithm.dispatchEvent(new Event('input'));
        return [playground.lanes.map((lane) => lane.clients[0].counts), playground.sim.now === now,
            playground.lanes.map((lane) => [...lane.bins.values()].reduce((sum, bin) => sum + bin.offered[0], 0)),
            playground.sim.rows.length];";
    for (algorithm, passed) in [
        ("fixed_window", 10),
        ("sliding_log", 5),
        ("token_bucket", 5),
        ("fixed_window", 10),
    ] {
        assert_eq!(
            browser.js_with(reported, &json!([algorithm])),
            json!([[[5, 35], [passed, 40 - passed]], true, [40, 40], 20]),
            "{algorithm}"
        );
    }
    // Later requests continue from there: the window of A is used up, and a new one of B has begun.
    browser.js("playground.step(60); document.getElementById('one').click()");
    let counts = browser.js("return playground.lanes.map((lane) => lane.clients[0].counts[0])");
    assert_eq!(counts, json!([6, 11]));
}

#[test]
fn answers_fold() {
    let Some(browser) = opened("") else {
        return;
    };
    let shown = "document.querySelector('#answers summary').click();
        return [document.getElementById('answers').open, document.getElementById('answer0').checkVisibility()]";
    let first = browser.js(shown);
    let second = browser.js(shown);
    assert_eq!(first[0], first[1]);
    assert_eq!(second, json!([first[0] == false, first[1] == false]));
}

/// A range of days would replay half a million requests.
#[test]
fn an_address_with_a_long_period_opens_at_once() {
    let (Some(page), Some(browser)) = (fresh_page(), Browser::start()) else {
        return;
    };
    for fragment in [
        "#a=100/day",
        "#a=100/day&r=20,20,20",
        "#a=1000/365d&r=0,0,0",
        "#b=3/day+sliding_log&x=60",
    ] {
        open(&browser, &page, fragment);
        browser.js("playground.sim.paused = true");
        let reported = browser.js(
            "const sent = playground.lanes.map((lane) => lane.clients.flatMap((client) => client.counts).reduce((sum, count) => sum + count));
            const texts = [];
            const { fillText } = CanvasRenderingContext2D.prototype;
            CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
                if (this.canvas.className === 'strip') texts.push(String(text));
                return fillText.call(this, text, ...rest);
            };
            playground.draw();
            return [Math.max(...sent), texts.filter((text) => /^\\d\\d[:-]\\d\\d/.test(text)).length]",
        );
        let sent = reported[0].as_u64().expect("a count");
        assert!(sent <= 21_000, "{fragment}: {sent} requests");
        assert_eq!(
            sent == 0,
            fragment.contains("r=0,0,0"),
            "{fragment}: {sent}"
        );
        assert!(
            reported[1].as_u64() >= Some(4),
            "{fragment}: {} labels",
            reported[1]
        );
    }
}

/// An `output` is a live region by default.
#[test]
fn one_region_speaks() {
    let Some(browser) = opened("") else {
        return;
    };
    let reported = browser.js(
        "return [...document.querySelectorAll('output, [role=status], [aria-live]')]
            .filter((each) => each.getAttribute('aria-live') !== 'off').map((each) => each.id)",
    );
    assert_eq!(reported, json!(["live"]));
    // The label names a slider, and its value is announced with it.
    let reported = browser.js(
        "const { limit } = playground.lanes[0].inputs;
        const value = limit.parentElement.querySelector('.value');
        return [value.textContent, value.getAttribute('aria-hidden'), limit.getAttribute('aria-valuetext')]",
    );
    assert_eq!(reported, json!(["5", "true", "5"]));
}

#[test]
fn everything_is_reached_and_done_by_keyboard() {
    const TAB: &str = "\u{E004}";
    const RIGHT: &str = "\u{E014}";
    let Some(browser) = opened("#r=0,0,0") else {
        return;
    };
    // Each control has a name of its own, and of radio buttons one is a tab stop.
    browser.js("globalThis.seen = new Set(); addEventListener('focusin', (event) => seen.add(event.target))");
    let stops = browser.js(
        "return document.querySelectorAll('button, select, summary, a, [tabindex=\"0\"], \
        input:not([type=radio]), input[type=radio]:checked').length",
    );
    let hidden = browser.js("return document.querySelectorAll('label[hidden] input, details:not([open]) [tabindex=\"0\"]').length");
    let stops = stops.as_u64().expect("a count") - hidden.as_u64().expect("a count");
    browser.press(&vec![TAB; usize::try_from(stops).expect("a count")]);
    assert_eq!(browser.js("return seen.size"), json!(stops));
    // Keys: one request, then twenty, and time starts and stops.
    browser.js("document.activeElement.blur()");
    let sent = "return playground.lanes[1].clients[2].counts.reduce((sum, count) => sum + count)";
    browser.press(&["s"]);
    assert_eq!(browser.js(sent), json!(1));
    browser.press(&["b"]);
    assert_eq!(browser.js(sent), json!(21));
    browser.press(&["p"]);
    assert_eq!(browser.js("return playground.sim.paused"), json!(false));
    browser.press(&["P"]);
    assert_eq!(browser.js("return playground.sim.paused"), json!(true));
    // A letter in a text field is text, and the keys can be switched off.
    browser.js("playground.lanes[0].inputs.text.focus()");
    browser.press(&["s", "b"]);
    browser.js("document.getElementById('keys').click(); document.activeElement.blur()");
    browser.press(&["s", "b"]);
    assert_eq!(browser.js(sent), json!(21));
    browser.js("playground.lanes[1].inputs.limit.focus()");
    browser.press(&[RIGHT]);
    assert_eq!(texts(&browser)[1], "6/10s fixed_window");
}
