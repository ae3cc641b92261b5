//! The page shows what the tests compile.

const PAGE: &str = include_str!("../../../../docs/migrate.md");
const SOURCES: [(&str, &str); 3] = [
    ("## From tower_governor", include_str!("tower_governor.rs")),
    ("## From axum-governor", include_str!("axum_governor.rs")),
    ("## From governor", include_str!("governor.rs")),
];

#[test]
fn the_set_ups_on_the_page_are_those_of_the_tests() {
    for (heading, source) in SOURCES {
        let section = PAGE.split_once(heading).unwrap().1;
        let section = section.split("\n## ").next().unwrap();
        let blocks: Vec<_> = section
            .split("```rust")
            .skip(1)
            .map(|block| block.split_once('\n').unwrap().1)
            .map(|block| block.split("```").next().unwrap())
            .collect();
        assert_eq!(blocks.len(), 2, "{heading}: before and after");
        for block in blocks {
            let found = flat(source).contains(&flat(block));
            assert!(found, "{heading}: no test has\n{block}");
        }
    }
}

/// The lines without indentation.
fn flat(text: &str) -> String {
    text.lines()
        .map(|line| format!("{}\n", line.trim()))
        .collect()
}
