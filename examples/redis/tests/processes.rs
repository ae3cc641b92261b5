//! Processes that share one limit: the example `shared`, called over HTTP.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::{
    collections::BTreeMap,
    env, fs,
    io::Write as _,
    net::{Ipv4Addr, SocketAddr},
    process::{Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use rustix::process::{Resource, getrlimit, setrlimit};
use tempfile::TempDir;
use testkit::{
    child_processes::{Process, eventually, free_port},
    needs,
    servers::{Cluster, Server, Setup, faketime_library},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::Barrier,
    task::JoinSet,
};
use tower_ratelimit::{Key, Quota, RedisLimiter, RedisStore, shared::Mode};

const REQUESTS: usize = 1_000;

/// A process of the example.
struct Node {
    address: SocketAddr,
    _process: Process,
    _folder: TempDir,
}

impl Node {
    /// Starts it and waits until it takes connections. `clock` is how far its clock is off.
    async fn start(redis: &str, clock: Option<&str>) -> Self {
        let port = free_port();
        let mut command = Command::new(env!("CARGO_BIN_EXE_shared"));
        command
            .env("PORT", port.to_string())
            .env("REDIS_URL", redis)
            // A busy machine must not look like a failing server.
            .env("REDIS_DEADLINE", "20000");
        if let Some(clock) = clock {
            command
                .env("LD_PRELOAD", faketime_library().expect("libfaketime"))
                .env("FAKETIME", clock)
                .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        }
        let folder = tempfile::tempdir().expect("a folder");
        let node = Self {
            address: (Ipv4Addr::LOCALHOST, port).into(),
            _process: Process::start(&mut command, &folder.path().join("log")),
            _folder: folder,
        };
        eventually("a process that takes connections", async || {
            TcpStream::connect(node.address).await.ok()
        })
        .await;
        node
    }
}

/// The head of the answer to one request, on a connection of its own. Sent when all are connected.
async fn ask(node: SocketAddr, all: Arc<Barrier>) -> String {
    let mut stream = TcpStream::connect(node).await.unwrap();
    all.wait().await;
    let request = b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, _) = answer.split_once("\r\n\r\n").unwrap();
    head.to_owned()
}

/// Sends all requests at once, to one node after another. The heads of the answers of each node.
async fn ask_all(nodes: &[Node]) -> Vec<Vec<String>> {
    let all = Arc::new(Barrier::new(REQUESTS));
    let mut requests = JoinSet::new();
    for request in 0..REQUESTS {
        let node = request % nodes.len();
        let head = ask(nodes[node].address, Arc::clone(&all));
        requests.spawn(async move { (node, head.await) });
    }
    let mut heads = vec![Vec::new(); nodes.len()];
    for (node, head) in requests.join_all().await {
        heads[node].push(head);
    }
    heads
}

/// How often each status was answered.
fn statuses<'a>(heads: impl IntoIterator<Item = &'a String>) -> BTreeMap<&'a str, usize> {
    let mut counts = BTreeMap::new();
    for head in heads {
        let status = head.split(' ').nth(1).unwrap();
        *counts.entry(status).or_insert(0) += 1;
    }
    counts
}

/// A thousand connections are more files than a process may have open on most systems.
fn allow_many_files() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
}

/// Has each process connect to Redis, which is then made to forget that: on a busy machine the first
/// request may find no connection in time, and its process counts it by itself.
async fn connect(nodes: &[Node], servers: &[&Server]) {
    for node in nodes {
        eventually("a process that is connected", async || {
            ask(node.address, Arc::new(Barrier::new(1))).await;
            let mut subjects = 0;
            for server in servers {
                let keys: Vec<String> = server.send(["KEYS", "rl:v1:*"]).await.ok()?;
                subjects += keys.len();
            }
            (subjects == 1).then_some(())
        })
        .await;
        for server in servers {
            server.send::<()>(["FLUSHALL"]).await.unwrap();
        }
    }
}

/// Two processes with these clocks let exactly a hundred of a thousand requests pass.
async fn share(redis: &str, servers: &[&Server], clocks: [Option<&str>; 2]) -> Vec<Vec<String>> {
    allow_many_files();
    let [first, second] = clocks;
    let nodes = [
        Node::start(redis, first).await,
        Node::start(redis, second).await,
    ];
    connect(&nodes, servers).await;
    let heads = ask_all(&nodes).await;
    let counts = statuses(heads.iter().flatten());
    println!("{counts:?}");
    assert_eq!(counts, BTreeMap::from([("200", 100), ("429", 900)]));
    for heads in &heads {
        assert_eq!(heads.len(), REQUESTS / 2);
    }
    heads
}

#[tokio::test]
async fn two_processes_share_one_limit() {
    needs!(redis);
    let server = Server::start().await;
    share(&server.url(), &[&server], [None, None]).await;
    let keys: Vec<String> = server.send(["KEYS", "*"]).await.unwrap();
    assert_eq!(keys.len(), 1, "{keys:?}");
}

#[tokio::test]
async fn two_processes_share_one_limit_in_valkey() {
    needs!(valkey);
    let server = Setup::valkey().start().await;
    share(&server.url(), &[&server], [None, None]).await;
}

#[tokio::test]
async fn two_processes_share_one_limit_in_a_cluster() {
    needs!(redis);
    let cluster = Cluster::start().await;
    let nodes = cluster.urls().join(",").replace("redis://", "");
    let primaries = [0, 1, 2].map(|index| cluster.node(index));
    share(
        &format!("redis-cluster://{nodes}"),
        &primaries,
        [None, None],
    )
    .await;
}

/// The time of a response, in seconds since midnight.
fn time_of_day(head: &str) -> i64 {
    let lines = || head.lines();
    let date = lines()
        .find_map(|line| line.strip_prefix("date: "))
        .unwrap();
    let time = date.split(' ').nth(4).unwrap();
    let numbers = time.split(':').map(|number| number.parse::<i64>().unwrap());
    numbers.fold(0, |sum, number| sum * 60 + number)
}

#[tokio::test]
async fn two_processes_with_clocks_two_hours_apart_share_one_limit() {
    needs!(redis, fake_clock);
    let server = Server::start().await;
    let heads = share(&server.url(), &[&server], [Some("+1h"), Some("-1h")]).await;
    let [ahead, behind] = [0, 1].map(|node| time_of_day(&heads[node][0]));
    let apart = (ahead - behind).rem_euclid(86_400);
    assert!((7_140..7_260).contains(&apart), "{apart} seconds apart");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_with_leases_share_one_limit() {
    needs!(redis);
    let server = Server::start().await;
    let mut command = Command::new(env!("CARGO_BIN_EXE_leased"));
    command.env("REDIS_URL", server.url()).env("PROCESSES", "4");
    let output = tokio::task::spawn_blocking(move || command.output());
    let output = output.await.unwrap().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let together = printed.lines().last().unwrap_or_default();
    let numbers: Vec<u64> = together
        .split([' ', ','])
        .filter_map(|word| word.parse().ok())
        .collect();
    // A process that was held up for longer than a lease has lost it.
    let [admitted, limit, ended] = *numbers else {
        panic!("{printed}");
    };
    assert!(admitted <= limit && admitted + ended >= limit, "{printed}");
    assert_eq!(printed.matches(" admitted in ").count(), 4, "{printed}");
}

const LIMIT: usize = 100_000;
const MOST_HELD: u32 = 4_000;

/// Longer than a busy machine holds a process up.
const LEASE: Duration = Duration::from_secs(5);

/// Takes all that it can of a limit, and prints each unit and those that ended unspent, until there have
/// been none for longer than a lease.
#[tokio::test]
#[ignore = "a process of the test below"]
async fn takes_what_there_is() {
    let store = RedisStore::builder().deadline(Duration::from_secs(20));
    let store = store.connect(&env::var("REDIS_URL").unwrap()).unwrap();
    let mode = Mode::leased().length(LEASE).max_units(MOST_HELD);
    let limiter = RedisLimiter::builder(Quota::per_day(LIMIT as u64).fixed_window())
        .mode(mode)
        .build(&store)
        .unwrap();
    let mut taken = fs::File::create(env::var("TAKEN").unwrap()).unwrap();
    let mut quiet_since = Instant::now();
    while quiet_since.elapsed() < 2 * LEASE {
        let decision = limiter.acquire(&Key::global(), 1).await.unwrap();
        if decision.is_allowed() {
            taken.write_all(b"+").unwrap();
            quiet_since = Instant::now();
        } else {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    let ended = limiter.mode_stats().ended;
    fs::write(env::var("ENDED").unwrap(), ended.to_string()).unwrap();
}

/// Units that it held then are not given to others until its lease ends, and count as spent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn process_that_is_killed_takes_no_more_with_it_than_it_held() {
    needs!(redis);
    let (server, folder) = (Server::start().await, tempfile::tempdir().unwrap());
    let file = |kind: &str, at: usize| folder.path().join(format!("{kind}{at}"));
    let start = |at| {
        let mut command = Command::new(env::current_exe().unwrap());
        command
            .args(["--ignored", "--exact", "takes_what_there_is"])
            .env("REDIS_URL", server.url())
            .env("TAKEN", file("taken", at))
            .env("ENDED", file("ended", at))
            .stdout(Stdio::null());
        command.spawn().unwrap()
    };
    let mut processes: Vec<_> = (0..4).map(start).collect();
    let taken = |at| fs::metadata(file("taken", at)).map_or(0, |file| file.len() as usize);
    eventually("a process in the midst of it", async || {
        (taken(0) > LIMIT / 20).then_some(())
    })
    .await;
    // A signal that nobody can catch.
    processes[0].kill().unwrap();
    for process in &mut processes[1..] {
        let ended = eventually("the others", async || process.try_wait().unwrap()).await;
        assert!(ended.success(), "{ended}");
    }
    let ended = |at| {
        let text = fs::read_to_string(file("ended", at)).unwrap();
        text.parse::<usize>().unwrap()
    };
    let ended: usize = (1..4).map(ended).sum();
    let taken: Vec<_> = (0..4).map(taken).collect();
    let together: usize = taken.iter().sum();
    println!("{taken:?}: {together} of {LIMIT}, and {ended} ended unspent");
    assert!(together <= LIMIT, "{taken:?}");
    let least = LIMIT - MOST_HELD as usize - ended;
    assert!(together >= least, "{taken:?}, {ended}");
    processes[0].wait().unwrap();
}
