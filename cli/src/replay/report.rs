//! A replay as one page of HTML, which fetches nothing.

use std::fmt::Write;

use super::{
    candidate::{Candidate, Delayed, Limited},
    tally::{Tally, time_of},
    text::{number, percent, text},
};

/// As the plots of the guide have them.
const OFFERED: &str = "#888888";
const ADMITTED: &str = "#2e6fb5";
const LIMIT: &str = "#c43c2e";

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 240.0;
/// Room for what stands beside a picture.
const LEFT: f64 = 64.0;
const BELOW: f64 = 28.0;

const STYLE: &str = "\
:root{color-scheme:light dark}\
body{font:16px/1.5 system-ui,sans-serif;max-width:56rem;margin:2rem auto;padding:0 1rem}\
svg{width:100%;height:auto;background:#fff}\
svg text{font:12px system-ui,sans-serif;fill:#333}\
pre{overflow-x:auto}table{border-collapse:collapse}\
td,th{padding:.2rem .8rem;text-align:right;border-bottom:1px solid #8886}\
td:first-child,th:first-child{text-align:left}";

/// The page. The numbers in it are those of `--json`, which it has as data, too.
pub(super) fn html(tally: &Tally) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <title>Replay</title><style>{STYLE}</style>\n<h1>Replay</h1>\n"
    );
    table(tally, &mut page);
    over_time(tally, &mut page);
    histogram(tally, &mut page);
    curve(tally, &mut page);
    let _ = write!(
        page,
        "<h2>All of it</h2>\n<pre>{}</pre>\n<script type=\"application/json\" id=\"replay\">{}</script>\n</html>\n",
        escaped(&text(tally)),
        // A name in the log cannot end the element.
        tally.json().to_string().replace('<', "\\u003c")
    );
    page
}

fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;").replace('"', "&quot;")
}

fn table(tally: &Tally, page: &mut String) {
    page.push_str(
        "<table><tr><th>limit<th>limited requests<th>of all<th>limited keys<th>delayed requests</tr>\n",
    );
    let mut row = |name: &str, limited: &Limited, keys: Option<u64>, delayed: Option<Delayed>| {
        let _ = writeln!(
            page,
            "<tr><td>{}<td>{}<td>{}<td>{}<td>{}</tr>",
            escaped(name),
            number(limited.requests),
            percent(tally.share(limited.requests)),
            keys.map_or(String::new(), number),
            delayed.map_or(String::new(), |delayed| number(delayed.requests)),
        );
    };
    for (place, candidate) in tally.quotas.iter().enumerate() {
        let Candidate {
            quota,
            limited,
            delayed,
            ..
        } = candidate;
        let keys = tally.keys_limited_by(place);
        row(&quota.to_string(), limited, Some(keys), Some(*delayed));
    }
    if let Some(rules) = &tally.rules {
        let outcomes = rules.outcomes();
        row("the rules", &outcomes.limited, None, Some(outcomes.delayed));
        for (name, counts) in &rules.policies() {
            row(name, &counts.limited, None, None);
        }
    }
    page.push_str(
        "</table>\n<p>An upper bound: clients that are refused would have behaved differently.</p>\n",
    );
}

/// A picture with a line at the bottom, and what it shows at most.
struct Picture<'p> {
    page: &'p mut String,
    most: f64,
}

impl<'p> Picture<'p> {
    fn new(page: &'p mut String, title: &str, most: f64) -> Self {
        let _ = write!(
            page,
            "<h2>{title}</h2>\n<svg viewBox=\"0 0 {WIDTH} {}\" role=\"img\" aria-label=\"{title}\">\n\
             <text x=\"4\" y=\"14\">{}</text><line x1=\"{LEFT}\" y1=\"{HEIGHT}\" x2=\"{WIDTH}\" y2=\"{HEIGHT}\" stroke=\"#333\"/>\n",
            HEIGHT + BELOW,
            match most {
                ..10.0 => format!("{most:.1}"),
                _ => number(most.ceil() as u64),
            }
        );
        Self {
            page,
            most: most.max(1e-9),
        }
    }

    /// Shares of the width become places.
    fn x(share: f64) -> f64 {
        LEFT + share * (WIDTH - LEFT)
    }

    fn y(&self, value: f64) -> f64 {
        HEIGHT * (1.0 - (value / self.most).min(1.0))
    }

    fn line(&mut self, points: impl Iterator<Item = (f64, f64)>, color: &str) {
        let points: Vec<_> = points
            .map(|(x, value)| format!("{:.1},{:.1}", Self::x(x), self.y(value)))
            .collect();
        let _ = writeln!(
            self.page,
            "<polyline fill=\"none\" stroke=\"{color}\" stroke-width=\"1.5\" points=\"{}\"/>",
            points.join(" ")
        );
    }

    fn bar(&mut self, (from, to): (f64, f64), value: f64, color: &str) {
        let (x, y) = (Self::x(from), self.y(value));
        let _ = writeln!(
            self.page,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{color}\"/>",
            (Self::x(to) - x - 1.0).max(0.5),
            HEIGHT - y
        );
    }

    fn mark(&mut self, x: f64, text: &str) {
        let x = Self::x(x);
        let anchor = if x > WIDTH * 0.8 { "end" } else { "start" };
        let _ = writeln!(
            self.page,
            "<text x=\"{x:.1}\" y=\"{}\" text-anchor=\"{anchor}\">{}</text>",
            HEIGHT + 18.0,
            escaped(text)
        );
    }

    fn dashed(&mut self, x: f64) {
        let x = Self::x(x);
        let _ = writeln!(
            self.page,
            "<line x1=\"{x:.1}\" y1=\"0\" x2=\"{x:.1}\" y2=\"{HEIGHT}\" stroke=\"{LIMIT}\" stroke-dasharray=\"6 4\"/>"
        );
    }

    fn end(self) {
        self.page.push_str("</svg>\n");
    }
}

/// Offered and admitted requests, a step after the other.
fn over_time(tally: &Tally, page: &mut String) {
    let series = &tally.series;
    let Some((first, last)) = tally.span else {
        return;
    };
    let most = series
        .steps
        .iter()
        .map(|(offered, _)| *offered)
        .max()
        .unwrap_or(0);
    let minutes = match series.minutes {
        1 => "a minute".to_owned(),
        minutes => format!("{minutes} minutes"),
    };
    let title = format!("Requests in {minutes}: offered grey, admitted blue");
    let mut picture = Picture::new(page, &title, most as f64);
    // One step is a line, too.
    let all = series.steps.len();
    let at = |place: usize| place as f64 / all as f64;
    let last_one = series.steps.last();
    let steps = || series.steps.iter().chain(last_one).enumerate();
    picture.line(
        steps().map(|(place, step)| (at(place), step.0 as f64)),
        OFFERED,
    );
    let admitted = |(place, step): (usize, &(u64, u64))| (at(place), (step.0 - step.1) as f64);
    picture.line(steps().map(admitted), ADMITTED);
    picture.mark(0.0, &time_of(first));
    picture.mark(1.0, &time_of(last));
    picture.end();
}

/// How many keys ask for how much in a minute, in steps that double.
fn histogram(tally: &Tally, page: &mut String) {
    let peaks = tally.peaks.sorted(2);
    let Some(largest) = peaks.last() else {
        return;
    };
    let steps = largest.ilog2() as usize + 1;
    let mut counts = vec![0_u64; steps];
    for peak in &peaks {
        counts[peak.ilog2() as usize] += 1;
    }
    let most = counts.iter().copied().max().unwrap_or(0);
    let mut picture = Picture::new(
        page,
        "Keys by the most that they ask for in a minute; the limit dashed",
        most as f64,
    );
    for (step, count) in counts.iter().enumerate() {
        let (from, to) = (step as f64 / steps as f64, (step + 1) as f64 / steps as f64);
        picture.bar((from, to), *count as f64, ADMITTED);
        picture.mark(from, &number(1 << step));
    }
    if let Some(first) = tally.quotas.first() {
        let per_minute = first.quota.limit() as f64 * 60.0 / first.quota.period().as_secs_f64();
        let place = per_minute.max(1.0).log2() / steps as f64;
        if place <= 1.0 {
            picture.dashed(place);
        }
    }
    picture.end();
}

/// The share of requests that limits around the first quota would limit.
fn curve(tally: &Tally, page: &mut String) {
    if tally.what_if.len() < 2 {
        return;
    }
    let share = |place: usize| 100.0 * tally.share(tally.what_if[place].limited.requests);
    let most = (0..tally.what_if.len()).map(share).fold(0.0, f64::max);
    let mut picture = Picture::new(page, "Limited requests in percent, by the limit", most);
    let at = |place: usize| place as f64 / tally.what_if.len() as f64;
    picture.line(
        (0..tally.what_if.len()).map(|place| (at(place), share(place))),
        LIMIT,
    );
    for (place, candidate) in tally.what_if.iter().enumerate() {
        picture.mark(at(place), &number(candidate.quota.limit()));
    }
    picture.end();
}
