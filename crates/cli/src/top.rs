//! `top`: the keys that a service denies most often, from its admin service.

use std::{
    fs,
    io::{self, IsTerminal as _, Write},
    net::SocketAddr,
    path::PathBuf,
    time::Duration,
};

use clap::Args;
use serde_json::Value;

use tower_ratelimit_service::options::address;

use crate::{
    findings_report::counted,
    healthcheck::{connect, exchange},
};

/// The most bytes of a response.
const MAX_RESPONSE: u64 = 4 << 20;

/// The widest text of a key in the table, in characters.
const MAX_KEY: usize = 60;

#[derive(Debug, Args)]
pub(crate) struct Top {
    /// The address of the admin service.
    #[arg(
        long,
        value_name = "ADDRESS",
        value_parser = address,
        default_value = "127.0.0.1:6070",
        env = "TOWER_RATELIMIT_ADMIN"
    )]
    admin: SocketAddr,
    /// A file with the token of the admin service.
    #[arg(
        long = "admin-token-file",
        value_name = "FILE",
        env = "TOWER_RATELIMIT_ADMIN_TOKEN_FILE"
    )]
    token_file: Option<PathBuf>,
    /// Only the keys of this rule, or of a domain of Envoy's files.
    #[arg(long, value_name = "NAME")]
    rule: Option<String>,
    /// The number of keys.
    #[arg(short, value_name = "COUNT", default_value_t = 20)]
    n: usize,
    /// Prints the table once. Default: every two seconds.
    #[arg(long)]
    once: bool,
}

/// Prints the table repeatedly, or once.
///
/// # Errors
///
/// The reason why there is no table.
pub(crate) fn top(top: &Top, out: &mut dyn Write) -> Result<(), String> {
    loop {
        let table = table(&fetch(top)?);
        // Overwrites the terminal from its upper left corner.
        let clear = if !top.once && io::stdout().is_terminal() {
            "\x1b[H\x1b[J"
        } else {
            ""
        };
        let written = write!(out, "{clear}{table}").and_then(|()| out.flush());
        if top.once || written.is_err() {
            return Ok(());
        }
        std::thread::sleep(Duration::from_secs(2));
    }
}

fn fetch(top: &Top) -> Result<Value, String> {
    let token = match &top.token_file {
        None => String::new(),
        Some(file) => {
            let token =
                fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
            format!("authorization: Bearer {}\r\n", token.trim())
        }
    };
    let mut path = format!("/v1/top?n={}", top.n);
    if let Some(rule) = &top.rule {
        path += "&rule=";
        path.extend(rule.bytes().map(|byte| format!("%{byte:02X}")));
    }
    let address = top.admin;
    // HTTP/1.0, so that the response is not chunked.
    let request = format!("GET {path} HTTP/1.0\r\nhost: {address}\r\n{token}\r\n");
    let response = connect(address).and_then(|stream| exchange(stream, &request, MAX_RESPONSE));
    let response = response.map_err(|error| format!("{address}: {error}"))?;
    let (head, body) = response.split_once("\r\n\r\n").unwrap_or((&response, ""));
    let status = head.lines().next().unwrap_or_default();
    let response: Value = serde_json::from_str(body).unwrap_or_default();
    match status.split(' ').nth(1) {
        Some("200") if response["keys"].is_array() => Ok(response),
        _ => {
            let why = response["error"].as_str().unwrap_or(status);
            Err(format!("{address}: {why}"))
        }
    }
}

/// The response as a table.
fn table(response: &Value) -> String {
    let keys = response["keys"].as_array().map_or(&[][..], Vec::as_slice);
    let rows: Vec<[String; 5]> = keys.iter().map(row).collect();
    let width = |at: usize, least: usize| {
        let widths = rows.iter().map(|row| row[at].chars().count());
        widths.max().unwrap_or(0).max(least)
    };
    let [count, error, passed, rule] = [width(0, 7), width(1, 5), width(2, 6), width(3, 4)];
    let mut table = counted(number(&response["denials"]) as usize, "denial");
    table += " in the last five to ten minutes";
    match number(&response["skipped"]) {
        0 => table += "\n\n",
        1 => table += "; 1 since the start was not counted\n\n",
        skipped => table += &format!("; {skipped} since the start were not counted\n\n"),
    }
    table += &format!(
        "{:>count$}  {:>error$}  {:passed$}  {:rule$}  key\n",
        "denials", "error", "passed", "rule"
    );
    for [denials, off, mark, name, key] in &rows {
        table +=
            &format!("{denials:>count$}  {off:>error$}  {mark:passed$}  {name:rule$}  {key}\n");
    }
    table
}

/// The count of a key, its possible error, whether the denied requests passed anyway, the rule, and the key.
fn row(response: &Value) -> [String; 5] {
    let error = match number(&response["error"]) {
        0 => String::new(),
        error => format!("-{error}"),
    };
    let text = |name: &str| clean(response[name].as_str().unwrap_or_default());
    let count = number(&response["count"]).to_string();
    let passed = if response["passed_anyway"] == true {
        "yes"
    } else {
        ""
    };
    [count, error, passed.to_owned(), text("rule"), text("key")]
}

fn number(response: &Value) -> u64 {
    response.as_u64().unwrap_or_default()
}

/// A text of a service without control characters.
fn clean(text: &str) -> String {
    let letters = text
        .chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c });
    let mut clean: String = letters.clone().take(MAX_KEY).collect();
    if letters.count() > MAX_KEY {
        clean.push('…');
    }
    clean
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn table_has_a_row_for_each_key() {
        let response = json!({
            "denials": 1234, "skipped": 5,
            "keys": [
                {"rule": "login", "key": "ip:203.0.113.7", "count": 1200, "error": 3},
                {"rule": "shop.user", "key": "str:user=\u{1b}[31meve", "count": 34, "error": 0, "passed_anyway": true},
                {"rule": "x", "key": "k".repeat(80), "count": 1, "error": 0},
            ],
        });
        let long = "k".repeat(60) + "…";
        let expected = format!(
            "1234 denials in the last five to ten minutes; 5 since the start were not counted\n\n\
             denials  error  passed  rule       key\n   \
             1200     -3          login      ip:203.0.113.7\n     \
             34         yes     shop.user  str:user=\u{fffd}[31meve\n      \
             1                 x          {long}\n"
        );
        assert_eq!(table(&response), expected);
    }
}
