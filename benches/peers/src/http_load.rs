//! Servers over loopback, each in a process of its own, under load from wrk.

use std::{
    io::{self, BufRead, BufReader, Read},
    net::SocketAddr,
    process::{Child, Command, Stdio},
    thread,
};

use tokio::{net::TcpListener, runtime};

use crate::{
    child,
    middleware::{
        Case, Contender, DEFAULT, FIVE_FIELDS, LIMITADOR, Make, WINDOW, contenders, find,
    },
    rate_conversions::Rate,
    report::{Report, Row, Table},
    rounds::{Samples, rounds},
};

pub const ALLOWED: &str = "HTTP over loopback, allowed";
pub const DENIED: &str = "HTTP over loopback, all denied";

const ROUNDS: usize = 9;

/// Results of wrk in a second.
#[derive(Default)]
struct Load {
    per_second: Samples,
    /// Milliseconds.
    half_within: Samples,
    most_within: Samples,
}

/// Does nothing where there is no wrk.
pub fn measure(report: &mut Report) {
    if Command::new("wrk").arg("--version").output().is_err() {
        println!("\nno wrk: servers were not put under load");
        return;
    }
    for (case, title) in [(Case::Allowed, ALLOWED), (Case::Denied, DENIED)] {
        for table in tables(case, title) {
            report.add(table);
        }
    }
}

/// Title of a table about latency.
pub fn latency(title: &str, percentile: u32) -> String {
    format!("{title}, p{percentile}")
}

fn tables(case: Case, title: &str) -> [Table; 3] {
    // limitador has no layer of its own.
    const LEFT_OUT: [&str; 3] = [FIVE_FIELDS, WINDOW, LIMITADOR];
    let served = |contender: &Contender| {
        let is_router = !matches!(contender.make, Make::NoRouter(_));
        is_router && !LEFT_OUT.contains(&contender.name) && contender.takes_part(case)
    };
    let names: Vec<_> = contenders()
        .iter()
        .filter(|c| served(c))
        .map(|c| c.name)
        .collect();
    let servers: Vec<_> = names.iter().map(|name| Server::start(name, case)).collect();
    let mut loads: Vec<Load> = names.iter().map(|_| Load::default()).collect();
    for round in 0..rounds(ROUNDS) {
        for turn in 0..servers.len() {
            let at = (round + turn) % servers.len();
            servers[at].load(case, &mut loads[at]);
        }
    }
    let table = |title: String, unit: &str, samples: fn(&Load) -> &Samples| Table {
        title,
        unit: unit.to_owned(),
        reference: DEFAULT.to_owned(),
        rows: (names.iter().zip(&loads))
            .map(|(name, load)| Row::new(*name, samples(load).clone()))
            .collect(),
    };
    [
        table(title.to_owned(), "requests/s", |load| &load.per_second),
        table(latency(title, 50), "ms", |load| &load.half_within),
        table(latency(title, 99), "ms", |load| &load.most_within),
    ]
}

struct Server {
    process: Child,
    name: &'static str,
    port: u16,
}

impl Server {
    fn start(name: &'static str, case: Case) -> Self {
        let path = child::path(child::PEERS).expect("a path to the running program");
        let mut process = Command::new(path)
            .args(["serve", name, case.name()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program runs");
        let mut line = String::new();
        let output = process.stdout.take().expect("it is piped");
        BufReader::new(output).read_line(&mut line).expect("a line");
        let port = line.trim().parse().expect("a port");
        Self {
            process,
            name,
            port,
        }
    }

    fn load(&self, case: Case, load: &mut Load) {
        let url = format!("http://127.0.0.1:{}/", self.port);
        let output = Command::new("wrk")
            .args([
                "--threads=1",
                "--connections=32",
                "--duration=1s",
                "--latency",
                &url,
            ])
            .output();
        let output = output.expect("wrk runs").stdout;
        let text = String::from_utf8_lossy(&output);
        self.check(case, &text);
        load.per_second.0.push(number_after(&text, "Requests/sec:"));
        load.half_within.0.push(millis(&text, "50%"));
        load.most_within.0.push(millis(&text, "99%"));
    }

    /// # Panics
    ///
    /// When requests were answered otherwise than they should be; the first on a key passes.
    fn check(&self, case: Case, text: &str) {
        let sent = text
            .lines()
            .find_map(|line| line.trim().split_once(" requests in "));
        let sent: f64 = sent.expect("a count").0.parse().expect("a number");
        let failed = text
            .lines()
            .find_map(|line| line.split_once("Non-2xx or 3xx responses: "));
        let failed: f64 = failed.map_or(0.0, |(_, count)| count.trim().parse().expect("a number"));
        let expected = if find(self.name).denies(case) {
            sent - 1.0..=sent
        } else {
            0.0..=0.0
        };
        let name = self.name;
        assert!(
            expected.contains(&failed),
            "{name}: {failed} of {sent} were not answered 200"
        );
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn number_after(text: &str, label: &str) -> f64 {
    word_after(text, label).parse().expect("a number")
}

/// wrk writes `812.00us`, `1.02ms`, `1.20s`.
fn millis(text: &str, label: &str) -> f64 {
    let word = word_after(text, label);
    let units = [("us", 0.001), ("ms", 1.0), ("s", 1_000.0)];
    let found = units.into_iter().find_map(|(unit, millis)| {
        let number: f64 = word.strip_suffix(unit)?.parse().ok()?;
        Some(number * millis)
    });
    found.unwrap_or_else(|| panic!("{word:?} is no time"))
}

fn word_after<'a>(text: &'a str, label: &str) -> &'a str {
    let rest = text
        .lines()
        .find_map(|line| line.trim().strip_prefix(label));
    rest.unwrap_or_else(|| panic!("no {label} in {text}"))
        .trim()
}

/// The server's process: writes its port, and ends when its input is closed.
///
/// # Errors
///
/// When it cannot listen.
///
/// # Panics
///
/// When there is no such contender.
pub fn serve(name: &str, case: Case) -> io::Result<()> {
    thread::spawn(|| {
        let _ = io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    let rate = match case {
        Case::Allowed | Case::Several => Rate::UNBOUNDED,
        Case::Denied => case.rate(),
    };
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        println!("{}", listener.local_addr()?.port());
        match find(name).make {
            Make::Axum(make) => {
                let app = make(rate).into_make_service_with_connect_info::<SocketAddr>();
                axum::serve(listener, app).await
            }
            Make::Axum07(make) => {
                let app = make(rate).into_make_service_with_connect_info::<SocketAddr>();
                axum07::serve(listener, app).await
            }
            _ => panic!("{name} takes part in no load"),
        }
    })
}
