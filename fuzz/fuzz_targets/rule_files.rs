#![no_main]

use testkit::fuzz::rules::{Refused, check_file};
use tower_ratelimit::rules::{Format, Rules};

fn read(text: &str, format: u8) -> Result<(), Refused> {
    let format = [Format::Yaml, Format::Json, Format::Toml][usize::from(format)];
    let Err(error) = Rules::builder().parse(text, format) else {
        return Ok(());
    };
    let problems = error.problems().iter();
    Err(Refused {
        problems: problems
            .map(|problem| (problem.code().to_owned(), problem.line(), problem.column()))
            .collect(),
        text: error.to_string(),
    })
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| check_file(data, read));
