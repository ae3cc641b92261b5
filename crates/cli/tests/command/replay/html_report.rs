//! The page with charts.

use std::fs;

use serde_json::Value;

use super::support::{MIDNIGHT, directory, file, json, line, run, small};

#[test]
fn the_report_has_the_numbers_of_the_json() {
    let directory = directory();
    let hostile = line(MIDNIGHT, "</script><b>", "GET /a", 200);
    let log = file(&directory, "access.log", small() + &hostile.repeat(5));
    let page = directory.path().join("report.html");
    let report = page.display().to_string();
    let reported = json(&[
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
    assert_eq!(data, reported);
    let bound = reported["upper_bound"].as_str().expect("a reason");
    assert!(bound.contains("would have behaved differently"), "{bound}");
    assert_eq!(page.matches("<svg").count(), 4);
    for fetched in ["<b>", "://", "src=", "href="] {
        assert!(!page.contains(fetched), "{page}");
    }
}

/// The heading of the page for these arguments, and the whole page.
fn page_of(arguments: &[&str]) -> (String, String) {
    let directory = directory();
    let path = directory.path().join("report.html");
    let report = path.display().to_string();
    json(&[arguments, &["--report", &report]].concat());
    let page = fs::read_to_string(&path).expect("a page");
    let (_, heading) = page.split_once("<h1>").expect("a heading");
    let (heading, _) = heading.split_once("</h1>").expect("an end");
    (heading.to_owned(), page)
}

#[test]
fn the_page_begins_with_the_effect_of_the_limit() {
    let directory = directory();
    let log = file(&directory, "access.log", small());
    let rules =
        "rules: [{name: login, match: {path: /login}, quota: 1/day}, {name: all, quota: 4/day}]";
    let rules = file(&directory, "rules.yaml", rules);
    for (arguments, sentence) in [
        (
            &["--quota", "4/day"][..],
            "4/86400s would have limited 6 of 11 requests (54.55 %), all of one of 2 keys by ip: 203.0.113.7.",
        ),
        (
            &["--quota", "1/day", "--key", "path"],
            "1/86400s would have limited 9 of 11 requests (81.82 %), all of one of 2 keys by path: &quot;/a&quot;.",
        ),
        (
            &["--quota", "1/day", "--quota", "2/day", "--key", "ip"],
            "1/86400s would have limited 9 of 11 requests",
        ),
        (
            &["--quota", "10/day"],
            "10/86400s would have limited nobody: all 11 requests of 2 keys by ip pass.",
        ),
        (
            &["--rules", &rules],
            "These rules would have limited 6 of 11 requests (54.55 %): all limited 6 of 1 key, 203.0.113.7.",
        ),
        (
            &["--suggest"],
            "2 keys by ip sent 11 requests; 12/60s burst 12 would have been enough for nearly all of them.",
        ),
        (
            &["--quota", "4/day", "--from", "2026-11-21"],
            "No request was left to try a limit on, of 11 lines.",
        ),
    ] {
        let (heading, _) = page_of(&[&[log.as_str()], arguments].concat());
        assert!(heading.starts_with(sentence), "{arguments:?}: {heading}");
    }
}

/// Six requests among a hundred thousand are visible, with their clients and times.
#[test]
fn limited_requests_and_clients_have_pictures_of_their_own() {
    let directory = directory();
    let crowd = (0..600).map(|second| {
        let client = format!("10.0.0.{}", second % 200);
        line(MIDNIGHT + 60 * second, &client, "GET /a", 200).repeat(3)
    });
    let log = crowd.collect::<String>()
        + &line(MIDNIGHT + 36_000, "203.0.113.7", "GET /a", 200).repeat(10);
    let log = file(&directory, "access.log", log);
    let (_, page) = page_of(&[&log, "--quota", "4/minute"]);
    let between = |from: &str, to: &str| {
        let (_, rest) = page
            .split_once(from)
            .unwrap_or_else(|| panic!("no {from} in {page}"));
        rest.split_once(to).expect("an end").0.to_owned()
    };
    let limited = between("Limited requests over time</h2>", "</figure>");
    // One bar of the chart's full height, and dates below.
    let bars = between("class=\"refused\" d=\"", "\"");
    assert_eq!(bars.matches('M').count(), 1, "{bars}");
    assert!(bars.contains("V16.0h"), "{bars}");
    for date in [">00:00<", ">20 Nov<", ">06:00<"] {
        assert!(limited.contains(date), "{date}: {limited}");
    }
    // Ten times as many requests are one grid line more: the crowd's three are visible next to ten.
    let (_, all) = page
        .split_once("Requests over time</h2>")
        .expect("a picture");
    for line in [">0</text>", ">1</text>", ">10</text>"] {
        assert!(all.contains(line), "{line}");
    }
    let clients = between("Who is limited most by 4/60s</h2>", "</figure>");
    assert!(
        clients
            .contains("<span>203.0.113.7</span><i style=\"width:100.0%\"></i><strong>6</strong>"),
        "{clients}"
    );
}

/// The mark of the limit is at its place, or absent.
#[test]
fn the_histogram_marks_the_limit() {
    let directory = directory();
    let log = file(&directory, "access.log", small());
    let path = directory.path().join("report.html");
    let report = path.display().to_string();
    for (quota, reported, dashed) in [
        ("4/minute", "Dashed is 4/60s.", true),
        ("5/s burst 9", "5/1s burst 9 is beyond all of them.", false),
        ("3/hour sliding_log", "that many requests.<", false),
        ("59/hour", "that many requests.<", false),
    ] {
        json(&[&log, "--quota", quota, "--report", &report]);
        let page = fs::read_to_string(&path).expect("a page");
        let (_, picture) = page.split_once("Keys by their most").expect("a picture");
        let (picture, _) = picture.split_once("</figure>").expect("an end");
        assert!(picture.contains(reported), "{quota}: {picture}");
        assert_eq!(picture.contains("limit dashed"), dashed, "{quota}");
    }
}

/// A queue without places remains one, and the quota itself is among the candidates.
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
        let reported = json(&[&log, "--quota", quota, "--what-if", "--report", &report]);
        let tried = reported["what_if"].as_array().expect("a list");
        let same = tried.iter().filter(|one| one["quota"] == quota).count();
        assert_eq!(same, 1, "{reported}");
        assert!(tried.len() <= 12);
        let page = fs::read_to_string(&path).expect("a page");
        let (_, picture) = page.split_once("Limited requests by").expect("a picture");
        assert!(picture.contains("limit dashed"), "{quota}");
    }
}

/// Names are hashes in the text, in JSON, and on the page.
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
            for reported in [&out, &errors, &page] {
                assert!(!reported.contains("203.0.113"), "{reported}");
            }
        }
    }
}

#[cfg(target_os = "linux")]
mod chromium {
    use std::{path::Path, process::Command};

    use serde_json::Value;
    use testkit::child_processes::{find, missing};

    use super::super::support::{MIDNIGHT, directory, file, json, line, run, small};

    /// The page as parsed by the browser, and the browser's complaints.
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

    /// The text between two others, and the rest.
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

    /// In a frame of a phone's width, the page reports the width of its content.
    #[test]
    fn the_page_fits_a_phone() {
        let directory = directory();
        let many = (0..30).map(|client| {
            let client = format!("2001:db8:{client:x}:ffff::1");
            line(MIDNIGHT + client.len() as u64, &client, "GET /a", 200).repeat(9)
        });
        let name = "somebody".repeat(12);
        let user = line(MIDNIGHT + 86_399, "203.0.113.7", "GET /a", 200).replacen(
            "- -",
            &format!("- {name}"),
            1,
        );
        let log = small() + &many.collect::<String>() + &user.repeat(2_000);
        let log = file(&directory, "access.log", log);
        let rules = file(
            &directory,
            "rules.yaml",
            "rules: [{name: a-rule-with-a-long-name-of-its-own, quota: 4/minute}]",
        );
        let page = directory.path().join("report.html");
        let report = page.display().to_string();
        let rest = ["--what-if", "--suggest", "--report", &report];
        for tried in [
            &["--quota", "4/minute burst 3 soft 10%", "--key", "ip+user"][..],
            &["--quota", "4/minute", "--rules", &rules, "--key", "user"],
        ] {
            json(&[&[log.as_str()], tried, &rest].concat());
            let text = std::fs::read_to_string(&page).expect("a page");
            // The copy may run a script.
            let (head, body) = text.split_once("<meta http-equiv").expect("a policy");
            let (_, body) = body.split_once('>').expect("an end");
            let reported = "<script>onload = () => { const { scrollWidth, clientWidth } = document.documentElement; parent.postMessage(scrollWidth - clientWidth, '*'); }</script>";
            file(&directory, "copy.html", format!("{head}{body}{reported}"));
            let frame = "<p id=reported>none</p><script>onmessage = (reported) => { document.getElementById('reported').textContent = \
                `it is ${reported.data} too wide`; }</script><iframe width=375 height=700 style='border:0' src=copy.html></iframe>";
            let frame = file(&directory, "frame.html", frame);
            let Some((dom, _)) = opened(Path::new(&frame)) else {
                return;
            };
            assert!(dom.contains("it is 0 too wide"), "{dom}");
        }
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
        let arguments = [
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
        let reported = json(&arguments);
        let (_, text, _) = run(&arguments);
        let Some((dom, complaints)) = opened(&page) else {
            return;
        };
        assert!(!complaints.contains("CONSOLE"), "{complaints}");
        let (table, rest) = between(&dom, "<table>", "</table>");
        let quotas = reported["quotas"].as_array().expect("quotas");
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
        // The charts: heights in proportion to the numbers, and none missing.
        let (_, curve) = between(rest, "by the limit</h2>", "<figure>");
        let (points, rest) = between(curve, "points=\"", "\"");
        let shares: Vec<f64> = reported["what_if"]
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
            .map(|share| format!("{:.1}", 16.0 + 240.0 * (1.0 - share / most)));
        assert_eq!(heights.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
        let (shown, rest) = between(rest, "<pre tabindex=\"0\">", "</pre>");
        let shown = shown
            .replace("&lt;", "<")
            .replace("&gt;", ">")
            .replace("&amp;", "&");
        assert_eq!(shown, text);
        let (data, _) = between(rest, "id=\"replay\">", "</script>");
        assert_eq!(serde_json::from_str::<Value>(data).expect("JSON"), reported);
    }
}
