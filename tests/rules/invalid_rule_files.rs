//! Every fault is reported with its code, line and column, in YAML, JSON and TOML.

use tower_ratelimit::rules::{Format, Problem, Rules, RulesError};

/// A text in which `¶` stands before the place of the fault.
fn marked(text: &str) -> (String, (usize, usize)) {
    let (before, after) = text.split_once('¶').expect("a mark");
    let line_start = before.rfind('\n').map_or(0, |end| end + 1);
    let line = before.matches('\n').count() + 1;
    let column = before[line_start..].chars().count() + 1;
    (format!("{before}{after}"), (line, column))
}

fn places(problems: &[Problem]) -> Vec<(&str, (usize, usize))> {
    let place = |problem: &Problem| {
        (
            problem.line().expect("a line"),
            problem.column().expect("a column"),
        )
    };
    problems
        .iter()
        .map(|problem| (problem.code(), place(problem)))
        .collect::<Vec<_>>()
}

fn refused(text: &str, format: Format) -> RulesError {
    match Rules::builder().parse(text, format) {
        Err(error) => error,
        Ok(_) => panic!("accepted:\n{text}"),
    }
}

/// The text has this fault and no other.
fn fault(code: &str, part: &str, format: Format, text: &str) {
    let (text, place) = marked(text);
    let error = refused(&text, format);
    assert_eq!(places(error.problems()), [(code, place)], "{error}");
    let message = error.problems()[0].message();
    assert!(message.contains(part), "{message:?} has no {part:?}");
    let printed = error.to_string();
    let (line, column) = place;
    assert!(
        printed.starts_with(&format!("rules:{line}:{column}: {code} ")),
        "{printed}"
    );
    let caret = printed.lines().last().expect("a line").find('^');
    assert!(caret.is_some(), "{printed}");
}

macro_rules! faults {
    ($($name:ident: $code:literal $part:literal, $yaml:literal, $json:literal, $toml:literal;)+) => {
        $(#[test]
        fn $name() {
            fault($code, $part, Format::Yaml, $yaml);
            fault($code, $part, Format::Json, $json);
            fault($code, $part, Format::Toml, $toml);
        })+
    };
}

faults! {
    r01_another_kind: "R01" "a whole number from 1 to 128",
        "client_ip:\n  ipv6_prefix: ¶129\nrules: [{name: a, quota: 1/s}]\n",
        "{\"client_ip\": {\"ipv6_prefix\": ¶129},\n \"rules\": [{\"name\": \"a\", \"quota\": \"1/s\"}]}",
        "client_ip.ipv6_prefix = ¶129\n[[rules]]\nname = \"a\"\nquota = \"1/s\"\n";
    r01_unknown_word: "R01" "\"hard\" or \"shadow\"",
        "rules:\n  - name: a\n    quota: 1/s\n    mode: ¶shaddow\n",
        "{\"rules\": [\n\t{\"name\": \"a\", \"quota\": \"1/s\", \"mode\": ¶\"shaddow\"}]}",
        "[[rules]]\nname = \"a\"\nquota = \"1/s\"\nmode = ¶\"shaddow\"\n";
    r02_unknown_field: "R02" "unknown field \"metod\" in match",
        "rules:\n  - name: login\n    match:\n      ¶metod: POST\n    quota: 5/minute\n",
        "{\"rules\": [{\"name\": \"login\",\n  \"match\": {¶\"metod\": \"POST\"}, \"quota\": \"5/minute\"}]}",
        "[[rules]]\nname = \"login\"\nquota = \"5/minute\"\n[rules.match]\n¶metod = \"POST\"\n";
    r02_no_quota: "R02" "limits nothing",
        "rules:\n  - ¶name: a\n",
        "{\"rules\": [¶{\"name\": \"a\"}]}",
        "rules = [¶{name = \"a\"}]\n";
    r02_weighted_alone: "R02" "`weighted` is of no use without `schedule`",
        "rules:\n  - {name: a, quota: 1/s, ¶weighted: true}\n",
        "{\"rules\": [{\"name\": \"a\", \"quota\": \"1/s\", ¶\"weighted\": true}]}",
        "[[rules]]\nname = \"a\"\nquota = \"1/s\"\n¶weighted = true\n";
    r04_weighted_bucket: "R04" "a token_bucket is the same all day",
        "rules:\n  - name: a\n    quota: 1/s\n    weighted: true\n    schedule: ¶[{time: {from: '08:00'}, quota: 2/s}]\n",
        "{\"rules\": [{\"name\": \"a\", \"quota\": \"1/s\", \"weighted\": true,\n  \"schedule\": ¶[{\"time\": {\"from\": \"08:00\"}, \"quota\": \"2/s\"}]}]}",
        "[[rules]]\nname = \"a\"\nquota = \"1/s\"\nweighted = true\nschedule = ¶[{time = {from = \"08:00\"}, quota = \"2/s\"}]\n";
    r04_weighted_days: "R04" "accepted are times of every day",
        "rules:\n  - name: a\n    quota: 1/s fixed_window\n    weighted: true\n    schedule: ¶[{time: {days: sat}, quota: 2/s fixed_window}]\n",
        "{\"rules\": [{\"name\": \"a\", \"quota\": \"1/s fixed_window\", \"weighted\": true,\n  \"schedule\": ¶[{\"time\": {\"days\": \"sat\"}, \"quota\": \"2/s fixed_window\"}]}]}",
        "[[rules]]\nname = \"a\"\nquota = \"1/s fixed_window\"\nweighted = true\nschedule = ¶[{time = {days = \"sat\"}, quota = \"2/s fixed_window\"}]\n";
    r04_weighted_unlike: "R04" "accepted are windows of one algorithm",
        "rules:\n  - name: a\n    quota: 1/s fixed_window\n    weighted: true\n    schedule: ¶[{time: {from: '08:00'}, quota: 2/m fixed_window}]\n",
        "{\"rules\": [{\"name\": \"a\", \"quota\": \"1/s fixed_window\", \"weighted\": true,\n  \"schedule\": ¶[{\"time\": {\"from\": \"08:00\"}, \"quota\": \"2/m fixed_window\"}]}]}",
        "[[rules]]\nname = \"a\"\nquota = \"1/s fixed_window\"\nweighted = true\nschedule = ¶[{time = {from = \"08:00\"}, quota = \"2/m fixed_window\"}]\n";
    r08_weighted_zones: "R08" "with times in \"Europe/Berlin\" and in another zone",
        "rules:\n  - name: a\n    quota: 1/s fixed_window\n    weighted: true\n    schedule: [{time: [{from: '08:00', zone: Europe/Berlin}, {to: '01:00', zone: ¶'+01:00'}], quota: 2/s fixed_window}]\n",
        "{\"rules\": [{\"name\": \"a\", \"quota\": \"1/s fixed_window\", \"weighted\": true,\n  \"schedule\": [{\"time\": [{\"from\": \"08:00\", \"zone\": \"Europe/Berlin\"}, ¶{\"to\": \"01:00\"}], \"quota\": \"2/s fixed_window\"}]}]}",
        "[[rules]]\nname = \"a\"\nquota = \"1/s fixed_window\"\nweighted = true\nschedule = [{time = [{from = \"08:00\", zone = \"Europe/Berlin\"}, {to = \"01:00\", zone = ¶\"Asia/Tokyo\"}], quota = \"2/s fixed_window\"}]\n";
    r08_weighted_zone: "R08" "did you mean \"Europe/Berlin\"?",
        "rules:\n  - name: a\n    quota: 1/s fixed_window\n    weighted: true\n    schedule: [{time: {from: '08:00', zone: ¶Berlin}, quota: 2/s fixed_window}]\n",
        "{\"rules\": [{\"name\": \"a\", \"quota\": \"1/s fixed_window\", \"weighted\": true,\n  \"schedule\": [{\"time\": {\"from\": \"08:00\", \"zone\": ¶\"Berlin\"}, \"quota\": \"2/s fixed_window\"}]}]}",
        "[[rules]]\nname = \"a\"\nquota = \"1/s fixed_window\"\nweighted = true\nschedule = [{time = {from = \"08:00\", zone = ¶\"Berlin\"}, quota = \"2/s fixed_window\"}]\n";
    r04_weighted_zone_s_hours: "R04" "accepted there is one that divides 900s",
        "rules:\n  - name: a\n    quota: 1/h fixed_window\n    weighted: true\n    schedule: ¶[{time: {from: '08:00', zone: Asia/Kolkata}, quota: 2/h fixed_window}]\n",
        "{\"rules\": [{\"name\": \"a\", \"quota\": \"1/h fixed_window\", \"weighted\": true,\n  \"schedule\": ¶[{\"time\": {\"from\": \"08:00\", \"zone\": \"Asia/Kolkata\"}, \"quota\": \"2/h fixed_window\"}]}]}",
        "[[rules]]\nname = \"a\"\nquota = \"1/h fixed_window\"\nweighted = true\nschedule = ¶[{time = {from = \"08:00\", zone = \"Asia/Kolkata\"}, quota = \"2/h fixed_window\"}]\n";
    r04_weighted_unlimited: "R04" "`weighted` with `unlimited`",
        "rules:\n  - name: a\n    quota: 1/s fixed_window\n    weighted: true\n    schedule: ¶[{time: {from: '08:00'}, quota: unlimited}]\n",
        "{\"rules\": [{\"name\": \"a\", \"quota\": \"1/s fixed_window\", \"weighted\": true,\n  \"schedule\": ¶[{\"time\": {\"from\": \"08:00\"}, \"quota\": \"unlimited\"}]}]}",
        "[[rules]]\nname = \"a\"\nquota = \"1/s fixed_window\"\nweighted = true\nschedule = ¶[{time = {from = \"08:00\"}, quota = \"unlimited\"}]\n";
    r04_weighted_debt: "R04" "slices, soft share and debt",
        "rules:\n  - name: a\n    quota: 1/s fixed_window debt 9\n    weighted: true\n    schedule: ¶[{time: {from: '08:00'}, quota: 2/s fixed_window}]\n",
        "{\"rules\": [{\"name\": \"a\", \"quota\": \"1/s fixed_window debt 9\", \"weighted\": true,\n  \"schedule\": ¶[{\"time\": {\"from\": \"08:00\"}, \"quota\": \"2/s fixed_window\"}]}]}",
        "[[rules]]\nname = \"a\"\nquota = \"1/s fixed_window debt 9\"\nweighted = true\nschedule = ¶[{time = {from = \"08:00\"}, quota = \"2/s fixed_window\"}]\n";
    r04_debt_of_a_queue: "R04" "debt(7): a leaky bucket",
        "rules:\n  - name: a\n    quota: {rate: 5/m, algorithm: leaky_bucket, queue: 2, debt: ¶7}\n",
        "{\"rules\": [{\"name\": \"a\", \"quota\": {\"rate\": \"5/m\", \"algorithm\": \"leaky_bucket\", \"queue\": 2, \"debt\": ¶7}}]}",
        "[[rules]]\nname = \"a\"\nquota = {rate = \"5/m\", algorithm = \"leaky_bucket\", queue = 2, debt = ¶7}\n";
    r04_debt_of_a_rule_that_blocks: "R04" "`block_for` with a quota of `debt` 7",
        "rules:\n  - name: a\n    quota: {rate: 5/m, debt: 7}\n    ¶block_for: 1m\n",
        "{\"rules\": [{\"name\": \"a\", \"quota\": [\"9/s\", \"5/m debt 7\"], ¶\"block_for\": \"1m\"}]}",
        "[[rules]]\nname = \"a\"\nquota = \"5/m debt 7\"\n¶block_for = \"1m\"\n";
    r02_of_no_use: "R02" "of no use in a rule that limits nothing",
        "rules:\n  - {name: a, action: deny, ¶quota: 1/s}\n",
        "{\"rules\": [{\"name\": \"a\", \"action\": \"deny\", ¶\"quota\": \"1/s\"}]}",
        "[[rules]]\nname = \"a\"\naction = \"deny\"\n¶quota = \"1/s\"\n";
    r03_name_taken: "R03" "is taken: rules:",
        "rules:\n  - {name: a, quota: 1/s}\n  - {name: ¶a, quota: 2/s}\n",
        "{\"rules\": [{\"name\": \"a\", \"quota\": \"1/s\"},\n{\"name\": ¶\"a\", \"quota\": \"1/s\"}]}",
        "[[rules]]\nname = \"a\"\nquota = \"1/s\"\n[[rules]]\nname = ¶\"a\"\nquota = \"1/s\"\n";
    r03_policy_name_taken: "R03" "would both have a policy named \"a.day\"",
        "rules:\n  - {name: a, quota: [1/s, {name: day, rate: 9/d}]}\n  - {name: ¶a.day, quota: 2/s}\n",
        "{\"rules\": [{\"name\": \"a\", \"quota\": [\"1/s\", {\"name\": \"day\", \"rate\": \"9/d\"}]},\n{\"name\": ¶\"a.day\", \"quota\": \"1/s\"}]}",
        "[[rules]]\nname = \"a\"\nquota = [\"1/s\", {name = \"day\", rate = \"9/d\"}]\n[[rules]]\nname = ¶\"a.day\"\nquota = \"1/s\"\n";
    r04_text: "R04" "unknown unit \"minu\"",
        r#"rules: [{name: a, quota: ¶5/minu}]"#,
        r#"{"rules": [{"name": "a", "quota": ¶"5/minu"}]}"#,
        r#"[[rules]]
name = "a"
quota = ¶"5/minu"
"#;
    r04_table: "R04" "only a token bucket has a burst",
        r#"rules:
  - name: a
    quota:
      rate: 5/minute
      algorithm: sliding_log
      burst: ¶7
"#,
        r#"{"rules": [{"name": "a", "quota": {"rate": "5/minute", "algorithm": "sliding_log", "burst": ¶7}}]}"#,
        r#"[[rules]]
name = "a"
quota = {rate = "5/minute", algorithm = "sliding_log", burst = ¶7}
"#;
    r04_zone: "R04" "did you mean \"Europe/Berlin\"?",
        "rules:\n  - {name: a, quota: {rate: 5/month, zone: ¶Europe/berlin}}\n",
        r#"{"rules": [{"name": "a", "quota": {"rate": "5/month", "zone": ¶"Europe/berlin"}}]}"#,
        r#"[[rules]]
name = "a"
quota = {rate = "5/month", zone = ¶"Europe/berlin"}
"#;
    r04_zone_in_a_text: "R04" "\"Mars\" is no time zone",
        "rules:\n  - {name: a, quota: ¶5/month in Mars}\n",
        r#"{"rules": [{"name": "a", "quota": ¶"5/month in Mars"}]}"#,
        r#"[[rules]]
name = "a"
quota = ¶"5/month in Mars"
"#;
    r04_calendar_algorithm: "R04" "sliding_log cannot count it",
        "rules:\n  - {name: a, quota: {rate: 5/month, zone: UTC, algorithm: ¶sliding_log}}\n",
        r#"{"rules": [{"name": "a", "quota": {"rate": "5/month", "zone": "UTC", "algorithm": ¶"sliding_log"}}]}"#,
        r#"[[rules]]
name = "a"
quota = {rate = "5/month", zone = "UTC", algorithm = ¶"sliding_log"}
"#;
    r04_starting_on: "R04" "accepted are quotas per month",
        "rules:\n  - {name: a, quota: {rate: 5/week, starting_on: ¶2}}\n",
        r#"{"rules": [{"name": "a", "quota": {"rate": "5/week", "starting_on": ¶2}}]}"#,
        r#"[[rules]]
name = "a"
quota = {rate = "5/week", starting_on = ¶2}
"#;
    r04_template_once: "R04" "a limit of 0",
        r#"quotas:
  free: [10/second, ¶0/day]
rules:
  - {name: a, quota: free}
  - {name: b, quota: free}
"#,
        r#"{"quotas": {"free": ["10/second", ¶"0/day"]}, "rules": [{"name": "a", "quota": "free"}, {"name": "b", "quota": "free"}]}"#,
        r#"quotas.free = ["10/second", ¶"0/day"]
rules = [{name = "a", quota = "free"}, {name = "b", quota = "free"}]
"#;
    r05_quota: "R05" "there is \"free\" or \"unlimited\"",
        r#"quotas: {free: 1/s}
rules:
  - {name: a, quota: ¶unlimied}
"#,
        r#"{"quotas": {"free": "1/s"}, "rules": [{"name": "a", "quota": ¶"unlimied"}]}"#,
        r#"quotas.free = "1/s"
[[rules]]
name = "a"
quota = ¶"unlimied"
"#;
    r05_tier: "R05" "unknown tier \"fre\"",
        r#"rules:
  - name: a
    tier: {header: x-plan, default: ¶fre, quotas: {free: 1/s}}
"#,
        r#"{"rules": [{"name": "a", "tier": {"header": "x-plan", "default": ¶"fre", "quotas": {"free": "1/s"}}}]}"#,
        r#"[[rules]]
name = "a"
tier = {header = "x-plan", default = ¶"fre", quotas = {free = "1/s"}}
"#;
    r05_custom_key: "R05" "unknown custom key \"account\"; there is none",
        r#"rules: [{name: a, key: {custom: ¶account}, quota: 1/s}]"#,
        r#"{"rules": [{"name": "a", "key": {"custom": ¶"account"}, "quota": "1/s"}]}"#,
        r#"[[rules]]
name = "a"
quota = "1/s"
key.custom = ¶"account"
"#;
    r05_replaces: "R05" "unknown rule \"exprt\"",
        r#"rules:
  - {name: export, quota: 1/s}
  - {name: b, quota: 1/s, replaces: [¶exprt]}
"#,
        r#"{"rules": [{"name": "export", "quota": "1/s"}, {"name": "b", "quota": "1/s", "replaces": ¶"exprt"}]}"#,
        r#"rules = [{name = "export", quota = "1/s"}, {name = "b", quota = "1/s", replaces = [¶"exprt"]}]
"#;
    r06_path: "R06" "not the last segment",
        r#"rules:
  - {name: a, quota: 1/s, match: {path: [/x, ¶"/a/**/b"]}}
"#,
        r#"{"rules": [{"name": "a", "quota": "1/s", "match": {"path": ¶"/a/**/b"}}]}"#,
        r#"[[rules]]
name = "a"
quota = "1/s"
match.path = ¶"/a/**/b"
"#;
    r07_parameter: "R07" "not every path of the rule has",
        r#"rules:
  - {name: a, quota: 1/s, match: {path: ["/a/{id}", /b]}, key: ¶[client_ip, {path_param: id}]}
"#,
        r#"{"rules": [{"name": "a", "quota": "1/s", "match": {"path": "/a/{ix}"}, "key": ¶{"path_param": "id"}}]}"#,
        r#"[[rules]]
name = "a"
quota = "1/s"
key = ¶{path_param = "id"}
match.path = "/a"
"#;
    r08_time: "R08" "25:00",
        r#"rules:
  - {name: a, quota: 1/s, match: {time: {from: ¶25:00}}}
"#,
        r#"{"rules": [{"name": "a", "quota": "1/s", "match": {"time": {"from": ¶"25:00"}}}]}"#,
        r#"[[rules]]
name = "a"
quota = "1/s"
match.time.from = ¶"25:00"
"#;
    r08_zone: "R08" "Names of",
        r#"rules:
  - {name: a, quota: 1/s, match: {time: [{zone: ¶Asia/Kolkata}]}}
"#,
        r#"{"rules": [{"name": "a", "quota": "1/s", "match": {"time": {"zone": ¶"Asia/Kolkata"}}}]}"#,
        r#"[[rules]]
name = "a"
quota = "1/s"
match.time.zone = ¶"Asia/Kolkata"
"#;
    r08_duration: "R08" "unknown unit \"soon\"",
        r#"rules:
  - name: a
    quota: 1/s
    wait: ¶soon
"#,
        r#"{"rules": [{"name": "a", "quota": "1/s",
"wait": ¶"soon"}]}"#,
        r#"[[rules]]
name = "a"
quota = "1/s"
wait = ¶"soon"
"#;
    r09_circle: "R09" "a -> b -> a",
        r#"rules:
  - {name: a, quota: 1/s, replaces: ¶b}
  - {name: b, quota: 1/s, replaces: a}
"#,
        r#"{"rules": [{"name": "a", "quota": "1/s", "replaces": ¶["b"]}, {"name": "b", "quota": "1/s", "replaces": ["a"]}]}"#,
        r#"rules = [{name = "a", quota = "1/s", replaces = ¶"b"}, {name = "b", quota = "1/s", replaces = "a"}]
"#;
    r10_network: "R10" "203.0.113.0/33",
        r#"rules:
  - {name: a, quota: 1/s, match: {client: [¶203.0.113.0/33]}}
"#,
        r#"{"rules": [{"name": "a", "quota": "1/s", "match": {"client": ¶"203.0.113.0/33"}}]}"#,
        r#"[[rules]]
name = "a"
quota = "1/s"
match.client = ¶"203.0.113.0/33"
"#;
    r10_everybody: "R10" "everybody",
        r#"client_ip:
  trust: ¶[0.0.0.0/1, 128.0.0.0/1]
rules: [{name: a, quota: 1/s}]
"#,
        r#"{"client_ip": {"trust": ¶["::/0"]}, "rules": [{"name": "a", "quota": "1/s"}]}"#,
        r#"client_ip.trust = ¶["0.0.0.0/0"]
rules = [{name = "a", quota = "1/s"}]
"#;
    r11_version: "R11" "version 2 of the format",
        r#"version: ¶2
rules: [{name: a, quota: 1/s}]
"#,
        r#"{"version": ¶2, "rules": [{"name": "a", "quota": "1/s"}]}"#,
        r#"version = ¶2
rules = [{name = "a", quota = "1/s"}]
"#;
    r01_syntax: "R01" "",
        "rules:\n  - ¶{name: a, quota: 1/s\n",
        "{\"rules\": [{\"name\": ¶@}]}",
        "[[rules]]\nname = \"a\"\nquota = ¶@\n";
}

#[test]
fn a_fault_is_printed_with_its_line_and_what_was_meant() {
    let text = "rules:\n  - name: login\n    match: {metod: POST, path: /api/login}\n    quota: 5/minute\n";
    assert_eq!(
        refused(text, Format::Yaml).to_string(),
        "rules:3:13: R02 unknown field \"metod\" in match; did you mean \"method\"?\n   \
         3 |     match: {metod: POST, path: /api/login}\n     \
         |             ^^^^^"
    );
}

#[test]
fn tabs_and_long_lines_keep_the_caret_below_its_place() {
    let error = refused(
        "{\"rules\": [\n\t\t{\"nam\": \"a\", \"quota\": \"1/s\"}]}",
        Format::Json,
    );
    let printed = error.to_string();
    assert!(printed.contains("\n     | \t\t ^^^^^"), "{printed}");

    let long = format!(
        "{{\"rules\": [{}{{\"nam\": \"a\", \"quota\": \"1/s\"}}]}}",
        " ".repeat(5_000)
    );
    let printed = refused(&long, Format::Json).to_string();
    let lines: Vec<&str> = printed.lines().collect();
    assert!(lines.iter().all(|line| line.len() < 200), "{printed}");
    let caret = lines[lines.len() - 1].find('^').expect("a caret");
    assert!(
        lines[lines.len() - 2][caret..].starts_with("\"nam\""),
        "{printed}"
    );
}

#[test]
fn columns_count_characters() {
    fault(
        "R01",
        "\"hard\" or \"shadow\"",
        Format::Yaml,
        "rules:\n  - {name: a, quota: 1/s, match: {query: {é: ü}}, mode: ¶x}\n",
    );
}

#[test]
fn all_faults_are_reported_at_once_up_to_twenty() {
    let three =
        "rules:\n  - {name: a, quota: 5/minu, key: nobody, wait: soon}\n  - {name: b, qota: 1/s}\n";
    let error = refused(three, Format::Yaml);
    let codes: Vec<_> = places(error.problems());
    let expected = [
        ("R04", (2, 22)),
        ("R05", (2, 35)),
        ("R08", (2, 49)),
        ("R02", (3, 15)),
    ];
    assert_eq!(codes, expected, "{error}");

    let rule = |at| format!("  - {{name: r{at}, quota: 5/minu}}\n");
    let many: String = (0..33).map(rule).collect();
    let error = refused(&format!("rules:\n{many}"), Format::Yaml);
    assert_eq!(error.problems().len(), 20);
    assert!(error.to_string().ends_with("\nand 13 more"), "{error}");
}

#[test]
fn what_was_meant_is_guessed_only_when_it_is_near() {
    let suggestion = |text: &str| {
        let error = refused(text, Format::Yaml);
        error.problems()[0].suggestion().map(str::to_owned)
    };
    let quota = |name: &str| format!("rules: [{{name: a, quota: {name}}}]");
    assert_eq!(suggestion(&quota("unlimied")).as_deref(), Some("unlimited"));
    assert_eq!(suggestion(&quota("whatever")), None);
    let key = "rules: [{name: a, quota: 1/s, key: clientip}]";
    assert_eq!(suggestion(key).as_deref(), Some("client_ip"));
    let swapped = "rules: [{name: a, quota: 1/s, mdoe: hard}]";
    assert_eq!(suggestion(swapped).as_deref(), Some("mode"));
}

/// The one fault of a text that is made to do harm.
fn harmful(text: &str, format: Format) -> String {
    let error = refused(text, format);
    let codes: Vec<_> = error.problems().iter().map(Problem::code).collect();
    assert_eq!(codes, ["R01"], "{error}");
    error.problems()[0].message().to_owned()
}

#[test]
fn no_file_hangs_or_bloats_the_process() {
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
    for level in 1..12 {
        let before = format!("*a{}", level - 1);
        let items = vec![before; 9].join(", ");
        bomb += &format!("a{level}: &a{level} [{items}]\n");
    }
    assert!(harmful(&bomb, Format::Yaml).contains("more than 100000 values"));
    // Aliases side by side instead of within each other.
    let wide = format!(
        "a: &a [{}]\nb: [{}]\n",
        "x, ".repeat(1_000),
        "*a, ".repeat(1_000)
    );
    assert!(harmful(&wide, Format::Yaml).contains("more than 100000 values"));
    let many = format!("rules: [{}]", "x, ".repeat(100_000));
    assert!(harmful(&many, Format::Yaml).contains("more than 100000 values"));
    let many = format!("rules = [{}]", "1, ".repeat(100_000));
    assert!(harmful(&many, Format::Toml).contains("more than 100000 values"));

    let deep = "[".repeat(200) + &"]".repeat(200);
    assert!(harmful(&deep, Format::Json).contains("more than 32 deep"));
    let deep = format!("a = {}{}", "[".repeat(40), "]".repeat(40));
    assert!(harmful(&deep, Format::Toml).contains("more than 32 deep"));
    for format in [Format::Yaml, Format::Toml] {
        let error = refused(&"[".repeat(100_000), format);
        assert_eq!(error.problems()[0].code(), "R01", "{error}");
    }
    let own = "a: &a [*a]\n";
    assert!(harmful(own, Format::Yaml).contains("alias"));

    let long = format!("# {}", "x".repeat(1 << 20));
    for format in [Format::Yaml, Format::Toml] {
        assert!(harmful(&long, format).contains("more than 1048576"));
    }
    let documents = "rules: []\n---\nrules: []\n";
    assert!(harmful(documents, Format::Yaml).contains("a second document"));
}

/// Faults and warnings of many rules take no time that grows with the square of their number.
#[test]
fn long_lists_of_rules_are_no_work() {
    let of = |rule: &dyn Fn(usize) -> String| {
        let rules: String = (0..3_000).map(rule).collect();
        Rules::builder().parse(format!("rules:\n{rules}"), Format::Yaml)
    };
    let same = of(&|_| "  - {name: same, quota: 1/s}\n".to_owned());
    assert_eq!(same.expect_err("one name").problems().len(), 20);
    let chain = of(&|at| {
        format!(
            "  - {{name: r{at}, quota: 1/s, replaces: r{}}}\n",
            at.saturating_sub(1)
        )
    });
    let chain = chain.expect_err("the first replaces itself");
    assert_eq!(
        chain.problems()[0].message(),
        "rules replace each other: r0 -> r0"
    );
    let stop =
        of(&|at| format!("  - {{name: r{at}, quota: 1/s, stop: true, match: {{path: /r{at}}}}}\n"));
    assert_eq!(stop.expect("no fault").warnings().len(), 0);

    let template = "1/s, ".repeat(16);
    let error = refused(
        &format!("quotas: {{t: [{template}]}}\n{}", "rules: []"),
        Format::Yaml,
    );
    assert_eq!(error.problems()[0].code(), "R04", "{error}");
    let error = refused(
        &format!("rules: [{{name: a, quota: [{}]}}]", "1/s, ".repeat(17)),
        Format::Yaml,
    );
    assert!(
        error
            .to_string()
            .contains("17 quotas; accepted are 1 to 16"),
        "{error}"
    );
    let template: String = (1..=16).map(|at| format!("{at}/s, ")).collect();
    let rules: String = (0..7_000)
        .map(|at| format!("  - {{name: r{at}, quota: t}}\n"))
        .collect();
    let error = refused(
        &format!("quotas: {{t: [{template}]}}\nrules:\n{rules}"),
        Format::Yaml,
    );
    assert_eq!(
        error.to_string(),
        "R01 more than 100000 quotas, each use of a template counted"
    );
}

/// The list has ended before the second rule is checked.
#[test]
fn r09_replaces_what_ended_the_list() {
    for end in ["quota: 1/s, stop: true", "action: allow", "action: deny"] {
        let text = format!(
            "rules:\n  - {{name: a, {end}}}\n  - {{name: b, quota: 1/s, replaces: [¶a]}}\n"
        );
        fault("R09", "put \"b\" before \"a\"", Format::Yaml, &text);
        // The other way round it has an effect.
        let text = format!(
            "rules:\n  - {{name: b, match: {{path: /x}}, quota: 1/s, replaces: [a]}}\n  - {{name: a, {end}}}\n"
        );
        let rules = Rules::builder().parse(text, Format::Yaml);
        assert!(rules.is_ok(), "{rules:?}");
    }
}

#[test]
fn files_of_windows_are_read_as_they_are() {
    let text = "\u{feff}rules:\r\n  - name: a\r\n    mdoe: hard\r\n    quota: 1/s\r\n";
    let error = refused(text, Format::Yaml);
    assert!(
        error
            .to_string()
            .starts_with("rules:3:5: R02 unknown field")
            && error.to_string().contains("|     mdoe: hard\n"),
        "{error}"
    );
}

#[test]
fn a_thousand_unknown_words_are_no_work() {
    let fields: String = (0..20_000).map(|at| format!("field_{at}: 1\n")).collect();
    let error = refused(&fields, Format::Yaml);
    assert_eq!(error.problems().len(), 20);
}

/// A template is right where it stands, and wrong in a rule whose name leaves no room for its own.
#[test]
fn a_policy_name_that_is_too_long_is_a_fault_of_its_use() {
    let name = "n".repeat(60);
    let text = format!("quotas: {{t: [1/s, 5/minute]}}\nrules: [{{name: {name}, quota: t}}]");
    let error = refused(&text, Format::Yaml);
    assert!(error.to_string().contains("is no policy name"), "{error}");
    assert_eq!(error.problems().len(), 2);
}

#[test]
fn without_a_rule_there_is_a_fault_unless_that_is_wanted() {
    for (text, format) in [
        ("", Format::Yaml),
        ("version: 1", Format::Yaml),
        ("", Format::Toml),
        ("{}", Format::Json),
    ] {
        let error = refused(text, format);
        let output = "rules:1:1: R02 there is not a single rule";
        assert!(error.to_string().starts_with(output), "{error}");
        let empty = Rules::builder().allow_empty(true).parse(text, format);
        assert!(empty.expect("no fault").is_empty());
    }
}

/// The only fault of a file in YAML.
fn message(text: &str) -> String {
    let error = refused(text, Format::Yaml);
    let [problem] = error.problems() else {
        panic!("{error}");
    };
    let suggestion = problem.suggestion();
    let suggestion = suggestion.map(|word| format!("; did you mean {word:?}?"));
    format!("{}{}", problem.message(), suggestion.unwrap_or_default())
}

#[test]
fn common_mistakes_have_a_remedy() {
    let rule = |rest: &str| message(&format!("rules:\n  - {{name: a, {rest}}}\n"));
    for (wrong, remedy) in [
        ("quota: 10r/s", "did you mean \"10/s\"?"),
        ("quota: 10/2week", "a week is 7d"),
        ("quota: 10/months", "30d is the nearest period"),
        ("quota: 5/minu", "did you mean \"minute\"?"),
        ("quota: 5/month starting_on 29", "accepted are days 1 to 28"),
        ("quota: 5/month sliding_log", "sliding_log cannot count it"),
        ("quota: 5/hour in UTC", "accepted are quotas per day"),
        ("quota: 5/s, key: ip", "did you mean \"client_ip\"?"),
        (
            "quota: 5/s, key: x-api-key",
            "`secret_header` where its value is a secret",
        ),
        ("quota: 5/s, key: hosst", "did you mean \"host\"?"),
        (
            "quota: 5/s, count_if: {status: 4XX}",
            "did you mean \"4xx\"?",
        ),
        (
            "quota: 5/s, match: {path: /users/{id}}",
            "put a path with {} in quotes",
        ),
        (
            "quota: 5/s, match: {path: [/users/{id}, /b]}",
            "put a path with {} in quotes",
        ),
        (
            "quota: 5/s, match: {path: {id}}",
            "has to be in quotes: \"{id}\"",
        ),
        (
            "quota: \"${LIMIT}/minute\"",
            "variables are not replaced in rule files",
        ),
        (
            "quota: 5/s, key: {header: \"${KEY}\"}",
            "variables are not replaced in rule files",
        ),
    ] {
        let message = rule(wrong);
        assert!(message.contains(remedy), "{wrong}: {message}");
    }
    assert!(!rule("quota: 5/fortnight").contains("did you mean"));
}

/// One fault each: the cause, without its consequence.
#[test]
fn a_misspelt_field_is_the_only_fault() {
    let misspelt = message("rules:\n  - {name: a, qouta: 5/s}\n");
    assert!(misspelt.contains("did you mean \"quota\"?"), "{misspelt}");
    let trust = message("client_ip: {trust: []}\nrules:\n  - {name: a, quota: 5/s}\n");
    assert!(trust.contains("leave the field out"), "{trust}");
}

#[test]
fn a_manifest_of_kubernetes_is_told() {
    let of_kind = |kind: &str| {
        let text = format!("apiVersion: v1\nkind: {kind}\ndata: {{rules.yaml: \"rules: []\"}}\n");
        message(&text)
    };
    let message = of_kind("ConfigMap");
    assert!(message.contains("the rules are in its `data`"), "{message}");
    assert!(of_kind("Ingress").contains("no rule file"));
}

#[test]
fn the_first_day_of_a_month_is_one_that_all_months_have() {
    for day in [0, 29, 31] {
        let text = format!("rules: [{{name: a, quota: {{rate: 5/month, starting_on: {day}}}}}]\n");
        let error = refused(&text, Format::Yaml);
        let problems = error.problems().iter();
        let problems: Vec<_> = problems
            .map(|problem| (problem.code(), problem.message()))
            .collect();
        let expected = format!("`starting_on` is a whole number from 1 to 28, not \"{day}\"");
        assert_eq!(problems, [("R01", &*expected)]);
    }
}

/// A number that a field does not accept is no part of the quota, which would be a second fault.
#[test]
fn a_number_out_of_range_is_reported_once() {
    for field in [
        "burst: 0",
        "slices: 0, algorithm: sliding_window",
        "slices: 1001, algorithm: sliding_window",
        "soft: 1001",
        "debt: 9007199254740992",
    ] {
        let text = format!("rules: [{{name: a, quota: {{rate: 5/hour, {field}}}}}]\n");
        let error = refused(&text, Format::Yaml);
        let codes: Vec<_> = error.problems().iter().map(|p| p.code()).collect();
        assert_eq!(codes, ["R01"], "{field}: {error}");
    }
}

#[test]
fn files_without_rules_are_named() {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["a.yaml", "b.toml"] {
        std::fs::write(folder.path().join(name), "# nothing\n").expect("a file");
    }
    let error = Rules::from_path(folder.path())
        .expect_err("no rules")
        .to_string();
    assert!(
        error.contains("a.yaml:1:1: R02") && error.contains("b.toml:1:1: R02"),
        "{error}"
    );
}

#[test]
fn files_with_settings_alone_are_named() {
    let texts = [("a", "rules: []"), ("b", "quotas: {gold: 9/s}")];
    let texts = texts.map(|(name, text)| (name, text.to_owned(), Format::Yaml));
    let error = Rules::builder().parse_all(texts).expect_err("no rules");
    let error = error.to_string();
    assert!(
        error.contains("not a single rule in \"a\" or \"b\""),
        "{error}"
    );
}
