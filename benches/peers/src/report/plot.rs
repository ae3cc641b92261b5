use std::{error::Error, ops::Range};

use plotters::prelude::*;
use serde::Serialize;

use super::Table;
use crate::rounds::Samples;

/// Lines over a common axis, which is logarithmic; what they measure is not.
#[derive(Debug, Serialize)]
pub struct Plot {
    /// Its name without an ending.
    pub file: &'static str,
    pub title: String,
    pub along: String,
    /// The base of the axis: its powers are marked.
    pub base: f64,
    pub unit: String,
    pub lines: Vec<Line>,
}

/// A contender.
#[derive(Debug, Serialize)]
pub struct Line {
    pub(super) name: String,
    points: Vec<(f64, Samples)>,
}

impl Line {
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            points: Vec::new(),
        }
    }

    pub fn push(&mut self, at: f64, samples: Samples) {
        self.points.push((at, samples));
    }

    pub(super) fn medians(&self) -> impl Iterator<Item = (f64, f64)> {
        self.points
            .iter()
            .map(|(at, samples)| (*at, samples.median()))
    }
}

type Drawn<T> = Result<T, Box<dyn Error + Send + Sync>>;

const COLORS: [RGBColor; 6] = [
    RGBColor(0x88, 0x88, 0x88),
    RGBColor(0xC4, 0x3C, 0x2E),
    RGBColor(0xE8, 0x9A, 0x3C),
    RGBColor(0x2E, 0x6F, 0xB5),
    RGBColor(0x3A, 0x91, 0x5B),
    RGBColor(0x7C, 0x4D, 0xA8),
];

/// Colours of [`COLORS`] and of what is drawn around, and those that take their place on a dark page.
const DARK: [(&str, &str); 9] = [
    ("#FFFFFF", "#161b22"),
    ("#000000", "#b1bac4"),
    ("#CCCCCC", "#30363d"),
    ("#888888", "#8b949e"),
    ("#C43C2E", "#ff7b72"),
    ("#E89A3C", "#d29922"),
    ("#2E6FB5", "#58a6ff"),
    ("#3A915B", "#3fb950"),
    ("#7C4DA8", "#bc8cff"),
];

/// Adds a style sheet, which overrides the attributes that plotters writes, where the reader's page is
/// dark.
fn for_both_schemes(mut svg: String) -> String {
    let rules = DARK.map(|(light, dark)| {
        format!("[fill=\"{light}\"]{{fill:{dark}}}[stroke=\"{light}\"]{{stroke:{dark}}}")
    });
    let style = format!(
        "\n<style>@media(prefers-color-scheme:dark){{{}}}</style>",
        rules.concat()
    );
    let end = svg.find('>').map_or(0, |at| at + 1);
    svg.insert_str(end, &style);
    svg
}

impl Plot {
    pub(super) fn draw(&self) -> Drawn<String> {
        let mut svg = String::new();
        self.draw_on(&SVGBackend::with_string(&mut svg, (860, 480)).into_drawing_area())
            .map_err(|error| error.to_string())?;
        Ok(for_both_schemes(svg))
    }

    /// Both axes, the second with room for the legend.
    fn extent(&self) -> (Range<f64>, Range<f64>) {
        let points = || self.lines.iter().flat_map(Line::medians);
        let most = |number: fn((f64, f64)) -> f64| points().map(number).fold(0.0, f64::max);
        let least = points().map(|(at, _)| at).fold(f64::MAX, f64::min);
        (least..most(|(at, _)| at), 0.0..most(|(_, y)| y) * 1.3)
    }

    fn draw_on(&self, area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>) -> Drawn<()> {
        area.fill(&WHITE).map_err(text)?;
        let (along, up) = self.extent();
        let mut chart = ChartBuilder::on(area)
            .caption(&self.title, ("sans-serif", 20))
            .margin(16)
            .margin_right(44)
            .x_label_area_size(44)
            .y_label_area_size(64)
            .build_cartesian_2d(along.log_scale().base(self.base), up)
            .map_err(text)?;
        chart
            .configure_mesh()
            .x_desc(&self.along)
            .y_desc(&self.unit)
            .x_label_formatter(&|at| super::text::number(*at))
            .draw()
            .map_err(text)?;
        for (line, color) in self.lines.iter().zip(COLORS) {
            let series = LineSeries::new(line.medians(), color.stroke_width(2)).point_size(3);
            chart
                .draw_series(series)
                .map_err(text)?
                .label(&line.name)
                .legend(move |(x, y)| {
                    Rectangle::new([(x, y - 4), (x + 14, y + 4)], color.filled())
                });
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .border_style(RGBColor(0xCC, 0xCC, 0xCC))
            .background_style(WHITE.mix(0.8))
            .draw()
            .map_err(text)?;
        area.present().map_err(text)
    }
}

fn text(error: impl std::fmt::Display) -> Box<dyn Error + Send + Sync> {
    error.to_string().into()
}

/// The sizes of a column of tables.
#[derive(Clone, Copy)]
struct Column {
    width: i32,
    /// Where the bars begin.
    bars: i32,
}

const ROW: i32 = 20;

/// A bar for each row of all tables, in as many pictures as it takes for each to fit on a screen.
pub(super) fn bars(tables: &[Table]) -> Drawn<Vec<String>> {
    const HEIGHT: i32 = 800;
    const COLUMN: Column = Column {
        width: 860,
        bars: 330,
    };
    let mut pictures: Vec<Vec<&Table>> = Vec::new();
    let mut height = HEIGHT;
    for table in tables {
        height += height_of(table);
        if height > HEIGHT {
            pictures.push(Vec::new());
            height = height_of(table);
        }
        if let Some(picture) = pictures.last_mut() {
            picture.push(table);
        }
    }
    let pictures = pictures.iter();
    pictures.map(|tables| draw(&[tables], COLUMN)).collect()
}

/// The tables in two columns.
pub(super) fn overview(tables: &[Table]) -> Drawn<String> {
    const COLUMN: Column = Column {
        width: 480,
        bars: 150,
    };
    let left: Vec<_> = tables.iter().step_by(2).collect();
    let right: Vec<_> = tables.iter().skip(1).step_by(2).collect();
    draw(&[&left, &right], COLUMN)
}

fn height_of(table: &Table) -> i32 {
    (table.rows.len() as i32 + 2) * ROW
}

/// Draws tables in columns; those beside each other begin at the same height.
fn draw(columns: &[&[&Table]], sizes: Column) -> Drawn<String> {
    let deepest = columns.iter().map(|tables| tables.len()).max().unwrap_or(0);
    let beside = |at| columns.iter().filter_map(move |tables| tables.get(at));
    let heights: Vec<i32> = (0..deepest)
        .map(|at| beside(at).map(|table| height_of(table)).max().unwrap_or(0))
        .collect();
    let width = sizes.width * columns.len() as i32;
    let size = (width as u32, heights.iter().sum::<i32>() as u32);
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        area.fill(&WHITE).map_err(text)?;
        for (column, tables) in columns.iter().enumerate() {
            let mut at = (column as i32 * sizes.width, 4);
            for (table, height) in tables.iter().zip(&heights) {
                bars_of(table, &area, at, sizes)?;
                at.1 += height;
            }
        }
        area.present().map_err(text)?;
    }
    Ok(for_both_schemes(svg))
}

fn bars_of(
    table: &Table,
    area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    (x, mut y): (i32, i32),
    Column { width, bars }: Column,
) -> Drawn<()> {
    let name = |bold: bool| {
        let font = ("sans-serif", 13).into_font();
        if bold {
            font.style(FontStyle::Bold)
        } else {
            font
        }
    };
    let heading = format!("{} ({})", table.title, table.unit);
    area.draw(&Text::new(heading, (x + 8, y), name(true)))
        .map_err(text)?;
    let most = table.rows.iter().map(|row| row.median).fold(0.0, f64::max);
    for one in &table.rows {
        y += ROW;
        let ours = one.name.starts_with(crate::decision::OURS);
        let color = COLORS[if ours { 1 } else { 0 }];
        let share = if most > 0.0 {
            one.median.max(0.0) / most
        } else {
            0.0
        };
        let end = x + bars + (share * f64::from(width - bars - 80)) as i32;
        area.draw(&Text::new(one.name.as_str(), (x + 16, y), name(false)))
            .map_err(text)?;
        let bar = Rectangle::new([(x + bars, y), (end, y + ROW - 6)], color.filled());
        area.draw(&bar).map_err(text)?;
        let value = super::text::number(one.median);
        area.draw(&Text::new(value, (end + 6, y), name(false)))
            .map_err(text)?;
    }
    Ok(())
}
