//! What `spend` costs a gateway: tokens a second of a thousand streams, at the pace of a model and as fast as they pass, and
//! the time to the first byte of one at a time: `cargo bench -p tower-ratelimit-cli --bench llm_streams`.
//!
//! Two gateways are in front of one server of events, one without `spend` and one with it; they take turns in rounds.
//! Clients, gateways and server share the machine, so that only the ratios count.

use std::{
    error::Error,
    fs,
    process::Command,
    time::{Duration, Instant},
};

use testkit::{
    child_processes::{Process, free_port},
    llm::bodies,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::sleep,
};

type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

const WITHOUT: &str = "rules: [{name: llm, key: global, quota: 1000000/second}]\n";
const WITH: &str = "rules:
- name: llm
  key: global
  spend: {read: auto}
  quota: [{name: requests, rate: 1000000/second}, {name: tokens, rate: 1000000/second, burst: 1000000000, counts: tokens}]
";

/// The tokens of a response, an event each.
const TOKENS: usize = 200;

/// The time between the tokens of a response at the pace of a model: 50 a second.
const PACE: Duration = Duration::from_millis(20);

/// The load of a round.
struct Load {
    rounds: usize,
    streams: usize,
    requests: usize,
}

/// The chunks of a response: the head, and each event.
fn chunks() -> Vec<String> {
    let head =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    let stream = bodies::chat_stream(&bodies::words(TOKENS), Some((10, TOKENS as u64)));
    let events = stream.split_inclusive("\n\n");
    let events = events.map(|event| format!("{:x}\r\n{event}\r\n", event.len()));
    let mut chunks: Vec<_> = std::iter::once(head.to_owned()).chain(events).collect();
    chunks.push("0\r\n\r\n".to_owned());
    chunks
}

/// Responds to each request: the path `/paced` gets its tokens at the pace of a model, `/first` one token, and its end
/// later.
async fn respond(mut stream: TcpStream, chunks: &[String]) -> Result<()> {
    let mut request = vec![0; 4_096];
    loop {
        let read = stream.read(&mut request).await?;
        if read == 0 {
            return Ok(());
        }
        let is_for = |path: &str| request[..read].starts_with(format!("POST {path} ").as_bytes());
        if is_for("/first") {
            stream.write_all(chunks[..2].concat().as_bytes()).await?;
            sleep(PACE).await;
            stream
                .write_all(chunks[chunks.len() - 1].as_bytes())
                .await?;
            continue;
        }
        let is_paced = is_for("/paced");
        for chunk in chunks {
            if is_paced {
                sleep(PACE).await;
            }
            stream.write_all(chunk.as_bytes()).await?;
        }
    }
}

async fn serve(listener: TcpListener) -> Result<()> {
    let chunks: &'static [String] = chunks().leak();
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(respond(stream, chunks));
    }
}

/// Reads a response on a connection of its own. Returns the time to its first byte.
async fn request(port: u16, path: &str) -> Result<Duration> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    let began = Instant::now();
    let request = format!("POST {path} HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut response = vec![0; 16_384];
    let mut end = Vec::new();
    let mut first = None;
    loop {
        let read = stream.read(&mut response).await?;
        let first = *first.get_or_insert_with(|| began.elapsed());
        end.extend_from_slice(&response[read.saturating_sub(5)..read]);
        end.drain(..end.len().saturating_sub(5));
        if end == b"0\r\n\r\n" {
            return Ok(first);
        }
        if read == 0 {
            return Err("the response broke off".into());
        }
    }
}

/// Tokens a second of streams that are open at once.
async fn throughput(port: u16, path: &'static str, streams: usize) -> Result<f64> {
    let mut running = JoinSet::new();
    let began = Instant::now();
    for _ in 0..streams {
        running.spawn(request(port, path));
    }
    for response in running.join_all().await {
        response?;
    }
    Ok((streams * TOKENS) as f64 / began.elapsed().as_secs_f64())
}

/// The times to the first byte, one request at a time.
async fn first_bytes(port: u16, requests: usize) -> Result<Vec<Duration>> {
    let mut times = Vec::new();
    for _ in 0..requests {
        times.push(request(port, "/first").await?);
    }
    Ok(times)
}

async fn gateway(folder: &std::path::Path, rules: &str, upstream: u16) -> Result<(Process, u16)> {
    let port = free_port();
    let file = folder.join(format!("{port}.yaml"));
    fs::write(&file, rules)?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_tower-ratelimit"));
    command.arg("gateway").arg(&file);
    command.args(["--listen", &format!("127.0.0.1:{port}")]);
    command.args(["--upstream", &format!("http://127.0.0.1:{upstream}")]);
    command.args(["--http", "off", "--admin", "off", "--drain", "0s"]);
    let mut process = Process::start(&mut command, &folder.join(format!("{port}.log")));
    while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
        if process.has_ended() {
            return Err(process.log().into());
        }
        sleep(Duration::from_millis(10)).await;
    }
    Ok((process, port))
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

fn at(times: &mut [Duration], percent: usize) -> Duration {
    times.sort();
    times[times.len() * percent / 100]
}

/// Prints the tokens a second of all streams through each gateway, and their ratio.
async fn compare_rates(ports: [u16; 2], path: &'static str, load: &Load) -> Result<()> {
    let (mut rates, mut ratios) = ([vec![], vec![]], Vec::new());
    for _ in 0..load.rounds {
        for (rates, port) in rates.iter_mut().zip(ports) {
            rates.push(throughput(port, path, load.streams).await?);
        }
        let [without, with] = rates.each_ref().map(|rates| rates[rates.len() - 1]);
        ratios.push(with / without);
    }
    let [without, with] = rates.map(median);
    let ratio = median(ratios);
    println!("{path:<8} {without:>9.0} tokens/s without spend, {with:>9.0} with it: {ratio:.3}");
    Ok(())
}

/// Prints the times to the first byte through each gateway.
async fn compare_first_bytes(ports: [u16; 2], load: &Load) -> Result<()> {
    let mut first = [vec![], vec![]];
    for _ in 0..load.rounds {
        for (first, port) in first.iter_mut().zip(ports) {
            first.extend(first_bytes(port, load.requests).await?);
        }
    }
    for (times, name) in first.iter_mut().zip(["without spend", "with spend"]) {
        let [half, p99] = [50, 99].map(|percent| at(times, percent));
        println!("first byte {name}: median {half:.1?}, p99 {p99:.1?}");
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<()> {
    // `cargo test` runs benches too, only to see whether they work.
    let is_bench = std::env::args().any(|argument| argument == "--bench");
    let (rounds, streams, requests) = if is_bench {
        (9, 1_000, 200)
    } else {
        (1, 10, 5)
    };
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let upstream = listener.local_addr()?.port();
    tokio::spawn(serve(listener));
    let folder = tempfile::tempdir()?;
    let (_without, plain) = gateway(folder.path(), WITHOUT, upstream).await?;
    let (_with, spending) = gateway(folder.path(), WITH, upstream).await?;
    let load = Load {
        rounds,
        streams,
        requests,
    };
    let ports = [plain, spending];
    compare_first_bytes(ports, &load).await?;
    compare_rates(ports, "/paced", &load).await?;
    compare_rates(ports, "/", &load).await
}
