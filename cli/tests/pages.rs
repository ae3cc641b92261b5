//! The page on finding a limit shows what the commands print.

use std::{fs::File, io::BufWriter};

#[path = "support/log.rs"]
mod log;

const PLOT: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../docs/tuning-plots/what_if.svg"
);

const PAGE: &str = include_str!("../../docs/tuning.md");

/// What a command prints, without its exit code.
fn printed(arguments: &[String]) -> String {
    let (mut out, mut errors) = (Vec::new(), Vec::new());
    let _ = tower_ratelimit_cli::run(arguments, false, &mut out, &mut errors);
    assert!(errors.is_empty(), "{}", String::from_utf8_lossy(&errors));
    String::from_utf8(out).expect("text")
}

/// The words of a command, with single quotes around some.
fn words(command: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (place, part) in command.split('\'').enumerate() {
        match place % 2 {
            0 => words.extend(part.split_whitespace().map(str::to_owned)),
            _ => words.push(part.to_owned()),
        }
    }
    words
}

#[test]
fn commands_print_what_the_page_says() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("access.log");
    let mut file = BufWriter::new(File::create(&path).expect("a file"));
    log::write_log(100_000, &mut file).expect("a log");
    drop(file);
    let rules = directory.path().join("rules.yaml");
    let (_, yaml) = PAGE.split_once("```yaml\n").expect("rules");
    let (yaml, _) = yaml.split_once("```").expect("an end");
    std::fs::write(&rules, yaml).expect("a file");
    let name = |file: &std::path::Path| file.display().to_string();
    let mut shown = 0;
    for block in PAGE.split("```console\n$ ").skip(1) {
        let (block, _) = block.split_once("```").expect("an end");
        let (command, expected) = block.split_once('\n').expect("what it prints");
        let arguments: Vec<_> = words(command)
            .into_iter()
            .map(|word| match word.as_str() {
                "access.log" => name(&path),
                "rules.yaml" => name(&rules),
                _ => word,
            })
            .collect();
        let told = printed(&arguments);
        // For whoever writes the page.
        if std::env::var_os("PRINT").is_some() {
            println!("$ {command}\n{told}");
            continue;
        }
        assert_eq!(told, expected, "{command}");
        shown += 1;
    }
    assert!(shown >= 4 || std::env::var_os("PRINT").is_some(), "{shown}");
}

/// The picture of the page is one of the report, on a sheet of its own.
#[test]
fn the_picture_is_drawn_by_the_program() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("access.log");
    let mut file = BufWriter::new(File::create(&path).expect("a file"));
    log::write_log(100_000, &mut file).expect("a log");
    drop(file);
    let report = directory.path().join("report.html");
    let name = |file: &std::path::Path| file.display().to_string();
    printed(
        &[
            words("tower-ratelimit replay --quota '30/minute burst 15' --what-if --report"),
            vec![name(&report), name(&path)],
        ]
        .concat(),
    );
    let page = std::fs::read_to_string(&report).expect("a page");
    let between = |from: &str, to: &str| {
        let (_, rest) = page.split_once(from).expect("a beginning");
        rest.split_once(to).expect("an end").0.to_owned()
    };
    // Its sheet is white whatever the reader's colours are.
    let style = between("<style>", "</style>").replace("color-scheme:light dark", "color:#333");
    let picture = between(
        "Limited requests by the limit</h2>\n<figure><svg ",
        "</svg>",
    );
    let (attributes, drawn) = picture.split_once('>').expect("an element");
    let drawn = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" {attributes}>\n<style>{style}</style>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>{drawn}</svg>\n"
    );
    if std::env::var_os("PRINT").is_some() {
        std::fs::write(PLOT, drawn).expect("a picture");
        return;
    }
    let committed = std::fs::read_to_string(PLOT).expect("a picture");
    assert_eq!(
        drawn, committed,
        "`PRINT=1 cargo test --test pages` draws it anew"
    );
}
