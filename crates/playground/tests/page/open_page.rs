//! The pages under test: the one of this source, and the committed one.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use testkit::{browser::Browser, child_processes::missing};

/// The page as `scripts/build-playground.sh` builds it from this source; `None` if the test is
/// skipped.
pub(crate) fn fresh_page() -> Option<PathBuf> {
    let page = env::var_os("PLAYGROUND_PAGE").map(PathBuf::from);
    let there = page.as_deref().is_some_and(Path::is_file);
    let build = "bash scripts/build-playground.sh target/page.html, and PLAYGROUND_PAGE=$PWD/target/page.html";
    if missing(there, "the page, built anew", build) {
        return None;
    }
    page
}

/// The committed page.
pub(crate) fn committed_page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/playground/index.html")
}

/// Opens a page with this fragment, and waits until it runs.
pub(crate) fn open(browser: &Browser, page: &Path, fragment: &str) {
    let page = fs::canonicalize(page).expect("the page is there");
    let url = format!("file://{}{fragment}", page.display());
    browser.open(&url, "globalThis.playground");
}
