//! Pages show the real output of the commands, and name each option and each metric.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::BufWriter,
    path::PathBuf,
};

use crate::access_log;

const PLOT: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../replay/docs/plots/what_if.svg"
);

const PAGE: &str = include_str!("../../../replay/docs/tuning.md");

const RULES_PAGE: &str = include_str!("../../../rules/docs/rules.md");

/// The output of a command.
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
fn commands_print_the_output_on_the_page() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("access.log");
    let mut file = BufWriter::new(File::create(&path).expect("a file"));
    access_log::write_log(100_000, &mut file).expect("a log");
    drop(file);
    let rules = directory.path().join("rules.yaml");
    let (_, yaml) = PAGE.split_once("```yaml\n").expect("rules");
    let (yaml, _) = yaml.split_once("```").expect("an end");
    std::fs::write(&rules, yaml).expect("a file");
    let name = |file: &std::path::Path| file.display().to_string();
    assert_shown(PAGE, 4, |word| match word {
        "access.log" => Some(name(&path)),
        "rules.yaml" => Some(name(&rules)),
        _ => None,
    });
}

/// Each file has its name in the first line; one of them has a fault.
#[test]
fn rule_files_of_the_page_are_checked() {
    let directory = tempfile::tempdir().expect("a directory");
    let faulty =
        "rules:\n  - name: login\n    match: {metod: POST, path: /login}\n    quota: 5/minute\n";
    std::fs::write(directory.path().join("typo.yaml"), faulty).expect("a file");
    for block in RULES_PAGE.split("```yaml\n# ").skip(1) {
        let (block, _) = block.split_once("```").expect("an end");
        if let Some((file, text)) = block.split_once(".yaml\n") {
            let path = directory.path().join(format!("{file}.yaml"));
            std::fs::write(path, format!("# {file}.yaml\n{text}")).expect("a file");
        }
    }
    assert_shown(RULES_PAGE, 2, |word| {
        let path = directory.path().join(word);
        let is_file = path.extension().is_some() && path.is_file();
        is_file.then(|| path.display().to_string())
    });
}

/// Each command of the page prints the lines below it there. `place` maps files.
fn assert_shown(page: &str, least: usize, place: impl Fn(&str) -> Option<String>) {
    let mut shown = 0;
    for block in page.split("```console\n$ ").skip(1) {
        let (block, _) = block.split_once("```").expect("an end");
        let (command, expected) = block.split_once('\n').expect("what it prints");
        let mut named = Vec::new();
        let arguments: Vec<_> = words(command)
            .into_iter()
            .map(|word| match place(&word) {
                Some(path) => {
                    named.push((path.clone(), word));
                    path
                }
                None => word,
            })
            .collect();
        let mut reported = printed(&arguments);
        for (path, word) in &named {
            reported = reported.replace(path, word);
        }
        // For authors of the page.
        if std::env::var_os("PRINT").is_some() {
            println!("$ {command}\n{reported}");
            continue;
        }
        assert_eq!(reported, expected, "{command}");
        shown += 1;
    }
    assert!(
        shown >= least || std::env::var_os("PRINT").is_some(),
        "{shown}"
    );
}

/// The picture of the page is a chart of the report, on a background of its own.
#[test]
fn the_picture_is_drawn_by_the_program() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("access.log");
    let mut file = BufWriter::new(File::create(&path).expect("a file"));
    access_log::write_log(100_000, &mut file).expect("a log");
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
    // The background is white in all colour schemes.
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
        "`PRINT=1 cargo test --test command pages` draws it anew"
    );
}

/// The folders of the library and of each crate that have this name.
fn folders(name: &str) -> Vec<PathBuf> {
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let crates = fs::read_dir(root.join("crates")).expect("crates");
    let mut folders: Vec<_> = crates
        .map(|folder| folder.expect("a crate").path().join(name))
        .collect();
    folders.push(root.join(name));
    folders.retain(|folder| folder.is_dir());
    folders
}

/// The texts of all pages.
fn pages() -> String {
    let files = folders("docs")
        .into_iter()
        .flat_map(|folder| fs::read_dir(folder).expect("pages"));
    let files = files.map(|file| file.expect("a page").path());
    let pages = files.filter(|file| file.extension().is_some_and(|kind| kind == "md"));
    pages
        .map(|page| fs::read_to_string(page).expect("text"))
        .collect()
}

/// The words of a text that begin so, as far as their characters go.
fn words_from<'t>(text: &'t str, begin: &str, goes_on: fn(char) -> bool) -> BTreeSet<&'t str> {
    let found = text.match_indices(begin).map(|(at, _)| &text[at..]);
    let words = found.map(|rest| rest.split(|c| !goes_on(c)).next().unwrap_or_default());
    words.filter(|word| word.len() > begin.len()).collect()
}

#[test]
fn each_option_stands_on_a_page() {
    let is_of_option = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let pages = pages();
    let described = words_from(&pages, "--", is_of_option);
    let commands = "check explain replay serve envoy healthcheck gateway top schema";
    for command in commands.split(' ') {
        let help = printed(&[command, "--help"].map(str::to_owned));
        let options = words_from(&help, "--", is_of_option);
        for option in options.difference(&described) {
            let is_usual = ["--help", "--version"].contains(option);
            assert!(is_usual, "{option} of `{command}` is on no page");
        }
    }
}

#[test]
fn each_metric_stands_on_a_page() {
    let (mut folders, mut names) = (folders("src"), BTreeSet::new());
    while let Some(folder) = folders.pop() {
        for file in fs::read_dir::<PathBuf>(folder).expect("a folder") {
            let path = file.expect("a file").path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let Ok(code) = fs::read_to_string(&path) else {
                continue;
            };
            let quoted = words_from(&code, "\"ratelimit_", |c| {
                c.is_ascii_alphanumeric() || "_\"".contains(c)
            });
            let ended = quoted.iter().filter_map(|name| name[1..].strip_suffix('"'));
            names.extend(ended.map(str::to_owned));
        }
    }
    let pages = pages();
    assert!(names.len() > 40, "{names:?}");
    for name in names {
        assert!(pages.contains(&name), "{name} is on no page");
    }
}
