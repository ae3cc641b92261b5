//! The report of a replay: an HTML page without external resources, which begins with the effect of the limit, and on whom.

use std::fmt::Write;

use tower_ratelimit::Quota;

use crate::{
    candidate_quota::{Candidate, Delayed, Limited},
    chart::{AxisDate, Chart, Scale, dates, escaped},
    replay_counts::{MINUTE, Tally, UPPER_BOUND, time_of},
    text_report::{compact, counted_by, many, mode, number, percent, text},
    tried_rules::{LimitedKey, Policy, TriedRules},
};

/// Grey, blue and red as in the guide's plots: visible on light and dark backgrounds.
const STYLE: &str = "\
:root{color-scheme:light dark}\
body{font:16px/1.5 system-ui,sans-serif;max-width:46rem;margin:2rem auto;padding:0 1rem;overflow-wrap:anywhere}\
h1{font-size:1.3rem;line-height:1.4}h2{font-size:1.1rem;margin:2.5rem 0 .5rem}\
figure{margin:0}.wide{overflow-x:auto}figcaption{font-size:.9rem;margin-top:.25rem}\
svg{display:block;width:100%;height:auto}\
svg text{font:13px system-ui,sans-serif;fill:currentColor}\
.axis{stroke:#8886}.offered{fill:#888}.admitted{fill:#2e6fb5}.refused{fill:#c43c2e}\
.limit{fill:none;stroke:#c43c2e;stroke-width:2}.dashed{stroke-dasharray:6 4}\
ol{list-style:none;margin:0;padding:0}\
li{display:grid;grid-template-columns:minmax(0,13rem) minmax(0,1fr) 5rem;gap:0 .8rem;align-items:center;padding:.15rem 0}\
li small{display:block}li strong{text-align:right;font-weight:400}\
li i{height:.9rem;background:#c43c2e}\
pre{overflow-x:auto;font-size:.85rem;overflow-wrap:normal}summary{cursor:pointer;margin-top:2.5rem}\
table{border-collapse:collapse;font-size:.9rem}\
td,th{padding:.2rem .5rem;text-align:right;vertical-align:top;border-bottom:1px solid #8886}\
th{font-weight:600;overflow-wrap:normal}\
td{white-space:nowrap}td:first-child,th:first-child{text-align:left;padding-left:0;white-space:normal;min-width:4rem}\
@media(max-width:40rem){svg text{font-size:22px}svg .minor{display:none}\
td,th{padding:.2rem .25rem}table{font-size:.8rem}\
li{grid-template-columns:minmax(0,1fr) 4rem}li span{grid-column:1/-1}}";

/// The page, with the data of `--json` embedded.
pub fn html(tally: &Tally<'_>) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <title>Replay</title><style>{STYLE}</style>\n<h1>{}</h1>\n",
        escaped(&sentence(tally))
    );
    left_out(tally, &mut page);
    if tally.tries_any() {
        table(tally, &mut page);
        limited_over_time(tally, &mut page);
        limited_keys(tally, &mut page);
    }
    over_time(tally, &mut page);
    histogram(tally, &mut page);
    curve(tally, &mut page);
    let _ = write!(
        page,
        "<details><summary>All of it as text</summary>\n<pre tabindex=\"0\">{}</pre></details>\n\
         <script type=\"application/json\" id=\"replay\">{}</script>\n</html>\n",
        escaped(&text(tally)),
        // A name in the log must not end the element.
        tally.json().to_string().replace('<', "\\u003c")
    );
    page
}

/// The lines that were filtered or skipped.
fn left_out(tally: &Tally<'_>, page: &mut String) {
    let options: Vec<_> = tally
        .left_out()
        .map(|(option, lines)| {
            let lines = many(lines, "line");
            format!("{lines} by {}", escaped(option))
        })
        .collect();
    if !options.is_empty() {
        let _ = writeln!(page, "<p>Left out: {}.</p>", options.join(", "));
    }
}

fn table(tally: &Tally<'_>, page: &mut String) {
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
        for policy in &tally.policies() {
            let name = format!("{}{}", policy.name, mode(policy));
            row(&name, &policy.limited, Some(policy.keys), None);
        }
    }
    let _ = writeln!(
        page,
        "</table></div>\n<p>An upper bound: {UPPER_BOUND}.</p>"
    );
}

/// The limit of the charts over time.
fn limit_of(tally: &Tally<'_>) -> Option<String> {
    match tally.quotas.first() {
        Some(first) => Some(first.quota.to_string()),
        None => tally.rules.as_ref().map(|_| "the rules".to_owned()),
    }
}

/// Limited requests in a chart of their own: beside all others a few would be invisible.
fn limited_over_time(tally: &Tally<'_>, page: &mut String) {
    let steps = tally.series.steps.iter();
    let most = steps.clone().map(|step| step.1).max().unwrap_or(0);
    let Some(limit) = limit_of(tally).filter(|_| most > 0) else {
        return;
    };
    let scale = Scale::Counts(most as f64);
    let dates = dates_of(tally);
    let mut picture = Chart::new(page, "Limited requests over time", scale, lines_of(&dates));
    picture.bars(steps.map(|step| step.1), "refused");
    mark_dates(&dates, &mut picture);
    let step = step_of(tally);
    picture.end(&format!(
        "The requests that {limit} would have limited. {step}"
    ));
}

/// All requests, and the admitted ones in front.
fn over_time(tally: &Tally<'_>, page: &mut String) {
    let steps = tally.series.steps.iter();
    let most = steps.clone().map(|step| step.0).max().unwrap_or(0);
    let Some((first, last)) = tally.span else {
        return;
    };
    let scale = Scale::Counts(most as f64);
    let dates = dates_of(tally);
    let mut picture = Chart::new(page, "Requests over time", scale, lines_of(&dates));
    picture.bars(steps.clone().map(|step| step.0), "offered");
    picture.bars(steps.map(|(all, limited)| all - limited), "admitted");
    mark_dates(&dates, &mut picture);
    let by = match limit_of(tally) {
        Some(limit) => format!("Blue is admitted; the rest, in grey, {limit} limits."),
        None => "All of them, without a limit.".to_owned(),
    };
    let span = format!("From {} to {}.", time_of(first), time_of(last));
    picture.end(&format!("{by} {} {span}", step_of(tally)));
}

fn step_of(tally: &Tally<'_>) -> String {
    let minutes = many(tally.series.minutes, "minute");
    format!("A bar is {minutes}; each line is ten times the one below. Times are UTC.")
}

/// The dates below charts over time, with their positions.
fn dates_of(tally: &Tally<'_>) -> Vec<(f64, AxisDate)> {
    let (from, to) = tally.series.span();
    let place = |date: &AxisDate| (date.at - from) as f64 / (to - from).max(MINUTE) as f64;
    let dates = dates(from, to).into_iter();
    dates.map(|date| (place(&date), date)).collect()
}

fn lines_of(dates: &[(f64, AxisDate)]) -> usize {
    let lines = dates.iter().map(|(_, date)| date.lines.len());
    lines.max().unwrap_or(1)
}

fn mark_dates(dates: &[(f64, AxisDate)], picture: &mut Chart<'_>) {
    for (x, date) in dates {
        let lines: Vec<&str> = date.lines.iter().map(String::as_str).collect();
        picture.tick(*x);
        picture.mark(*x, &lines, false);
    }
}

/// The keys that are limited most, by the first quota and by each rule.
fn limited_keys(tally: &Tally<'_>, page: &mut String) {
    if let Some(first) = tally.quotas.first() {
        let by = first.quota.to_string();
        bars_of_keys(&by, tally.keys_limited_by(0), &tally.top(), page);
    }
    for policy in tally.policies() {
        let by = format!("{}{}", policy.name, mode(&policy));
        bars_of_keys(&by, policy.keys, &policy.top, page);
    }
}

/// A bar for each key, as a list: phones can wrap it and screen readers can read it.
fn bars_of_keys(by: &str, all: u64, top: &[LimitedKey], page: &mut String) {
    let Some(most) = top.first() else {
        return;
    };
    let scale = Scale::Counts(most.requests as f64);
    let _ = writeln!(
        page,
        "<h2>Who is limited most by {}</h2>\n<figure><ol>",
        escaped(by)
    );
    for key in top {
        let source = counted_by(key).map_or(String::new(), |source| {
            format!("<small>{}</small>", escaped(&source))
        });
        let _ = writeln!(
            page,
            "<li><span>{}{source}</span><i style=\"width:{:.1}%\"></i><strong>{}</strong></li>",
            escaped(&key.name),
            100.0 * scale.height(key.requests as f64),
            number(key.requests)
        );
    }
    let shown = top.len() as u64;
    let rest = match all.saturating_sub(shown) {
        0 => String::new(),
        1 => " One more key is limited less.".to_owned(),
        rest => format!(" {} more keys are limited less.", number(rest)),
    };
    let _ = writeln!(
        page,
        "</ol><figcaption>Limited requests of each key; a bar grows by the same length for ten times as \
         many.{rest}</figcaption></figure>"
    );
}

/// The distribution of keys by their requests in a minute, in steps that double.
fn histogram(tally: &Tally<'_>, page: &mut String) {
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
    let title = "Keys by their most requests in a minute";
    let mut picture = Chart::new(page, title, Scale::Counts(most as f64), 1);
    let at = |step: usize| step as f64 / steps as f64;
    picture.bars(counts.iter().copied(), "admitted");
    for step in 0..=steps {
        let is_minor = steps > 7 && step % 2 == 1;
        picture.tick(at(step));
        picture.mark(at(step), &[&compact(1 << step)], is_minor);
    }
    let of = if tally.peaks.is_sample() {
        " of a sample"
    } else {
        ""
    };
    let caption = format!(
        "A bar counts the keys{of} whose busiest minute has, from the number at its left edge on, that many \
         requests."
    );
    let limit = tally
        .quotas
        .first()
        .map(|first| mark_limit(&mut picture, &first.quota, steps));
    picture.end(&format!("{caption}{}", limit.unwrap_or_default()));
}

/// Marks what the quota allows in a minute, and returns the caption.
fn mark_limit(picture: &mut Chart<'_>, quota: &Quota, steps: usize) -> String {
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

/// The share of limited requests for limits around the first quota.
fn curve(tally: &Tally<'_>, page: &mut String) {
    let all = tally.what_if.len();
    let Some(first) = tally.quotas.first().filter(|_| all > 1) else {
        return;
    };
    let share = |place: usize| tally.share(tally.what_if[place].limited.requests);
    let most = (0..all).map(share).fold(0.0, f64::max);
    let mut picture = Chart::new(
        page,
        "Limited requests by the limit",
        Scale::Shares(most),
        1,
    );
    let at = |place: usize| place as f64 / (all - 1) as f64;
    picture.line((0..all).map(|place| (at(place), share(place))), "limit");
    let own = tally
        .what_if
        .iter()
        .position(|one| one.quota == first.quota);
    for (place, candidate) in tally.what_if.iter().enumerate() {
        let is_minor = own.is_some_and(|own| own.abs_diff(place) % 2 == 1);
        let limit = compact(candidate.quota.limit());
        picture.mark(at(place), &[&limit], is_minor);
    }
    if let Some(own) = own {
        picture.dashed(at(own));
    }
    picture.end(&format!(
        "Each limit with its burst or queue in proportion; dashed is {}.",
        first.quota
    ));
}

/// The most rules that the sentence names.
const RULES: usize = 3;

pub(crate) fn sentence(tally: &Tally<'_>) -> String {
    let all = many(tally.seen.attempts, "request");
    if tally.seen.attempts == 0 {
        let lines = many(tally.seen.lines, "line");
        return format!("No request was left to try a limit on, of {lines}.");
    }
    match (tally.quotas.first(), &tally.rules) {
        (Some(first), _) => by_quota(tally, first),
        (None, Some(rules)) => by_rules(tally, rules),
        (None, None) => match tally.suggestion() {
            Some(suggestion) => format!(
                "{} sent {all}; {} would have been enough for nearly all of them.",
                keys(tally),
                suggestion.quota
            ),
            None => format!("{all} were sent, none of them with a key."),
        },
    }
}

fn by_quota(tally: &Tally<'_>, first: &Candidate) -> String {
    let (quota, limited) = (&first.quota, first.limited.requests);
    if limited == 0 {
        let all = many(tally.seen.attempts, "request");
        return format!(
            "{quota} would have limited nobody: all {all} of {} pass.",
            keys(tally)
        );
    }
    let top = tally.top();
    let whom = match (tally.keys_limited_by(0), top.first()) {
        (1, Some(only)) => format!("all of one of {}: {}", keys(tally), only.name),
        (limited, Some(most)) => format!(
            "of {} of {}, most of all {} with {}",
            number(limited),
            keys(tally),
            most.name,
            number(most.requests)
        ),
        (limited, None) => format!("of {} of {}", number(limited), keys(tally)),
    };
    format!(
        "{quota} would have limited {}, {whom}.",
        share(tally, limited)
    )
}

fn by_rules(tally: &Tally<'_>, rules: &TriedRules) -> String {
    let limited = rules.outcomes().limited.requests;
    if limited == 0 {
        let all = many(tally.seen.attempts, "request");
        return format!("These rules would have limited none of {all}.");
    }
    let mut policies = tally.policies();
    policies.retain(|policy| {
        let rejects = !policy.is_shadow && !policy.overflows;
        rejects && policy.limited.requests > 0
    });
    policies.sort_by_key(|policy| std::cmp::Reverse(policy.limited.requests));
    let named = policies
        .iter()
        .take(RULES)
        .map(of_policy)
        .collect::<Vec<_>>()
        .join("; ");
    let rest = match policies.len().saturating_sub(RULES) {
        0 => String::new(),
        rest => format!("; and {rest} more limited some"),
    };
    format!(
        "These rules would have limited {}: {named}{rest}.",
        share(tally, limited)
    )
}

fn of_policy(policy: &Policy) -> String {
    let requests = number(policy.limited.requests);
    let keys = many(policy.keys, "key");
    let most = match (policy.keys, policy.top.first()) {
        (1, Some(only)) => format!(", {}", only.name),
        (_, Some(most)) => format!(", most of all {}", most.name),
        (_, None) => String::new(),
    };
    format!("{} limited {requests} of {keys}{most}", policy.name)
}

/// `34 of 100,000 requests (0.03 %)`.
fn share(tally: &Tally<'_>, limited: u64) -> String {
    format!(
        "{} of {} ({})",
        number(limited),
        many(tally.seen.attempts, "request"),
        percent(tally.share(limited))
    )
}

/// `201 keys by ip`.
fn keys(tally: &Tally<'_>) -> String {
    format!("{} by {}", many(tally.peaks.number(), "key"), tally.key())
}
