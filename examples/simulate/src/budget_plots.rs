//! The picture of `docs/budgets.md`: streams that share a limit, by the way they are charged.

use testkit::llm::competing_streams::{LIMIT, Way};

use crate::draw;

const MINUTES: usize = 6;

/// The ways, with the class and the label of each line.
const WAYS: [(Way, &str, &str); 3] = [
    (Way::Afterwards, "after", "counted afterwards"),
    (
        Way::Reserving {
            reserve: 1_024,
            debt: LIMIT,
        },
        "owing",
        "reserved, the rest owed",
    ),
    (Way::Ending, "ending", "reserved, ended"),
];

/// All that goes into `docs/budget-plots`, by its name.
pub fn files() -> Vec<(&'static str, String)> {
    let svg = draw::overshoot(&WAYS, MINUTES);
    let links = format!("[plot-overshoot]: <{}>\n", data_uri(&svg));
    vec![("overshoot.svg", svg), ("links.md", links)]
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
