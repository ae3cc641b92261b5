//! Draws the herd and the convergence of the page on clients, as the pictures in `crates/client/docs/plots`.
//!
//! ```sh
//! cargo run -p example-client --bin client_plots
//! ```
//!
//! The real pacers wait, in a time that moves when all wait, so every run draws the same. A folder as
//! the argument takes the pictures instead.

use std::{
    env,
    fmt::Write as _,
    fs, io,
    path::{Path, PathBuf},
};

use example_client::{Again, Arrival, CLIENTS, LIMIT, convergence, herd};

const LEFT: f64 = 64.0;
const WIDTH: f64 = 600.0;

fn main() -> io::Result<()> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/client/docs/plots");
    let folder = env::args_os().nth(1).map_or(docs, PathBuf::from);
    fs::create_dir_all(&folder)?;
    let mut links = String::new();
    for (name, svg) in [("herd", draw_herd()), ("convergence", draw_convergence())] {
        fs::write(folder.join(format!("{name}.svg")), &svg)?;
        writeln!(links, "[plot-{name}]: <{}>", data_uri(&svg)).expect("a string takes all");
    }
    fs::write(folder.join("links.md"), links)
}

/// A panel for each kind of retry: requests in each half second.
fn draw_herd() -> String {
    let mut svg = head(
        400,
        "A thousand clients are told Retry-After: 1 at the same moment",
    );
    let ways = [
        (Again::Exactly, "again after exactly that"),
        (Again::TenPercent, "up to 10 % later"),
        (
            Again::FullJitter,
            "a random share of 0.5 s later, doubling: as this crate does it",
        ),
    ];
    for (row, (again, label)) in ways.into_iter().enumerate() {
        let arrivals = herd(again);
        // The first attempts, a thousand at once, are the same for all.
        let again: Vec<_> = arrivals.into_iter().skip(1_000).collect();
        let bottom = 140.0 + 116.0 * row as f64;
        let panel = Panel {
            bottom,
            unit: 74.0 / 1_000.0,
            seconds: 40,
            each: 500,
        };
        svg += &panel.axes(&[0, 500, 1_000], "in 0.5 s");
        svg += &panel.bars("refused", &again, |_| true);
        svg += &panel.bars("taken", &again, |arrival| arrival.taken);
        let label = format!(
            "{label}: {:.1} attempts each",
            1.0 + again.len() as f64 / 1_000.0
        );
        svg += &text(LEFT + WIDTH, bottom - 80.0, "end", &label);
    }
    svg += &legend(0, 36.0, "refused", "refused");
    svg += &legend(1, 36.0, "taken", "taken");
    svg + "</svg>\n"
}

/// Requests in each second, and each client's share of the limit.
fn draw_convergence() -> String {
    let arrivals = convergence();
    let title =
        format!("{CLIENTS} clients that know nothing, one server of {LIMIT} requests a second");
    let mut svg = head(400, &title);
    let panel = Panel {
        bottom: 200.0,
        unit: 0.5,
        seconds: 60,
        each: 1_000,
    };
    svg += &panel.axes(&[0, 100, 200], "all, in 1 s");
    svg += &panel.bars("refused", &arrivals, |_| true);
    svg += &panel.bars("taken", &arrivals, |arrival| arrival.taken);
    svg += &panel.line("limit", LIMIT as f64);
    let shares = Panel {
        bottom: 360.0,
        unit: 2.4,
        seconds: 60,
        each: 1_000,
    };
    svg += &shares.axes(&[0, 25, 50], "each, in 1 s");
    for client in 0..CLIENTS {
        svg += &shares.curve("share", &arrivals, |arrival| {
            arrival.taken && arrival.client == client
        });
    }
    svg += &shares.line("limit", LIMIT as f64 / CLIENTS as f64);
    svg += &legend(0, 36.0, "refused", "refused");
    svg += &legend(1, 36.0, "taken", "taken");
    svg + "</svg>\n"
}

fn head(height: u32, title: &str) -> String {
    let head = format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 680 {height}" width="680" height="{height}" font-family="sans-serif" font-size="12">
<style>
.page{{fill:#fff}}text{{fill:#424a53}}.title{{font-size:15px;font-weight:bold;fill:#1f2328}}
.refused{{fill:#c4ccd5}}.taken{{fill:#0969da}}.share{{fill:none;stroke:#0969da;stroke-opacity:.6}}
.grid{{fill:none;stroke:#d8dee4}}.limit{{fill:none;stroke:#cf222e;stroke-width:1.5;stroke-dasharray:6 4}}
.middle{{text-anchor:middle}}.end{{text-anchor:end}}
@media(prefers-color-scheme:dark){{
.page{{fill:#161b22}}text{{fill:#b1bac4}}.title{{fill:#f0f6fc}}.refused{{fill:#4d5661}}.taken{{fill:#58a6ff}}
.share{{stroke:#58a6ff}}.grid{{stroke:#30363d}}.limit{{stroke:#ff7b72}}}}
</style>
<rect class="page" width="680" height="{height}" rx="6"/>
"##
    );
    head + &text(LEFT, 22.0, "title", title)
}

/// Counts over time, from the left to the right.
struct Panel {
    bottom: f64,
    /// Pixels for one request.
    unit: f64,
    seconds: u64,
    /// Milliseconds that are counted together.
    each: u64,
}

impl Panel {
    fn x(&self, millis: u64) -> f64 {
        LEFT + WIDTH * millis as f64 / (self.seconds * 1_000) as f64
    }

    fn y(&self, count: f64) -> f64 {
        self.bottom - count * self.unit
    }

    fn counts(&self, arrivals: &[Arrival], counted: impl Fn(&Arrival) -> bool) -> Vec<f64> {
        let mut counts = vec![0.0; (self.seconds * 1_000 / self.each) as usize];
        for arrival in arrivals.iter().filter(|arrival| counted(arrival)) {
            let at = arrival.at.as_millis() / u128::from(self.each);
            if let Some(count) = usize::try_from(at).ok().and_then(|at| counts.get_mut(at)) {
                *count += 1.0;
            }
        }
        counts
    }

    fn bars(
        &self,
        class: &str,
        arrivals: &[Arrival],
        counted: impl Fn(&Arrival) -> bool,
    ) -> String {
        let mut path = String::new();
        for (n, count) in (0..).zip(self.counts(arrivals, counted)) {
            if count > 0.0 {
                let (left, right) = (
                    self.x(n * self.each) + 0.5,
                    self.x((n + 1) * self.each) - 0.5,
                );
                let (top, bottom) = (self.y(count), self.bottom);
                path += &format!("M{left:.1} {bottom}V{top:.1}H{right:.1}V{bottom}z");
            }
        }
        format!("<path class=\"{class}\" d=\"{path}\"/>\n")
    }

    fn curve(
        &self,
        class: &str,
        arrivals: &[Arrival],
        counted: impl Fn(&Arrival) -> bool,
    ) -> String {
        let mut path = String::new();
        for (n, count) in (0..).zip(self.counts(arrivals, counted)) {
            let letter = if n == 0 { 'M' } else { 'L' };
            let x = self.x(n * self.each + self.each / 2);
            path += &format!("{letter}{x:.1} {:.1}", self.y(count));
        }
        format!("<path class=\"{class}\" d=\"{path}\"/>\n")
    }

    fn line(&self, class: &str, count: f64) -> String {
        let right = LEFT + WIDTH;
        format!(
            "<path class=\"{class}\" d=\"M{LEFT} {:.1}H{right}\"/>\n",
            self.y(count)
        )
    }

    fn axes(&self, numbers: &[u32], label: &str) -> String {
        let mut svg = String::new();
        for number in numbers {
            svg += &self.line("grid", f64::from(*number));
            let y = self.y(f64::from(*number)) + 4.0;
            svg += &text(LEFT - 8.0, y, "end", &number.to_string());
        }
        for second in (0..=self.seconds).step_by(10) {
            svg += &text(
                self.x(second * 1_000),
                self.bottom + 16.0,
                "middle",
                &format!("{second} s"),
            );
        }
        let middle = (self.bottom + self.y(f64::from(numbers[numbers.len() - 1]))) / 2.0;
        svg += &format!("<g transform=\"translate(18 {middle:.1}) rotate(-90)\">\n");
        svg += &text(0.0, 0.0, "middle", label);
        svg + "</g>\n"
    }
}

fn legend(column: u32, y: f64, class: &str, label: &str) -> String {
    let x = LEFT + 100.0 * f64::from(column);
    let sample = format!("<path class=\"{class}\" d=\"M{x} {y}h12v12h-12z\"/>\n");
    sample + &text(x + 18.0, y + 10.0, "", label)
}

fn text(x: f64, y: f64, class: &str, text: &str) -> String {
    format!("<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{text}</text>\n")
}

/// The picture as a data URL: rustdoc copies no files.
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
