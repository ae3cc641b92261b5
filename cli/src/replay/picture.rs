//! Pictures of a report: axes, and what is drawn between them, as SVG.

use std::fmt::Write;

use super::text::number;

const WIDTH: f64 = 860.0;
/// Where the largest value and zero are.
const TOP: f64 = 16.0;
const BOTTOM: f64 = 240.0;
/// Room for what stands beside a picture.
const LEFT: f64 = 64.0;
const BELOW: f64 = 28.0;

/// A picture that is being drawn. Places across it are shares of its width.
pub(super) struct Picture<'p> {
    page: &'p mut String,
    most: f64,
}

impl<'p> Picture<'p> {
    /// Begins a picture of values up to `most`, which stand with `unit`.
    pub(super) fn new(page: &'p mut String, title: &str, most: f64, unit: &str) -> Self {
        let _ = write!(
            page,
            "<h2>{title}</h2>\n<figure><svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{title}\">\n",
            WIDTH + 8.0,
            BOTTOM + BELOW
        );
        let most = most.max(1e-9);
        let picture = Self { page, most };
        for value in [0.0, most / 2.0, most] {
            let y = picture.y(value);
            let told = match most {
                _ if value == 0.0 => "0".to_owned(),
                ..10.0 => format!("{value:.1}"),
                _ => number(value.round() as u64),
            };
            let _ = writeln!(
                picture.page,
                "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{told}{unit}</text>\
                 <line class=\"axis\" x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{WIDTH}\" y2=\"{y:.1}\"/>",
                LEFT - 8.0,
                y + 4.0
            );
        }
        picture
    }

    fn x(share: f64) -> f64 {
        LEFT + share * (WIDTH - LEFT)
    }

    fn y(&self, value: f64) -> f64 {
        TOP + (BOTTOM - TOP) * (1.0 - (value / self.most).min(1.0))
    }

    fn points(&self, points: impl Iterator<Item = (f64, f64)>) -> String {
        let points = points.map(|(x, value)| format!("{:.1},{:.1}", Self::x(x), self.y(value)));
        points.collect::<Vec<_>>().join(" ")
    }

    pub(super) fn line(&mut self, points: impl Iterator<Item = (f64, f64)>, class: &str) {
        let points = self.points(points);
        let _ = writeln!(
            self.page,
            "<polyline class=\"{class}\" points=\"{points}\"/>"
        );
    }

    /// The area below the points, each of which is as high until the next one.
    pub(super) fn area(&mut self, values: &[f64], class: &str) {
        let at = |place: usize| place as f64 / values.len().max(1) as f64;
        let steps = values.iter().enumerate();
        let steps = steps.flat_map(|(place, value)| [(at(place), *value), (at(place + 1), *value)]);
        let points = self.points([(0.0, 0.0)].into_iter().chain(steps).chain([(1.0, 0.0)]));
        let _ = writeln!(
            self.page,
            "<polygon class=\"{class}\" points=\"{points}\"/>"
        );
    }

    pub(super) fn bar(&mut self, (from, to): (f64, f64), value: f64, class: &str) {
        let (x, y) = (Self::x(from), self.y(value));
        let _ = writeln!(
            self.page,
            "<rect class=\"{class}\" x=\"{:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\"/>",
            x + 1.0,
            (Self::x(to) - x - 2.0).max(0.5),
            BOTTOM - y
        );
    }

    /// Writes below the picture; what stands at an edge does not cross it.
    pub(super) fn mark(&mut self, x: f64, text: &str) {
        let anchor = match x {
            ..0.02 => "start",
            0.98.. => "end",
            _ => "middle",
        };
        let _ = writeln!(
            self.page,
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"{anchor}\">{}</text>",
            Self::x(x),
            BOTTOM + 18.0,
            escaped(text)
        );
    }

    pub(super) fn dashed(&mut self, x: f64) {
        let x = Self::x(x);
        let _ = writeln!(
            self.page,
            "<line class=\"limit dashed\" x1=\"{x:.1}\" y1=\"{TOP}\" x2=\"{x:.1}\" y2=\"{BOTTOM}\"/>"
        );
    }

    /// Ends it with a sentence about what is seen.
    pub(super) fn end(self, caption: &str) {
        let _ = writeln!(
            self.page,
            "</svg><figcaption>{}</figcaption></figure>",
            escaped(caption)
        );
    }
}

/// The text as HTML has it.
pub(super) fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;").replace('"', "&quot;")
}
