//! The recipes of `docs/cookbook.md` and `docs/cookbook-setup.md`, compiled and tried. Each file of `recipes` is one: the
//! problem in its `//!` line, the code up to the line `// The test, which is not on the page.`, and its test. `page.rs`
//! holds the pages equal to the files.

#[cfg(test)]
mod page;
#[cfg(test)]
mod recipes;
#[cfg(test)]
mod test_requests;
