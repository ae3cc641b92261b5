//! The pages of recipes, held equal to their files.

use std::{collections::BTreeMap, fs, path::Path};

/// The line that ends the part of a file on the page.
const END: &str = "// The test, which is not on the page.";

/// The pages, by their names.
const PAGES: [(&str, &str); 2] = [
    (
        "docs/cookbook.md",
        include_str!("../../../docs/cookbook.md"),
    ),
    (
        "docs/cookbook-setup.md",
        include_str!("../../../docs/cookbook-setup.md"),
    ),
];

const MAX_LINES: usize = 15;

/// A recipe's code, from its file.
pub(crate) fn recipe(file: &str) -> String {
    let (recipe, _) = file.split_once(END).expect("the line that ends it");
    let code = recipe.lines().filter(|line| !line.starts_with("//!"));
    code.collect::<Vec<_>>().join("\n").trim().to_owned()
}

/// A recipe's problem, from the first lines of its file.
fn problem(file: &str) -> String {
    let lines = file.lines().map_while(|line| line.strip_prefix("//! "));
    lines.collect::<Vec<_>>().join(" ")
}

/// The anchor that GitHub and rustdoc make of a title.
fn anchor(title: &str) -> String {
    let title = title.to_lowercase().replace(' ', "-");
    title
        .chars()
        .filter(|char| char.is_alphanumeric() || *char == '-')
        .collect()
}

/// The files by the anchors of their recipes: that of `per_api_key.rs` is `per-api-key`.
fn files() -> BTreeMap<String, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/recipes");
    let files = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let recipes = files.filter(|file| !file.ends_with("mod.rs"));
    recipes
        .map(|file| {
            let name = file.file_stem().unwrap().to_str().unwrap();
            (name.replace('_', "-"), fs::read_to_string(&file).unwrap())
        })
        .collect()
}

/// A page's sections by their anchors, in its order.
fn sections(page: &str) -> Vec<(String, String)> {
    let is_definition = |line: &&str| line.starts_with('[') && line.contains("]: ");
    let lines = page.lines().filter(|line| !is_definition(line));
    let page = lines.collect::<Vec<_>>().join("\n");
    let sections = page.split("\n## ").skip(1);
    sections
        .map(|section| {
            let (title, text) = section.split_once('\n').unwrap();
            (anchor(title), text.trim().to_owned())
        })
        .collect()
}

#[test]
fn every_section_is_its_files_problem_and_code_and_a_trap() {
    let files = files();
    for (name, page) in PAGES {
        for (anchor, text) in sections(page) {
            let file = files
                .get(&anchor)
                .unwrap_or_else(|| panic!("no file `src/recipes/{}.rs`", anchor.replace('-', "_")));
            let problem = problem(file);
            let begins = format!("{problem}\n\n```rust\n{}\n```\n\n", recipe(file));
            let Some(trap) = text.strip_prefix(&begins) else {
                panic!("{name}, {anchor}: the section has to begin with\n\n{begins}");
            };
            assert!(
                !trap.is_empty() && !trap.contains("```"),
                "{anchor}: {trap}"
            );
        }
    }
}

#[test]
fn every_file_is_on_one_page_and_in_its_contents() {
    let mut on_pages = Vec::new();
    for (name, page) in PAGES {
        let on_page: Vec<_> = sections(page)
            .into_iter()
            .map(|(anchor, _)| anchor)
            .collect();
        let (contents, _) = page.split_once("\n## ").unwrap();
        let links = contents.split("](#").skip(1);
        let links: Vec<_> = links.map(|link| link.split(')').next().unwrap()).collect();
        assert_eq!(links, on_page, "{name}");
        on_pages.extend(on_page);
    }
    on_pages.sort();
    let files: Vec<_> = files().into_keys().collect();
    assert_eq!(on_pages, files);
}

#[test]
fn recipes_are_short() {
    for (anchor, file) in files() {
        let lines = recipe(&file).lines().count();
        assert!(
            lines <= MAX_LINES,
            "{anchor}: {lines} lines, at most {MAX_LINES}"
        );
    }
}
