//! Chromium, driven by WebDriver. The protocol is JSON over HTTP: this small client avoids one with
//! a hundred packages.

use std::{
    env, fs,
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::child_processes::{Process, find, free_port, missing};

/// The timeout under load for steps that usually take milliseconds.
const PATIENCE: Duration = Duration::from_secs(150);

/// A browser with one window. It closes on drop.
pub struct Browser {
    port: u16,
    session: String,
    _driver: Process,
    _folder: TempDir,
}

impl Browser {
    /// Starts a browser; `None` if there is none and the test is skipped.
    pub fn start() -> Option<Self> {
        let browser = find("chromium", None);
        if missing(browser.is_some(), "chromium", "apt-get install chromium") {
            return None;
        }
        let driver = find("chromedriver", None);
        if missing(
            driver.is_some(),
            "chromedriver",
            "apt-get install chromium-driver",
        ) {
            return None;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let port = free_port();
        let mut command = Command::new(driver.expect("it is there"));
        command.arg(format!("--port={port}"));
        // Chromium's files are removed with the folder.
        command
            .env("TMPDIR", folder.path())
            .env("HOME", folder.path());
        let mut browser_of = Self {
            port,
            session: String::new(),
            _driver: Process::start(&mut command, &folder.path().join("log")),
            _folder: folder,
        };
        browser_of.open_session(&browser.expect("it is there"));
        Some(browser_of)
    }

    fn open_session(&mut self, browser: &Path) {
        let start = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert!(start.elapsed() < PATIENCE, "chromedriver does not listen");
            thread::sleep(Duration::from_millis(10));
        }
        // Root has no sandbox, and containers have little shared memory.
        let arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
        ];
        let session = self.send(
            "POST",
            "/session",
            &json!({"capabilities": {"alwaysMatch": {
                "goog:chromeOptions": {"binary": browser, "args": arguments},
                "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
            }}}),
        );
        session["sessionId"]
            .as_str()
            .expect("a session")
            .clone_into(&mut self.session);
    }

    /// Opens an address, and waits until this expression is true in its page.
    pub fn open(&self, url: &str, is_ready: &str) {
        // A new fragment alone would not load the page again.
        self.command("POST", "url", &json!({"url": "about:blank"}));
        self.command("POST", "url", &json!({"url": url}));
        self.eventually("the page runs", &format!("return Boolean({is_ready})"));
    }

    /// Runs the body of a function in the page, and returns its result.
    pub fn js(&self, body: &str) -> Value {
        self.js_with(body, &json!([]))
    }

    /// Runs the body of a function with `arguments`.
    pub fn js_with(&self, body: &str, arguments: &Value) -> Value {
        self.command(
            "POST",
            "execute/sync",
            &json!({"script": body, "args": arguments}),
        )
    }

    /// Polls until the result is true.
    pub fn eventually(&self, what: &str, body: &str) {
        let start = Instant::now();
        while self.js(body) != Value::Bool(true) {
            assert!(start.elapsed() < PATIENCE, "in vain waited for: {what}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Presses keys one after the other, at the focus.
    pub fn press(&self, keys: &[&str]) {
        let presses = keys.iter().flat_map(|key| {
            [
                json!({"type": "keyDown", "value": key}),
                json!({"type": "keyUp", "value": key}),
            ]
        });
        let presses: Vec<_> = presses.collect();
        let actions = json!({"actions": [{"type": "key", "id": "keyboard", "actions": presses}]});
        self.command("POST", "actions", &actions);
    }

    /// A command of Chromium's own protocol, such as the emulation of a medium.
    pub fn devtools(&self, command: &str, parameters: &Value) -> Value {
        self.command(
            "POST",
            "goog/cdp/execute",
            &json!({"cmd": command, "params": parameters}),
        )
    }

    pub fn set_media(&self, features: &[(&str, &str)]) {
        let features = features
            .iter()
            .map(|(name, value)| json!({"name": name, "value": value}));
        let features: Vec<_> = features.collect();
        self.devtools("Emulation.setEmulatedMedia", &json!({"features": features}));
    }

    pub fn set_size(&self, width: u32, height: u32) {
        let size =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.devtools("Emulation.setDeviceMetricsOverride", &size);
    }

    /// The serious faults that axe finds in the page; `None` if axe is missing and the test is skipped.
    pub fn accessibility_faults(&self) -> Option<Value> {
        let axe = env::var_os("AXE").map(PathBuf::from);
        let there = axe.as_deref().is_some_and(Path::is_file);
        if missing(there, "axe", "export AXE=\"$(bash scripts/get-axe.sh)\"") {
            return None;
        }
        let axe = fs::read_to_string(axe?).expect("a script");
        self.js(&format!("if (!globalThis.axe) {{ {axe} }}"));
        self.js(
            "globalThis.faults = null; axe.run({ resultTypes: ['violations'] }).then((found) => {
            globalThis.faults = found.violations.filter((fault) => ['serious', 'critical'].includes(fault.impact))
                .map((fault) => [fault.id, fault.nodes.map((node) => node.html)]); })",
        );
        self.eventually("axe is done", "return Boolean(globalThis.faults)");
        Some(self.js("return globalThis.faults"))
    }

    /// The window as a PNG.
    pub fn screenshot(&self) -> Vec<u8> {
        let picture = self.command("GET", "screenshot", &Value::Null);
        let picture = STANDARD.decode(picture.as_str().expect("a picture"));
        picture.expect("base64")
    }

    /// The log since the last call: `browser` for the console, `performance` for requests.
    pub fn log(&self, kind: &str) -> Vec<Value> {
        match self.command("POST", "se/log", &json!({"type": kind})) {
            Value::Array(entries) => entries,
            other => panic!("no log: {other}"),
        }
    }

    fn command(&self, method: &str, command: &str, parameters: &Value) -> Value {
        self.send(
            method,
            &format!("/session/{}/{command}", self.session),
            parameters,
        )
    }

    fn send(&self, method: &str, path: &str, parameters: &Value) -> Value {
        let answer = self.exchange(method, path, parameters);
        let answer = answer.unwrap_or_else(|error| panic!("{method} {path}: {error}"));
        let mut answer: Value = serde_json::from_slice(&answer).expect("JSON");
        let error = answer["value"].get("stacktrace").is_some();
        assert!(!error, "{method} {path}: {}", answer["value"]["message"]);
        answer["value"].take()
    }

    fn exchange(&self, method: &str, path: &str, parameters: &Value) -> io::Result<Vec<u8>> {
        let body = match parameters {
            Value::Null => String::new(),
            parameters => parameters.to_string(),
        };
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )?;
        // chromedriver keeps the connection open, in spite of the request.
        let mut lines = BufReader::new(stream);
        let mut length = 0;
        loop {
            let mut line = String::new();
            lines.read_line(&mut line)?;
            match line
                .to_ascii_lowercase()
                .trim_end()
                .strip_prefix("content-length:")
            {
                Some(reported) => length = reported.trim().parse().map_err(io::Error::other)?,
                None if line.trim_end().is_empty() => break,
                None => {}
            }
        }
        let mut answer = vec![0; length];
        lines.read_exact(&mut answer)?;
        Ok(answer)
    }
}

/// Closes the browser first: it would outlive its driver.
impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.exchange(
            "DELETE",
            &format!("/session/{}", self.session),
            &Value::Null,
        );
    }
}
