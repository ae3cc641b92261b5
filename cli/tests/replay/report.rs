//! The page with pictures.

use std::fs;

use serde_json::Value;

use crate::support::{MIDNIGHT, directory, file, json, line, small};

#[test]
fn the_report_has_the_numbers_of_the_json() {
    let directory = directory();
    let hostile = line(MIDNIGHT, "</script><b>", "GET /a", 200);
    let log = file(&directory, "access.log", small() + &hostile.repeat(5));
    let page = directory.path().join("report.html");
    let report = page.display().to_string();
    let told = json(&[
        &log,
        "--quota",
        "4/minute",
        "--what-if",
        "--report",
        &report,
    ]);
    let page = fs::read_to_string(page).expect("a page");
    let (_, data) = page.split_once("id=\"replay\">").expect("data");
    let (data, _) = data.split_once("</script>").expect("an end");
    let data: Value = serde_json::from_str(data).expect("JSON");
    assert_eq!(data, told);
    assert_eq!(page.matches("<svg").count(), 3);
    for fetched in ["<b>", "://", "src=", "href="] {
        assert!(!page.contains(fetched), "{page}");
    }
}
