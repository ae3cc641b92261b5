//! The page with pictures.

use std::fs;

use serde_json::Value;

use crate::support::{MIDNIGHT, directory, file, json, line, run, small};

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
    let bound = told["upper_bound"].as_str().expect("a reason");
    assert!(bound.contains("would have behaved differently"), "{bound}");
    assert_eq!(page.matches("<svg").count(), 3);
    for fetched in ["<b>", "://", "src=", "href="] {
        assert!(!page.contains(fetched), "{page}");
    }
}

/// The limit stands where it is, or nowhere.
#[test]
fn the_histogram_tells_the_limit_as_it_is() {
    let directory = directory();
    let log = file(&directory, "access.log", small());
    let path = directory.path().join("report.html");
    let report = path.display().to_string();
    for (quota, told, dashed) in [
        ("4/minute", "Dashed is 4/60s.", true),
        ("5/s burst 9", "5/1s burst 9 is beyond all of them.", false),
        ("3/hour sliding_log", "that many requests.<", false),
        ("59/hour", "that many requests.<", false),
    ] {
        json(&[&log, "--quota", quota, "--report", &report]);
        let page = fs::read_to_string(&path).expect("a page");
        let (_, picture) = page.split_once("Keys by the most").expect("a picture");
        let (picture, _) = picture.split_once("</figure>").expect("an end");
        assert!(picture.contains(told), "{quota}: {picture}");
        assert_eq!(picture.contains("limit dashed"), dashed, "{quota}");
    }
}

/// A queue without places stays one, and the quota itself is among those that are tried.
#[test]
fn the_quota_itself_is_tried_among_those_around_it() {
    let directory = directory();
    let log = file(&directory, "access.log", small());
    let path = directory.path().join("report.html");
    let report = path.display().to_string();
    for quota in [
        "10/1s leaky_bucket queue 0",
        "4/60s",
        "1/1s leaky_bucket queue 1",
    ] {
        let told = json(&[&log, "--quota", quota, "--what-if", "--report", &report]);
        let tried = told["what_if"].as_array().expect("a list");
        let same = tried.iter().filter(|one| one["quota"] == quota).count();
        assert_eq!(same, 1, "{told}");
        assert!(tried.len() <= 12);
        let page = fs::read_to_string(&path).expect("a page");
        let (_, picture) = page.split_once("Limited requests by").expect("a picture");
        assert!(picture.contains("limit dashed"), "{quota}");
    }
}

/// Names are hashes everywhere: in what is printed, in JSON, and on the page.
#[test]
fn hashed_keys_are_nowhere_in_clear() {
    let directory = directory();
    let log = file(&directory, "access.log", small() + "203.0.113.7 nonsense\n");
    let rules =
        "rules: [{name: a, quota: 4/minute}, {name: b, key: {header: x-user}, quota: 3/minute}]";
    let rules = file(&directory, "rules.yaml", rules);
    let path = directory.path().join("report.html");
    let report = path.display().to_string();
    let rest = ["--hash-keys", "--suggest", "--report", &report];
    for tried in [
        &["--quota", "4/minute", "--what-if"][..],
        &["--rules", &rules],
    ] {
        for form in [&[][..], &["--json"]] {
            let (_, out, errors) = run(&[&[log.as_str()], tried, &rest, form].concat());
            let page = fs::read_to_string(&path).expect("a page");
            for told in [&out, &errors, &page] {
                assert!(!told.contains("203.0.113"), "{told}");
            }
        }
    }
}

#[cfg(target_os = "linux")]
mod chromium {
    use std::{path::Path, process::Command};

    use serde_json::Value;
    use testkit::programs::{find, missing};

    use super::super::support::{MIDNIGHT, directory, file, json, line, run, small};

    /// The page as the browser has it after reading, and what it complained about.
    fn opened(page: &Path) -> Option<(String, String)> {
        let program = find("chromium", None);
        if missing(program.is_some(), "chromium", "apt-get install chromium") {
            return None;
        }
        let profile = directory();
        let output = Command::new(program?)
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--enable-logging=stderr",
                "--dump-dom",
            ])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg(format!("file://{}", page.display()))
            .output()
            .expect("chromium");
        let text = |bytes| String::from_utf8(bytes).expect("text");
        Some((text(output.stdout), text(output.stderr)))
    }

    /// The text between the first `from` and what ends it, and what follows.
    fn between<'t>(text: &'t str, from: &str, to: &str) -> (&'t str, &'t str) {
        let (_, rest) = text
            .split_once(from)
            .unwrap_or_else(|| panic!("no {from} in {text}"));
        rest.split_once(to)
            .unwrap_or_else(|| panic!("no {to} in {rest}"))
    }

    /// The cells of each row.
    fn rows(table: &str) -> Vec<Vec<&str>> {
        let rows = table.split("<tr>").skip(1);
        rows.map(|row| {
            let cells = row.split("<td>").skip(1);
            cells
                .map(|cell| cell.split('<').next().unwrap_or_default().trim())
                .collect()
        })
        .filter(|row: &Vec<_>| !row.is_empty())
        .collect()
    }

    fn number(value: &Value) -> String {
        value.to_string()
    }

    #[test]
    fn the_page_shows_the_numbers_of_the_json() {
        let directory = directory();
        let hostile = line(
            MIDNIGHT + 70,
            "</pre><script>alert(1)</script>",
            "GET /a",
            200,
        );
        let log = file(&directory, "access.log", small() + &hostile.repeat(5));
        let page = directory.path().join("report.html");
        let report = page.display().to_string();
        let asked = [
            &*log,
            "--quota",
            "4/minute",
            "--quota",
            "2/s leaky_bucket queue 1",
            "--what-if",
            "--suggest",
            "--report",
            &report,
        ];
        let told = json(&asked);
        let (_, text, _) = run(&asked);
        let Some((dom, complaints)) = opened(&page) else {
            return;
        };
        assert!(!complaints.contains("CONSOLE"), "{complaints}");
        let (table, rest) = between(&dom, "<table>", "</table>");
        let quotas = told["quotas"].as_array().expect("quotas");
        let expected = quotas.iter().map(|quota| {
            vec![
                quota["quota"].as_str().expect("a quota").to_owned(),
                number(&quota["limited"]["requests"]),
                format!("{:.2} %", quota["share"].as_f64().expect("a share") * 100.0),
                number(&quota["keys_limited"]),
                number(&quota["delayed"]["requests"]),
            ]
        });
        assert_eq!(rows(table), expected.collect::<Vec<_>>());
        // The pictures: as high as the numbers, and none left out.
        let (_, curve) = between(rest, "by the limit</h2>", "<figure>");
        let (points, rest) = between(curve, "points=\"", "\"");
        let shares: Vec<f64> = told["what_if"]
            .as_array()
            .expect("limits")
            .iter()
            .map(|one| one["share"].as_f64().expect("a share"))
            .collect();
        let most = shares.iter().copied().fold(0.0, f64::max);
        let heights = points
            .split(' ')
            .map(|point| point.split_once(',').expect("a point").1.to_owned());
        let expected = shares
            .iter()
            .map(|share| format!("{:.1}", 16.0 + 224.0 * (1.0 - share / most)));
        assert_eq!(heights.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
        let (shown, rest) = between(rest, "<pre>", "</pre>");
        let shown = shown
            .replace("&lt;", "<")
            .replace("&gt;", ">")
            .replace("&amp;", "&");
        assert_eq!(shown, text);
        let (data, _) = between(rest, "id=\"replay\">", "</script>");
        assert_eq!(serde_json::from_str::<Value>(data).expect("JSON"), told);
    }
}
