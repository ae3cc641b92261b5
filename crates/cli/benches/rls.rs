//! Throughput and latency of `ShouldRateLimit`: `cargo bench -p tower-ratelimit-cli --bench rls`.
//!
//! Each row has its own service, which counts in its process or in a `redis-server`, and a client
//! with one connection and 1 or 64 concurrent calls. Client, service and Redis share the machine.

use std::{
    error::Error,
    fs,
    process::Command,
    time::{Duration, Instant},
};

use testkit::{
    bench_redis::Server,
    child_processes::{Process, free_port},
};
use tokio::{net::TcpStream, task::JoinSet, time::sleep};
use tonic::{
    client::Grpc,
    codegen::http::uri::PathAndQuery,
    transport::{Channel, Endpoint},
};
use tonic_prost::ProstCodec;
use tower_ratelimit_envoy::protobuf_messages::{
    Entry, RateLimitDescriptor, RateLimitRequest, RateLimitResponse,
};

type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

const RULES: &str = "domain: rl
descriptors: [{key: user, rate_limit: {unit: minute, requests_per_unit: 4000000}}]
";

/// The measured time of each row, after a fifth of it for warming up.
const TIME: Duration = Duration::from_secs(5);

async fn call(channel: Channel, user: usize) -> Result<Duration> {
    let mut client = Grpc::new(channel);
    client.ready().await?;
    let [key, value] = ["user".to_owned(), user.to_string()];
    let request = RateLimitRequest {
        domain: "rl".to_owned(),
        descriptors: vec![RateLimitDescriptor {
            entries: vec![Entry { key, value }],
            ..RateLimitDescriptor::default()
        }],
        hits_addend: 0,
    };
    let path = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
    let path = PathAndQuery::from_static(path);
    let codec = ProstCodec::<_, RateLimitResponse>::default();
    let began = Instant::now();
    client
        .unary(tonic::Request::new(request), path, codec)
        .await?;
    Ok(began.elapsed())
}

/// The latencies of all calls, with this many concurrent ones.
async fn times(channel: &Channel, streams: usize, time: Duration) -> Result<Vec<Duration>> {
    let end = Instant::now() + time;
    let mut running = JoinSet::new();
    for stream in 0..streams {
        let channel = channel.clone();
        running.spawn(async move {
            let mut times = Vec::new();
            // A thousand users, as a small service may have at a time.
            for at in 0.. {
                if Instant::now() > end {
                    break;
                }
                times.push(call(channel.clone(), (stream + at * streams) % 1_000).await?);
            }
            Ok::<_, Box<dyn Error + Send + Sync>>(times)
        });
    }
    let all = running.join_all().await.into_iter();
    Ok(all.collect::<Result<Vec<_>>>()?.concat())
}

async fn measure(backend: &str, options: &[&str], time: Duration) -> Result<()> {
    let folder = tempfile::tempdir()?;
    fs::write(folder.path().join("rules.yaml"), RULES)?;
    let port = free_port();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tower-ratelimit"));
    command
        .current_dir(folder.path())
        .args(["serve", "rules.yaml"]);
    command.args(["--grpc", &format!("127.0.0.1:{port}")]);
    command.args(["--http", &format!("127.0.0.1:{}", free_port())]);
    command.args(["--admin", "off"]).args(options);
    let mut process = Process::start(&mut command, &folder.path().join("log"));
    while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
        if process.has_ended() {
            return Err(process.log().into());
        }
        sleep(Duration::from_millis(10)).await;
    }
    let channel = Endpoint::from_shared(format!("http://127.0.0.1:{port}"))?;
    let channel = channel.connect().await?;
    for streams in [1, 64] {
        times(&channel, streams, time / 5).await?;
        let mut times = times(&channel, streams, time).await?;
        times.sort();
        let rate = times.len() as f64 / time.as_secs_f64();
        let [median, p99] = [50, 99].map(|part| times[times.len() * part / 100]);
        println!("{backend:<8} {streams:>7} {rate:>12.0} {median:>12.1?} {p99:>12.1?}");
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<()> {
    // `cargo test` runs benches too, only to see whether they work.
    let is_bench = std::env::args().any(|argument| argument == "--bench");
    let time = if is_bench { TIME } else { TIME / 500 };
    println!("backend  streams calls/second       median          p99");
    measure("local", &[], time).await?;
    let server = Server::start().await?;
    measure("redis", &["--redis", &server.url()], time).await
}
