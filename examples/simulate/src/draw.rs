//! Pictures: lines over nodes, load and time.

use testkit::{
    llm::competing_streams::{FRAMES_A_MINUTE, LIMIT, Way},
    simulation::{BUCKET, Mode},
};

use crate::measure::{DRAWN, LOADS, MODES, Measured, NODES, OUTAGE, OVER, Spec, THROUGH_OUTAGE};

const LEFT: f64 = 64.0;
const WIDTH: f64 = 600.0;

/// A part of a picture, with a scale for each direction.
struct Panel {
    bottom: f64,
    height: f64,
    x: Scale,
    y: Scale,
}

/// Numbers along a line, evenly or by their logarithm.
struct Scale {
    from: f64,
    to: f64,
    is_log: bool,
}

/// Over- and under-admission against the number of nodes.
pub(crate) fn nodes(measured: &Measured) -> String {
    let mut svg = head(
        444,
        "Admitted by so many nodes, against what one limiter would",
    );
    svg += &legends(&MODES);
    let most = OVER.0.rate();
    let over = Panel::new(220.0, 140.0, NODE_SCALE, Scale::even(0.0, 40.0));
    let title = "too much: fixed window of 1 s, 5 times the limit asked for";
    svg += &over.frame(
        &node_labels(),
        &percents(&[0.0, 10.0, 20.0, 30.0, 40.0]),
        title,
    );
    let under = Panel::new(410.0, 140.0, NODE_SCALE, Scale::even(0.0, 4.0));
    let title = "too little: token bucket, 1.5 times the limit asked for";
    svg += &under.frame(&node_labels(), &percents(&[0.0, 1.0, 2.0, 3.0, 4.0]), title);
    for mode in MODES.into_iter().rev() {
        let share = |nodes| {
            let numbers = measured.numbers(&Spec::new(mode, OVER, nodes));
            100.0 * numbers.over as f64 / most
        };
        svg += &over.curve(mode.name(), NODES.map(|nodes| (nodes as f64, share(nodes))));
        let lost = |nodes| measured.numbers(&Spec::under(mode, nodes)).lost();
        svg += &under.curve(mode.name(), NODES.map(|nodes| (nodes as f64, lost(nodes))));
    }
    svg += &text(LEFT + WIDTH, 438.0, "end", "nodes");
    svg + "</svg>\n"
}

/// Calls per decision against the load.
pub(crate) fn calls(measured: &Measured) -> String {
    let mut svg = head(
        444,
        "Calls for each decision, token bucket of 10,000 a second",
    );
    svg += &legends(&MODES);
    for (nodes, bottom) in [(10, 220.0), (100, 410.0)] {
        let (x, y) = (Scale::log(0.2, 5.0), Scale::log(0.001, 1.0));
        let panel = Panel::new(bottom, 140.0, x, y);
        let loads = [0.2, 0.5, 1.0, 2.0, 5.0].map(|load| (load, format!("{load} ×")));
        let shares = [0.001, 0.01, 0.1, 1.0].map(|share| (share, format!("{share}")));
        svg += &panel.frame(&loads, &shares, &format!("{nodes} nodes"));
        for mode in MODES.into_iter().rev() {
            let point = |load| {
                let numbers = measured.numbers(&Spec::new(mode, (BUCKET, load), nodes));
                (load, numbers.calls_per_decision())
            };
            svg += &panel.curve(mode.name(), LOADS.map(point));
        }
    }
    svg += &text(LEFT + WIDTH, 438.0, "end", "asked for, by the limit");
    svg + "</svg>\n"
}

/// The units that pass around an outage.
pub(crate) fn outage(measured: &Measured) -> String {
    let mut svg = head(
        612,
        "10 nodes lose their store for half a second, at 0.8 × the limit",
    );
    let millis = |place: usize| place as f64 * 10.0;
    for (row, mode) in THROUGH_OUTAGE.into_iter().enumerate() {
        let bottom = 150.0 + 142.0 * row as f64;
        let x = Scale::even(millis(DRAWN.0), millis(DRAWN.1));
        let panel = Panel::new(bottom, 90.0, x, Scale::even(0.0, 150.0));
        let times = [1_800.0, 2_000.0, 2_500.0, 3_000.0].map(|at| (at, format!("{} s", at / 1e3)));
        let counts = [0.0, 50.0, 100.0, 150.0].map(|count| (count, format!("{count}")));
        svg += &panel.shade(OUTAGE.0 as f64, OUTAGE.1 as f64);
        svg += &panel.frame(
            &times,
            &counts,
            &format!("{}: admitted in 10 ms", mode.name()),
        );
        let flow = measured.flow(mode);
        let bars = flow.iter().enumerate();
        let bars = bars.map(|(at, units)| (millis(DRAWN.0 + at), *units as f64));
        svg += &panel.bars(mode, bars);
    }
    svg += &text(LEFT + WIDTH, 606.0, "end", "shaded: no call arrives");
    svg + "</svg>\n"
}

/// The tokens of the last minute by ways to charge streams.
pub(crate) fn overshoot(runs: &[(Way, &str, &str)], minutes: usize) -> String {
    let mut svg = head(300, "100 streams that share 50,000 tokens a minute");
    svg += &legend(200.0, runs.iter().map(|(_, class, label)| (*class, *label)));
    let (x, y) = (Scale::even(0.0, minutes as f64), Scale::even(0.0, 6.0));
    let panel = Panel::new(260.0, 180.0, x, y);
    let times = (0..=minutes).map(|minute| (minute as f64, minute.to_string()));
    let shares = (0..=6).map(|share| (f64::from(share), format!("{share} ×")));
    let (times, shares): (Vec<_>, Vec<_>) = (times.collect(), shares.collect());
    svg += &panel.frame(
        &times,
        &shares,
        "used in the last minute, in multiples of the limit",
    );
    let flat = |share| [(0.0, share), (minutes as f64, share)];
    svg += &panel.curve("limit", flat(1.0));
    for (way, class, _) in runs {
        let used = way.run(minutes).trailing_minutes();
        // A point for each three seconds.
        let points = used.iter().enumerate().step_by(6);
        let points = points.map(|(at, tokens)| {
            let minute = at as f64 / FRAMES_A_MINUTE as f64;
            (minute, *tokens as f64 / LIMIT as f64)
        });
        svg += &panel.curve(class, points);
    }
    svg += &text(
        LEFT + WIDTH,
        292.0,
        "end",
        "minutes, from a full bucket on; dashed: the limit",
    );
    svg + "</svg>\n"
}

const NODE_SCALE: Scale = Scale::log(1.0, 1_000.0);

fn node_labels() -> Vec<(f64, String)> {
    let nodes = NODES.into_iter().map(|nodes| nodes as f64);
    nodes.map(|nodes| (nodes, nodes.to_string())).collect()
}

fn percents(shares: &[f64]) -> Vec<(f64, String)> {
    let shares = shares.iter();
    shares.map(|share| (*share, format!("{share} %"))).collect()
}

impl Scale {
    const fn even(from: f64, to: f64) -> Self {
        Self {
            from,
            to,
            is_log: false,
        }
    }

    const fn log(from: f64, to: f64) -> Self {
        Self {
            from,
            to,
            is_log: true,
        }
    }

    /// The place of a number, from 0 to 1.
    fn place(&self, number: f64) -> f64 {
        let number = number.clamp(self.from, self.to);
        if self.is_log {
            (number / self.from).ln() / (self.to / self.from).ln()
        } else {
            (number - self.from) / (self.to - self.from)
        }
    }
}

impl Panel {
    const fn new(bottom: f64, height: f64, x: Scale, y: Scale) -> Self {
        Self {
            bottom,
            height,
            x,
            y,
        }
    }

    fn x(&self, number: f64) -> f64 {
        LEFT + WIDTH * self.x.place(number)
    }

    fn y(&self, number: f64) -> f64 {
        self.bottom - self.height * self.y.place(number)
    }

    /// Lines for the numbers, and what is shown.
    fn frame(&self, along: &[(f64, String)], up: &[(f64, String)], title: &str) -> String {
        let mut svg = String::new();
        let mut path = String::new();
        for (number, label) in up {
            let y = self.y(*number);
            path += &format!("M{LEFT} {y:.1}H{}", LEFT + WIDTH);
            svg += &text(LEFT - 8.0, y + 4.0, "end", label);
        }
        let top = self.bottom - self.height;
        for (number, label) in along {
            let x = self.x(*number);
            path += &format!("M{x:.1} {}V{top}", self.bottom);
            svg += &text(x, self.bottom + 16.0, "middle", label);
        }
        svg += &text(LEFT, top - 10.0, "", title);
        format!("<path class=\"grid\" d=\"{path}\"/>\n{svg}")
    }

    fn curve(&self, class: &str, points: impl IntoIterator<Item = (f64, f64)>) -> String {
        let mut path = String::new();
        for (x, y) in points {
            let letter = if path.is_empty() { 'M' } else { 'L' };
            path += &format!("{letter}{:.1} {:.1}", self.x(x), self.y(y));
        }
        format!("<path class=\"line {class}\" d=\"{path}\"/>\n")
    }

    fn bars(&self, mode: Mode, bars: impl Iterator<Item = (f64, f64)>) -> String {
        let mut path = String::new();
        for (x, y) in bars.filter(|(_, units)| *units > 0.0) {
            let (left, right) = (self.x(x), self.x(x + 10.0));
            let (top, bottom) = (self.y(y), self.bottom);
            path += &format!("M{left:.1} {bottom}V{top:.1}H{right:.1}V{bottom}z");
        }
        format!("<path class=\"bars {}\" d=\"{path}\"/>\n", mode.name())
    }

    fn shade(&self, from: f64, to: f64) -> String {
        let (left, right) = (self.x(from), self.x(to));
        let (top, bottom) = (self.bottom - self.height, self.bottom);
        format!("<path class=\"shade\" d=\"M{left:.1} {bottom}V{top}H{right:.1}V{bottom}z\"/>\n")
    }
}

fn head(height: u32, title: &str) -> String {
    let head = format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 680 {height}" width="680" height="{height}" font-family="sans-serif" font-size="12">
<style>
.page{{fill:#fff}}text{{fill:#424a53}}.title{{font-size:15px;font-weight:bold;fill:#1f2328}}
.grid{{fill:none;stroke:#d8dee4}}.shade{{fill:#ffebe9}}.line{{fill:none;stroke-width:2}}
.strict.line{{stroke:#cf222e}}.leased.line{{stroke:#0969da}}.mixed.line{{stroke:#8250df;stroke-dasharray:6 4}}.eventual.line{{stroke:#1a7f37}}.timer.line{{stroke:#8c959f}}
.after.line{{stroke:#cf222e}}.owing.line{{stroke:#0969da}}.ending.line{{stroke:#1a7f37}}.limit.line{{stroke:#57606a;stroke-width:1.5;stroke-dasharray:6 4}}
.strict.bars{{fill:#cf222e}}.leased.bars{{fill:#0969da}}.eventual.bars{{fill:#1a7f37}}.timer.bars{{fill:#8c959f}}
.middle{{text-anchor:middle}}.end{{text-anchor:end}}
@media(prefers-color-scheme:dark){{
.page{{fill:#161b22}}text{{fill:#b1bac4}}.title{{fill:#f0f6fc}}.grid{{stroke:#30363d}}.shade{{fill:#3d1d20}}
.strict.line{{stroke:#ff7b72}}.leased.line{{stroke:#58a6ff}}.mixed.line{{stroke:#bc8cff}}.eventual.line{{stroke:#3fb950}}.timer.line{{stroke:#6e7681}}
.after.line{{stroke:#ff7b72}}.owing.line{{stroke:#58a6ff}}.ending.line{{stroke:#3fb950}}.limit.line{{stroke:#8b949e}}
.strict.bars{{fill:#ff7b72}}.leased.bars{{fill:#58a6ff}}.eventual.bars{{fill:#3fb950}}.timer.bars{{fill:#6e7681}}}}
</style>
<rect class="page" width="680" height="{height}" rx="6"/>
"##
    );
    head + &text(LEFT, 22.0, "title", title)
}

fn legends(modes: &[Mode]) -> String {
    legend(120.0, modes.iter().map(|mode| (mode.name(), mode.name())))
}

/// The class and the label of each line, so far apart.
fn legend<'l>(width: f64, lines: impl IntoIterator<Item = (&'l str, &'l str)>) -> String {
    let mut svg = String::new();
    for (column, (class, label)) in lines.into_iter().enumerate() {
        let x = LEFT + width * column as f64;
        svg += &format!("<path class=\"line {class}\" d=\"M{x} 42h18\"/>\n");
        svg += &text(x + 24.0, 46.0, "", label);
    }
    svg
}

fn text(x: f64, y: f64, class: &str, text: &str) -> String {
    format!("<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{text}</text>\n")
}
