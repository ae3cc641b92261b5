//! Draws what each algorithm makes of the same requests, as the pictures in `docs/plots`.
//!
//! ```sh
//! cargo run -p example-axum --bin algorithm_plots
//! ```
//!
//! The real limiter decides, on a clock that the example sets, so every run draws the same. A folder as the argument takes
//! the pictures instead.

use std::{
    collections::BTreeMap,
    env,
    fmt::Write as _,
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use tower_ratelimit::{
    Key, Limiter, LocalLimiter, Priority, Quota,
    clock::{ManualClock, Timestamp},
    limiter::{Call, Charge, OpRef, Pending},
    quota::Algorithm,
};

const QUOTA: Quota = Quota::per_minute(20);

/// A file name, a title, and the quota that is drawn.
const PLOTS: [(&str, &str, Quota); 7] = [
    ("token_bucket", "Token bucket: Quota::per_minute(20)", QUOTA),
    (
        "refill_every",
        "Token bucket in steps: .refill_every(30 s)",
        QUOTA.refill_every(Duration::from_secs(30)),
    ),
    (
        "leaky_bucket",
        "Leaky bucket: .leaky_bucket(10)",
        QUOTA.leaky_bucket(10),
    ),
    (
        "fixed_window",
        "Fixed window: .fixed_window()",
        QUOTA.fixed_window(),
    ),
    (
        "sliding_window",
        "Sliding window: .sliding_window()",
        QUOTA.sliding_window(),
    ),
    (
        "sliding_window_6",
        "Sliding window of 6 slices: .sliding_window().slices(6)",
        QUOTA.sliding_window().slices(6),
    ),
    (
        "sliding_log",
        "Sliding log: .sliding_log()",
        QUOTA.sliding_log(),
    ),
];

/// The load: from second, to second, requests in between, and what to call it.
const LOAD: [(u64, u64, u64, &str); 5] = [
    (0, 48, 8, "quiet"),
    (48, 72, 48, "burst"),
    (90, 192, 102, "steady overload"),
    (258, 276, 36, "burst"),
    (276, 300, 4, "quiet"),
];

const SECOND: u64 = 1_000_000;

/// Where the drawing lies in the picture, in pixels; a second is two pixels wide.
const LEFT: f64 = 64.0;
const RIGHT: f64 = LEFT + 600.0;

/// Seconds of a bar.
const BAR: u64 = 3;

fn main() -> io::Result<()> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/plots");
    let folder = env::args_os().nth(1).map_or(docs, PathBuf::from);
    fs::create_dir_all(&folder)?;
    for (name, content) in files() {
        fs::write(folder.join(&name), content)?;
        println!("{name}");
    }
    Ok(())
}

/// All that goes into `docs/plots`.
fn files() -> Vec<(String, String)> {
    let offered = offered();
    let mut files = Vec::new();
    let mut links = String::new();
    for (name, title, quota) in PLOTS {
        let svg = draw(title, quota, &offered, &passed(quota, &offered));
        writeln!(links, "[plot-{name}]: <{}>", data_uri(&svg)).expect("a string takes all");
        files.push((format!("{name}.svg"), svg));
    }
    let svg = draw_classes();
    writeln!(links, "[plot-priority]: <{}>", data_uri(&svg)).expect("a string takes all");
    files.push(("priority.svg".into(), svg));
    files.push(("links.md".into(), links));
    files
}

/// Classes of requests: the word for each, its share of the limit and its part of the load, in percent.
const CLASSES: [(&str, u8, u64); 3] = [("critical", 100, 30), ("reads", 80, 35), ("batch", 50, 35)];

/// The limit that the classes share. The load rises from nothing to twice as much.
const SHARED: Quota = Quota::per_second(20);

/// Seconds of a point of a line.
const POINT: u64 = 5;

const CLASS_COLOURS: &str = "<style>.critical,.reads,.batch,.load{fill:none;stroke-width:2}
.critical{stroke:#0969da}.reads{stroke:#1a7f37}.batch{stroke:#bf8700}.load{stroke:#8c959f}
.asked{stroke-width:1;stroke-dasharray:2 3}
@media(prefers-color-scheme:dark){.critical{stroke:#58a6ff}.reads{stroke:#3fb950}.batch{stroke:#d29922}}</style>
";

/// Three classes through a rising load.
fn draw_classes() -> String {
    let offered = rising_load();
    let admitted = admitted_of_each(&offered);
    let mut svg = String::from(HEAD) + CLASS_COLOURS;
    let title = "Priority shares of Quota::per_second(20)";
    svg += &text(LEFT, 26.0, "title", title);
    svg += &load_panel(&offered, &admitted);
    svg += &class_panel(&offered, &admitted);
    svg += "</svg>\n";
    svg
}

/// When the requests of each class come, in microseconds: the rate rises evenly.
fn rising_load() -> [Vec<u64>; 3] {
    CLASSES.map(|(_, _, percent)| {
        // In t seconds come t² · limit / 300 requests of all classes.
        let seconds = |i: u64| {
            let all = (i as f64 + 0.5) * 100.0 / percent as f64;
            (all * 300.0 / SHARED.limit() as f64).sqrt()
        };
        let times = (0..).map(|i| (seconds(i) * SECOND as f64) as u64);
        times.take_while(|at| *at < 300 * SECOND).collect()
    })
}

/// When the admitted requests of each class came.
fn admitted_of_each(offered: &[Vec<u64>; 3]) -> [Vec<u64>; 3] {
    let start = Timestamp::from_secs(1_767_225_600);
    let clock = ManualClock::at(start);
    let limiter = LocalLimiter::builder(SHARED)
        .max_keys(1)
        .clock(clock.clone())
        .build()
        .expect("the quota above makes sense");
    let classes =
        CLASSES.map(|(_, share, _)| Priority::share(share).expect("a share from 1 to 100"));
    let of_class = |(class, times): (usize, &Vec<u64>)| {
        times.iter().map(move |at| (*at, class)).collect::<Vec<_>>()
    };
    let mut all: Vec<(u64, usize)> = offered.iter().enumerate().flat_map(of_class).collect();
    all.sort_unstable();
    let mut admitted = [const { Vec::new() }; 3];
    for (at, class) in all {
        clock.set(start.saturating_add(Duration::from_micros(at)));
        let Pending::Ready(decision) =
            limiter.call(&Call::of(&[
                Charge::new(&Key::global(), OpRef::Acquire(1)).class(classes[class])
            ]));
        if decision.is_ok_and(|decision| decision.is_allowed()) {
            admitted[class].push(at);
        }
    }
    admitted
}

/// Requests a second of all classes, with the limit.
fn load_panel(offered: &[Vec<u64>; 3], admitted: &[Vec<u64>; 3]) -> String {
    let y = |count: f64| 172.0 - count * 2.2;
    let mut svg = axes(y, &[0, 10, 20, 30, 40], "requests / s");
    svg += &legend(0, 48.0, "load", LINE, "offered in all");
    svg += &legend(1, 48.0, "sum", LINE, "admitted in all");
    svg += &legend(2, 48.0, "limit", LINE, "limit");
    svg += &line("load", &offered.concat(), y);
    svg += &line("sum", &admitted.concat(), y);
    let limit = y(SHARED.limit() as f64);
    svg += &format!("<path class=\"limit\" d=\"M{LEFT} {limit}H{RIGHT}\"/>\n");
    svg
}

/// Requests a second of each class.
fn class_panel(offered: &[Vec<u64>; 3], admitted: &[Vec<u64>; 3]) -> String {
    let y = |count: f64| 340.0 - count * 7.0;
    let mut svg = axes(y, &[0, 4, 8, 12, 16], "requests / s");
    for minute in 0..=5 {
        let x = x(minute * 60 * SECOND);
        svg += &text(x, 358.0, "middle", &format!("{minute} min"));
    }
    for (place, (class, share, _)) in CLASSES.into_iter().enumerate() {
        let label = format!("{class}: {share} %");
        svg += &legend(place as u32, 206.0, class, LINE, &label);
        svg += &line(&format!("{class} asked"), &offered[place], y);
        svg += &line(class, &admitted[place], y);
    }
    svg
}

/// A line through the number of these times in each second, as the mean of some seconds.
fn line(class: &str, times: &[u64], y: impl Fn(f64) -> f64) -> String {
    let mut path = String::new();
    for point in 0..300 / POINT {
        let range = point * POINT * SECOND..(point + 1) * POINT * SECOND;
        let count = times.iter().filter(|at| range.contains(at)).count();
        let mean = count as f64 / POINT as f64;
        let command = if point == 0 { 'M' } else { 'L' };
        let middle = (x(range.start) + x(range.end)) / 2.0;
        path += &format!("{command}{middle} {:.1}", y(mean));
    }
    format!("<path class=\"{class}\" d=\"{path}\"/>\n")
}

/// When requests come, in microseconds since the start.
fn offered() -> Vec<u64> {
    let evenly = |(from, to, count, _): (u64, u64, u64, &str)| {
        (0..count).map(move |i| from * SECOND + (2 * i + 1) * (to - from) * SECOND / (2 * count))
    };
    LOAD.into_iter().flat_map(evenly).collect()
}

/// When those requests get through that do.
fn passed(quota: Quota, offered: &[u64]) -> Vec<u64> {
    // On the minute, so that windows start where the picture shows.
    let start = Timestamp::from_secs(1_767_225_600);
    let clock = ManualClock::at(start);
    let limiter = LocalLimiter::builder(quota)
        .max_keys(1)
        .clock(clock.clone())
        .build()
        .expect("the quotas above make sense");
    let key = Key::from("client");
    let mut passed = Vec::new();
    for at in offered {
        clock.set(start.saturating_add(Duration::from_micros(*at)));
        let decision = limiter.acquire(&key, 1);
        if decision.is_allowed() {
            passed.push(at + decision.delay().as_micros() as u64);
        }
    }
    passed
}

fn draw(title: &str, quota: Quota, offered: &[u64], passed: &[u64]) -> String {
    let delays = matches!(quota.algorithm(), Algorithm::LeakyBucket { .. });
    let verb = if delays { "let out" } else { "admitted" };
    let mut svg = String::from(HEAD);
    svg += &text(LEFT, 26.0, "title", title);
    svg += &bars_panel(offered, passed, verb);
    svg += &window_panel(passed, quota.limit() as f64, verb);
    svg += "</svg>\n";
    svg
}

const HEAD: &str = r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 680 372" width="680" height="372" font-family="sans-serif" font-size="12">
<style>
.page{fill:#fff}text{fill:#424a53}.title{font-size:15px;font-weight:bold;fill:#1f2328}
.offered{fill:#c4ccd5}.passed{fill:#0969da}.sum{fill:none;stroke:#0969da;stroke-width:2}
.grid{fill:none;stroke:#d8dee4}.limit{fill:none;stroke:#cf222e;stroke-width:1.5;stroke-dasharray:6 4}
.peak{fill:#0969da;font-weight:bold}.middle{text-anchor:middle}.end{text-anchor:end}
@media(prefers-color-scheme:dark){
.page{fill:#161b22}text{fill:#b1bac4}.title{fill:#f0f6fc}.offered{fill:#4d5661}.passed,.peak{fill:#58a6ff}
.sum{stroke:#58a6ff}.grid{stroke:#30363d}.limit{stroke:#ff7b72}}
</style>
<rect class="page" width="680" height="372" rx="6"/>
"##;

/// Requests in each three seconds, those that came and in front of them those that got through.
fn bars_panel(offered: &[u64], passed: &[u64], verb: &str) -> String {
    let y = |count: f64| 172.0 - count * 14.0;
    let mut svg = axes(y, &[0, 2, 4, 6], "requests");
    svg += &legend(0, 48.0, "offered", SQUARE, "offered in 3 s");
    svg += &legend(1, 48.0, "passed", SQUARE, &format!("{verb} in 3 s"));
    for (from, to, _, label) in LOAD {
        let middle = (x(from * SECOND) + x(to * SECOND)) / 2.0;
        svg += &text(middle, 78.0, "middle", label);
    }
    svg += &bars("offered", offered, y, 0.5);
    svg += &bars("passed", passed, y, 1.0);
    svg
}

/// One path with a rectangle for each bar that is not empty.
fn bars(class: &str, times: &[u64], y: impl Fn(f64) -> f64, inset: f64) -> String {
    let mut path = String::new();
    for bar in 0..300 / BAR {
        let range = bar * BAR * SECOND..(bar + 1) * BAR * SECOND;
        let count = times.iter().filter(|at| range.contains(at)).count();
        if count > 0 {
            let (left, right) = (x(range.start) + inset, x(range.end) - inset);
            let (top, bottom) = (y(count as f64), y(0.0));
            path += &format!("M{left} {bottom}V{top}H{right}V{bottom}z");
        }
    }
    format!("<path class=\"{class}\" d=\"{path}\"/>\n")
}

/// The units that got through in the last minute, at every moment, and the limit.
fn window_panel(passed: &[u64], limit: f64, verb: &str) -> String {
    let y = |count: f64| 340.0 - count * 2.8;
    let mut svg = axes(y, &[0, 10, 20, 30, 40], "requests");
    svg += &legend(0, 206.0, "sum", LINE, &format!("{verb} in the last 60 s"));
    svg += &legend(1, 206.0, "limit", LINE, "limit");
    for minute in 0..=5 {
        let x = x(minute * 60 * SECOND);
        svg += &text(x, 358.0, "middle", &format!("{minute} min"));
    }
    let (path, (peak_at, peak)) = running_sum(passed, y);
    svg += &format!("<path class=\"sum\" d=\"{path}\"/>\n");
    svg += &format!(
        "<path class=\"limit\" d=\"M{LEFT} {}H{RIGHT}\"/>\n",
        y(limit)
    );
    svg += &text(x(peak_at), y(peak) - 5.0, "peak middle", &format!("{peak}"));
    svg
}

/// The path of the sum over the last minute, and its first peak: when, and how much.
fn running_sum(passed: &[u64], y: impl Fn(f64) -> f64) -> (String, (u64, f64)) {
    let mut changes = BTreeMap::new();
    for at in passed {
        *changes.entry(*at).or_insert(0.0) += 1.0;
        *changes.entry(*at + 60 * SECOND).or_insert(0.0) -= 1.0;
    }
    let mut path = format!("M{LEFT} {}", y(0.0));
    let (mut sum, mut peak) = (0.0, (0, 0.0));
    for (at, change) in changes.range(..300 * SECOND) {
        sum += change;
        path += &format!("H{:.1}V{:.1}", x(*at), y(sum));
        if sum > peak.1 {
            peak = (*at, sum);
        }
    }
    (path + &format!("H{RIGHT}"), peak)
}

/// Lines for the numbers and for the minutes, where windows start, and what the numbers are.
fn axes(y: impl Fn(f64) -> f64, numbers: &[u32], label: &str) -> String {
    let mut svg = String::new();
    let mut path = String::new();
    for number in numbers {
        let y = y(f64::from(*number));
        path += &format!("M{LEFT} {y}H{RIGHT}");
        svg += &text(LEFT - 8.0, y + 4.0, "end", &number.to_string());
    }
    let (bottom, top) = (y(0.0), y(f64::from(numbers[numbers.len() - 1])));
    for minute in 0..=5 {
        path += &format!("M{} {bottom}V{top}", x(minute * 60 * SECOND));
    }
    let middle = (bottom + top) / 2.0;
    svg += &format!("<path class=\"grid\" d=\"{path}\"/>\n");
    svg += &format!("<g transform=\"translate(24 {middle}) rotate(-90)\">\n");
    svg += &text(0.0, 0.0, "middle", label);
    svg += "</g>\n";
    svg
}

/// Samples for legends, as paths that begin at the middle of their left side.
const SQUARE: &str = "m5 -6h12v12h-12z";
const LINE: &str = "h18";

fn legend(column: u32, y: f64, class: &str, sample: &str, label: &str) -> String {
    let x = LEFT + 190.0 * f64::from(column);
    let sample = format!("<path class=\"{class}\" d=\"M{x} {y}{sample}\"/>\n");
    sample + &text(x + 24.0, y + 4.0, "", label)
}

fn text(x: f64, y: f64, class: &str, text: &str) -> String {
    format!("<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{text}</text>\n")
}

fn x(at: u64) -> f64 {
    LEFT + 2.0 * at as f64 / SECOND as f64
}

/// The picture as an address, for pages that cannot refer to a file: rustdoc copies none.
fn data_uri(svg: &str) -> String {
    let mut uri = String::from("data:image/svg+xml,");
    for char in svg.chars() {
        match char {
            '%' | '#' | '<' | '>' | '"' | '&' | '\\' | '\n' => {
                uri += &format!("%{:02X}", u32::from(char));
            }
            _ => uri.push(char),
        }
    }
    uri
}
