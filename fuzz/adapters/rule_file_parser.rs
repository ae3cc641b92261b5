//! Rule files, as the library reads them.

use testkit::fuzz::rules::Refused;
use tower_ratelimit::{
    clock::Timestamp,
    rules::{Format, Rules},
};

/// Reads a file in the format of this number, and explains a request by its rules.
pub(crate) fn read(text: &str, format: u8) -> Result<(), Refused> {
    let format = [Format::Yaml, Format::Json, Format::Toml][usize::from(format)];
    match Rules::builder().parse(text, format) {
        Ok(rules) => {
            let (parts, ()) = http::Request::new(()).into_parts();
            let _ = rules.explain(&parts, Timestamp::from_secs(0));
            Ok(())
        }
        Err(error) => Err(Refused {
            problems: error
                .problems()
                .iter()
                .map(|problem| (problem.code().to_owned(), problem.line(), problem.column()))
                .collect(),
            text: error.to_string(),
        }),
    }
}
