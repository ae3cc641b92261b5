//! A replay as one page of HTML, which fetches nothing.

use std::fmt::Write;

use tower_ratelimit::Quota;

use super::{
    candidate::{Candidate, Delayed, Limited},
    picture::{Picture, escaped},
    tally::{Tally, UPPER_BOUND, time_of},
    text::{number, percent, shadow, text},
};

/// Grey, blue and red as the plots of the guide have them.
const STYLE: &str = "\
:root{color-scheme:light dark}\
body{font:16px/1.5 system-ui,sans-serif;max-width:56rem;margin:2rem auto;padding:0 1rem}\
h2{margin:2.5rem 0 .5rem}\
figure,.wide{margin:0;overflow-x:auto}figcaption{font-size:.9rem}\
svg{display:block;width:100%;min-width:36rem;height:auto}\
svg text{font:12px system-ui,sans-serif;fill:currentColor}\
.axis{stroke:#8886}.offered{fill:#888}.admitted{fill:#2e6fb5}\
.limit{fill:none;stroke:#c43c2e;stroke-width:2}.dashed{stroke-dasharray:6 4}\
pre{overflow-x:auto;font-size:.9rem}table{border-collapse:collapse}\
td,th{padding:.2rem .8rem;text-align:right;border-bottom:1px solid #8886}\
td:first-child,th:first-child{text-align:left;padding-left:0}";

/// The page. The numbers in it are those of `--json`, which it has as data, too.
pub(super) fn html(tally: &Tally) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <title>Replay</title><style>{STYLE}</style>\n<h1>Replay</h1>\n"
    );
    if tally.tries_any() {
        table(tally, &mut page);
    }
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

fn table(tally: &Tally, page: &mut String) {
    page.push_str(
        "<div class=\"wide\"><table><tr><th>limit<th>limited requests<th>of all<th>limited keys<th>delayed requests</tr>\n",
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
        for (policy, _) in &tally.policies() {
            let name = format!("{}{}", policy.name, shadow(policy));
            row(&name, &policy.limited, Some(policy.keys), None);
        }
    }
    let _ = writeln!(
        page,
        "</table></div>\n<p>An upper bound: {UPPER_BOUND}.</p>"
    );
}

/// Offered and admitted requests, a step after the other.
fn over_time(tally: &Tally, page: &mut String) {
    let series = &tally.series;
    let Some((first, last)) = tally.span else {
        return;
    };
    let offered: Vec<f64> = series.steps.iter().map(|step| step.0 as f64).collect();
    let admitted = series
        .steps
        .iter()
        .map(|(all, limited)| (all - limited) as f64);
    let most = offered.iter().copied().fold(0.0, f64::max);
    let mut picture = Picture::new(page, "Requests over time", most, "");
    picture.area(&offered, "offered");
    picture.area(&admitted.collect::<Vec<_>>(), "admitted");
    picture.mark(0.0, &time_of(first));
    picture.mark(1.0, &time_of(last));
    let by = match tally.quotas.first() {
        Some(first) => format!("the rest, in grey, {} limits", first.quota),
        None if tally.rules.is_some() => "the rest, in grey, the rules limit".to_owned(),
        None => "all of them, without a limit".to_owned(),
    };
    picture.end(&match series.minutes {
        1 => format!("A step is a minute. Blue is admitted; {by}."),
        minutes => format!("A step is {minutes} minutes. Blue is admitted; {by}."),
    });
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
    let title = "Keys by the most that they ask for in a minute";
    let mut picture = Picture::new(page, title, most as f64, "");
    let at = |step: usize| step as f64 / steps as f64;
    for (step, count) in counts.iter().enumerate() {
        picture.bar((at(step), at(step + 1)), *count as f64, "admitted");
        let (from, to) = (1_u64 << step, (2_u64 << step) - 1);
        let told = match step {
            0 => "1".to_owned(),
            _ => format!("{}–{}", number(from), number(to)),
        };
        picture.mark(at(step) + 0.5 / steps as f64, &told);
    }
    let of = if tally.peaks.is_sample() {
        " of a sample"
    } else {
        ""
    };
    let caption = format!("A bar counts the keys{of} whose busiest minute has that many requests.");
    let limit = tally.quotas.first();
    let limit = limit.map(|first| mark_limit(&mut picture, &first.quota, steps));
    picture.end(&format!("{caption}{}", limit.unwrap_or_default()));
}

/// Draws what the quota allows in a minute among steps that double, and says so.
fn mark_limit(picture: &mut Picture<'_>, quota: &Quota, steps: usize) -> String {
    let per_minute = quota.limit() as f64 * 60.0 / quota.period().as_secs_f64();
    if per_minute < 1.0 {
        return String::new();
    }
    let place = per_minute.log2() / steps as f64;
    if place > 1.0 {
        return format!(" {quota} is beyond all of them.");
    }
    picture.dashed(place);
    format!(" Dashed is {quota}.")
}

/// The share of requests that limits around the first quota would limit.
fn curve(tally: &Tally, page: &mut String) {
    let all = tally.what_if.len();
    let Some(first) = tally.quotas.first().filter(|_| all > 1) else {
        return;
    };
    let share = |place: usize| 100.0 * tally.share(tally.what_if[place].limited.requests);
    let most = (0..all).map(share).fold(0.0, f64::max);
    let mut picture = Picture::new(page, "Limited requests by the limit", most, " %");
    let at = |place: usize| place as f64 / (all - 1) as f64;
    picture.line((0..all).map(|place| (at(place), share(place))), "limit");
    for (place, candidate) in tally.what_if.iter().enumerate() {
        picture.mark(at(place), &number(candidate.quota.limit()));
        if candidate.quota == first.quota {
            picture.dashed(at(place));
        }
    }
    picture.end(&format!(
        "Each limit with its burst or queue in proportion; dashed is {}.",
        first.quota
    ));
}
