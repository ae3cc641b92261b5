//! Charts of a report as SVG, with at most a few dates below, at round times.

use std::fmt::Write;

use tower_ratelimit::clock::Timestamp;

use crate::{replay_counts::MINUTE, text_report::compact, timestamps};

/// Narrow enough for letters to be readable on a phone.
const WIDTH: f64 = 640.0;
/// The height of the largest value, and of zero.
const TOP: f64 = 16.0;
const BOTTOM: f64 = 256.0;
/// Margins for labels.
const LEFT: f64 = 72.0;
const RIGHT: f64 = 16.0;
/// A line of text below a chart.
const LINE: f64 = 24.0;

/// The scale of values.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Scale {
    /// Counts up to the largest one, on a logarithmic scale.
    Counts(f64),
    /// Shares from 0 to the largest one.
    Shares(f64),
}

impl Scale {
    /// The height of a value, from 0 to 1.
    pub(crate) fn height(self, value: f64) -> f64 {
        match self {
            Self::Counts(most) => (1.0 + value).ln() / (1.0 + most.max(1.0)).ln(),
            Self::Shares(most) => value / most.max(1e-9),
        }
    }

    /// The values of grid lines, with their labels.
    fn lines(self) -> Vec<(f64, String)> {
        match self {
            Self::Counts(most) => {
                let powers = (0..20)
                    .map(|power| 10_f64.powi(power))
                    .take_while(|power| *power <= most.max(1.0));
                let lines = [0.0].into_iter().chain(powers);
                let labelled = lines.map(|line| {
                    // The label would overlap the zero's.
                    let is_low = line == 1.0 && most > 100.0;
                    let label = compact(line.round() as u64);
                    (line, if is_low { String::new() } else { label })
                });
                labelled.collect()
            }
            Self::Shares(most) => [0.0, most / 2.0, most]
                .map(|share| match share {
                    0.1.. => (share, format!("{:.0} %", share * 100.0)),
                    _ => (share, format!("{:.1} %", share * 100.0)),
                })
                .into(),
        }
    }
}

/// A chart in progress. Horizontal positions are shares of its width.
pub(crate) struct Chart<'p> {
    page: &'p mut String,
    scale: Scale,
}

impl<'p> Chart<'p> {
    /// Starts a chart with this many lines of text below it.
    pub(crate) fn new(page: &'p mut String, title: &str, scale: Scale, lines: usize) -> Self {
        let _ = write!(
            page,
            "<h2>{title}</h2>\n<figure><svg viewBox=\"0 0 {WIDTH} {}\" role=\"img\" aria-label=\"{title}\">\n",
            BOTTOM + LINE * lines as f64 + 8.0
        );
        let picture = Self { page, scale };
        for (value, name) in scale.lines() {
            let y = picture.y(value);
            let _ = writeln!(
                picture.page,
                "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{name}</text>\
                 <line class=\"axis\" x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{}\" y2=\"{y:.1}\"/>",
                LEFT - 8.0,
                y + 5.0,
                WIDTH - RIGHT
            );
        }
        picture
    }

    fn x(share: f64) -> f64 {
        LEFT + share * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        TOP + (BOTTOM - TOP) * (1.0 - self.scale.height(value).min(1.0))
    }

    fn points(&self, points: impl Iterator<Item = (f64, f64)>) -> String {
        let points = points.map(|(x, value)| format!("{:.1},{:.1}", Self::x(x), self.y(value)));
        points.collect::<Vec<_>>().join(" ")
    }

    pub(crate) fn line(&mut self, points: impl Iterator<Item = (f64, f64)>, class: &str) {
        let points = self.points(points);
        let _ = writeln!(
            self.page,
            "<polyline class=\"{class}\" points=\"{points}\"/>"
        );
    }

    /// A bar for each value, from one edge to the other.
    pub(crate) fn bars(&mut self, values: impl ExactSizeIterator<Item = u64>, class: &str) {
        let all = values.len().max(1) as f64;
        let width = Self::x(1.0 / all) - Self::x(0.0);
        let gap = if width > 8.0 { 1.0 } else { 0.0 };
        let mut path = String::new();
        for (place, value) in values.enumerate().filter(|(_, value)| *value > 0) {
            let (x, y) = (Self::x(place as f64 / all), self.y(value as f64));
            let _ = write!(
                path,
                "M{:.1} {BOTTOM}V{y:.1}h{:.1}V{BOTTOM}z",
                x + gap,
                (width - 2.0 * gap).max(1.0)
            );
        }
        let _ = writeln!(self.page, "<path class=\"{class}\" d=\"{path}\"/>");
    }

    /// Writes a label of one or two lines below the chart, aligned to stay inside. A minor one is
    /// hidden on narrow screens.
    pub(crate) fn mark(&mut self, x: f64, lines: &[&str], is_minor: bool) {
        let anchor = match x {
            0.97.. => "end",
            _ => "middle",
        };
        let class = if is_minor { " class=\"minor\"" } else { "" };
        for (line, y) in lines.iter().zip([BOTTOM + LINE, BOTTOM + 2.0 * LINE]) {
            let _ = writeln!(
                self.page,
                "<text{class} x=\"{:.1}\" y=\"{y}\" text-anchor=\"{anchor}\">{}</text>",
                Self::x(x),
                escaped(line)
            );
        }
    }

    /// A tick from the axis to a label.
    pub(crate) fn tick(&mut self, x: f64) {
        let x = Self::x(x);
        let _ = writeln!(
            self.page,
            "<line class=\"axis\" x1=\"{x:.1}\" y1=\"{BOTTOM}\" x2=\"{x:.1}\" y2=\"{}\"/>",
            BOTTOM + 5.0
        );
    }

    pub(crate) fn dashed(&mut self, x: f64) {
        let x = Self::x(x);
        let _ = writeln!(
            self.page,
            "<line class=\"limit dashed\" x1=\"{x:.1}\" y1=\"{TOP}\" x2=\"{x:.1}\" y2=\"{BOTTOM}\"/>"
        );
    }

    /// Ends the chart with a caption.
    pub(crate) fn end(self, caption: &str) {
        let _ = writeln!(
            self.page,
            "</svg><figcaption>{}</figcaption></figure>",
            escaped(caption)
        );
    }
}

/// Escaped for HTML.
pub(crate) fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;").replace('"', "&quot;")
}

const DAY: u64 = 1_440;

/// The possible distances of two dates, in minutes.
const GAPS: [u64; 17] = [
    1,
    2,
    5,
    10,
    15,
    30,
    60,
    120,
    180,
    360,
    720,
    DAY,
    2 * DAY,
    7 * DAY,
    14 * DAY,
    28 * DAY,
    91 * DAY,
];

/// The most that are readable on a phone.
const MOST: u64 = 5;

/// A date on an axis.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct AxisDate {
    /// Microseconds since 1970.
    pub(crate) at: u64,
    /// The time of day, and the day if it differs from the one before.
    pub(crate) lines: Vec<String>,
}

/// The dates of an axis between two times in microseconds since 1970.
pub(crate) fn dates(from: u64, to: u64) -> Vec<AxisDate> {
    let minutes = to.saturating_sub(from).div_ceil(MINUTE);
    let fits = |gap: &&u64| minutes / **gap <= MOST;
    let gap = GAPS
        .iter()
        .find(fits)
        .copied()
        .unwrap_or(minutes.div_ceil(MOST))
        .max(1)
        * MINUTE;
    let first = from.div_ceil(gap) * gap;
    let mut day = String::new();
    let times = (0..=MOST).map(|place| first + place * gap);
    let dates = times.take_while(|at| *at < to).map(|at| {
        let time = Timestamp::from_micros(at);
        let date = timestamps::format(time, "%-d %b");
        let clock = timestamps::format(time, "%H:%M");
        let is_new = date != day;
        let lines = match (gap < DAY * MINUTE, is_new) {
            (true, true) => vec![clock, date.clone()],
            (true, false) => vec![clock],
            (false, _) => vec![date.clone()],
        };
        day = date;
        AxisDate { at, lines }
    });
    dates.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-20T00:00:00Z.
    const MIDNIGHT: u64 = 1_795_132_800_000_000;

    #[test]
    fn dates_are_round_and_few() {
        for (from, minutes, expected) in [
            (0, 1, vec!["00:00 20 Nov"]),
            (0, DAY, vec!["00:00 20 Nov", "06:00", "12:00", "18:00"]),
            (
                MINUTE + 1,
                61,
                vec!["00:15 20 Nov", "00:30", "00:45", "01:00"],
            ),
            (
                0,
                5 * DAY,
                vec!["20 Nov", "21 Nov", "22 Nov", "23 Nov", "24 Nov"],
            ),
        ] {
            let from = MIDNIGHT + from;
            let dates = dates(from, from + minutes * MINUTE);
            let texts: Vec<_> = dates.iter().map(|date| date.lines.join(" ")).collect();
            assert_eq!(texts, expected, "{minutes} minutes");
        }
        for minutes in [1, 7, 100, 3_000, 100_000, 5_000_000] {
            let many = dates(MIDNIGHT, MIDNIGHT + minutes * MINUTE).len();
            assert!((1..=6).contains(&many), "{minutes} minutes: {many}");
        }
    }
}
