//! Rule files of [tower-ratelimit](https://docs.rs/tower-ratelimit), without a limiter.
//!
//! A rule file is YAML, JSON or TOML that operators write. This package reads one into a document of values with
//! their places, compares it with a description of its fields, and reports each problem with its line:
//!
//! ```
//! use std::sync::Arc;
//! use tower_ratelimit_rulefile::{
//!     Format, Report, SourceText, document,
//!     fields::{Field, Number, Table, Text},
//! };
//!
//! static NAME: Field<Text> = Field::text("name", "login", "The rule's name.").required();
//! static COST: Field<Number> = Field::number("cost", 1..=1_000, "Units of a request. Default: 1.");
//! static RULE: Table = Table::new("the rule", "A rule.", &[&NAME, &COST]);
//!
//! let source = Arc::new(SourceText::new("rules.yaml".into(), "name: login\ncots: 5\n".into()));
//! let mut report = Report::default();
//! let rule = document::read(&source, Format::Yaml, &mut report).expect("the file has a value");
//! RULE.check(&rule, &mut report);
//!
//! assert_eq!(NAME.of(&rule), Some("login"));
//! assert_eq!(COST.of(&rule), None);
//! let error = report.finish().expect_err("a field is misspelt");
//! assert_eq!(
//!     error.to_string(),
//!     "rules.yaml:2:1: R02 unknown field \"cots\" in the rule; did you mean \"cost\"?
//!    2 | cots: 5
//!      | ^^^^"
//! );
//! ```
//!
//! | step | item | result |
//! |---|---|---|
//! | load a file | [`SourceText`], [`Format`] | its name and text |
//! | parse it | [`document::read`] | a tree of [`Node`](document::Node)s, each with its [`Span`] |
//! | check its fields | [`fields::Table::check`] | unknown, missing and misspelt fields in the [`Report`] |
//! | read its values | [`fields::Field`] | typed values; each field's name is written once |
//! | collect problems | [`Report`] | warnings, or a [`RulesError`] with up to twenty [`Problem`]s |
//! | describe the format | [`fields::json_schema`] | a JSON Schema for editors |
//! | match requests | [`pattern`], [`weekly_time_window`] | patterns of paths, hosts and texts; times of the week |
//!
//! The fields of tower-ratelimit's own rule files are in that crate, next to their meaning.

mod source_text;

mod problems;

pub mod document;
pub mod fields;
pub mod pattern;
pub mod weekly_time_window;

pub use self::{
    problems::{Problem, ProblemCode, Report, RulesError, listed, nearest},
    source_text::{Format, MessagePath, SourceText, Span},
};
