//! Connection slots, with clients' addresses as the test chooses them.

use std::net::IpAddr;

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex},
    sync::Mutex,
    time::{Instant, timeout},
};
use tower_ratelimit::{Key, key::IpPrefix};

use super::*;

/// A listener that the test connects to.
struct Door(Mutex<mpsc::UnboundedReceiver<(DuplexStream, SocketAddr)>>);

impl Listener for Door {
    type Io = DuplexStream;

    async fn accept(&self) -> io::Result<(DuplexStream, SocketAddr)> {
        let next = self.0.lock().await.recv().await;
        match next {
            Some(connection) => Ok(connection),
            None => std::future::pending().await,
        }
    }

    fn waiting(self) -> Vec<(DuplexStream, SocketAddr)> {
        Vec::new()
    }

    fn shown(&self) -> String {
        "the door".to_owned()
    }
}

/// A server that answers `/` at once, and other paths when there is a permit.
struct Server {
    connect: mpsc::UnboundedSender<(DuplexStream, SocketAddr)>,
    answers: Arc<Semaphore>,
    stop: shutdown::Stop,
    slots: Arc<ConnectionSlots>,
}

const ALICE: &str = "203.0.113.7";
const BOB: &str = "198.51.100.9";

impl Server {
    fn start(most: usize, of_one: usize) -> Self {
        let (connect, connected) = mpsc::unbounded_channel();
        let (stop, stopped) = shutdown::stop();
        let answers = Arc::new(Semaphore::new(0));
        let gate = Arc::clone(&answers);
        let answer = move |request: Request<RequestBody>, _| {
            let gate = Arc::clone(&gate);
            async move {
                if request.uri().path() != "/" {
                    gate.acquire_owned().await.unwrap().forget();
                }
                let mut response = Response::new(Body::from("ok"));
                if request.uri().path() == "/tunnel" {
                    tokio::spawn(async {
                        let io = hyper::upgrade::on(request).await.unwrap();
                        TokioIo::new(io).read_u8().await
                    });
                    *response.body_mut() = Body::empty();
                    *response.status_mut() = http::StatusCode::SWITCHING_PROTOCOLS;
                }
                response
            }
        };
        let per_client = PerClient {
            most: of_one.try_into().unwrap(),
            key: Arc::new(|address| Some(IpPrefix::new().key(address))),
        };
        let slots = ConnectionSlots::new(most, Some(per_client));
        let limits = (ConnectionLimits::http(most), Some(Arc::clone(&slots)));
        let door = Door(Mutex::new(connected));
        tokio::spawn(serve(door, None, limits, answer, stopped));
        Self {
            connect,
            answers,
            stop,
            slots,
        }
    }

    /// The busy and the idle connections, and those that were closed for their client or for the room of others.
    fn counts(&self) -> (usize, usize, u64, u64) {
        let counts = self.slots.counts();
        (counts.busy, counts.idle, counts.refused, counts.evicted)
    }

    fn connect(&self, address: &str) -> DuplexStream {
        let (client, server) = duplex(1 << 12);
        let address: IpAddr = address.parse().unwrap();
        self.connect.send((server, (address, 1).into())).unwrap();
        client
    }

    /// A connection with a completed request.
    async fn served(&self, address: &str) -> DuplexStream {
        let mut client = self.connect(address);
        assert!(is_answered(&mut client, "/").await, "{address}");
        // Connections become idle in different milliseconds.
        sleep(Duration::from_millis(2)).await;
        client
    }
}

async fn call(client: &mut DuplexStream, path: &str) {
    let request = REQUEST.replace("/ ", &format!("{path} "));
    drop(client.write_all(request.as_bytes()).await);
}

/// Whether the response arrives within ten seconds, before the connection closes.
async fn gets_response(client: &mut DuplexStream) -> bool {
    let mut answer = Vec::new();
    let answered = async {
        while !answer.ends_with(b"ok") {
            match client.read_buf(&mut answer).await {
                Ok(0) | Err(_) => return false,
                Ok(_) => {}
            }
        }
        true
    };
    timeout(Duration::from_secs(10), answered).await == Ok(true)
}

async fn is_answered(client: &mut DuplexStream, path: &str) -> bool {
    call(client, path).await;
    gets_response(client).await
}

/// Whether the server closed the connection.
async fn is_closed(client: &mut DuplexStream) -> bool {
    let moment = Duration::from_millis(1);
    let read = timeout(moment, client.read(&mut [0])).await;
    matches!(read, Ok(Ok(0) | Err(_)))
}

#[tokio::test(start_paused = true)]
async fn one_more_of_a_client_is_closed_at_once() {
    let server = Server::start(100, 3);
    let mut kept = Vec::new();
    for address in [ALICE, ALICE, ALICE, BOB] {
        kept.push(server.served(address).await);
    }
    let mut fourth = server.connect(ALICE);
    assert!(is_closed(&mut fourth).await);
    assert_eq!(server.counts(), (0, 4, 1, 0));
    // A closed connection releases its slot.
    drop(kept.swap_remove(0));
    sleep(Duration::from_millis(1)).await;
    kept.push(server.served(ALICE).await);
    let mut another = server.connect("::ffff:203.0.113.7");
    assert!(is_closed(&mut another).await);
    for client in &mut kept {
        assert!(is_answered(client, "/").await);
    }
}

#[tokio::test(start_paused = true)]
async fn network_of_ipv6_is_one_client_and_loopback_none() {
    let server = Server::start(100, 2);
    let _kept = [
        server.served("2001:db8::1").await,
        server.served("2001:db8::2").await,
    ];
    let mut third = server.connect("2001:db8::3");
    assert!(is_closed(&mut third).await);
    let _other = server.served("2001:db8:0:1::1").await;
    let mut kept = Vec::new();
    for address in ["127.0.0.1", "::1", "::ffff:127.0.0.1"].repeat(4) {
        kept.push(server.served(address).await);
    }
}

#[tokio::test(start_paused = true)]
async fn newcomer_takes_the_place_of_the_longest_idle() {
    let server = Server::start(5, 100);
    let mut first = server.served(ALICE).await;
    let mut second = server.served(ALICE).await;
    let mut busy = server.served(ALICE).await;
    call(&mut busy, "/wait").await;
    let mut silent = server.connect(ALICE);
    let mut half = server.connect(ALICE);
    half.write_all(b"GET / HT").await.unwrap();
    sleep(Duration::from_secs(3)).await;
    // The first is no longer the longest idle.
    assert!(is_answered(&mut first, "/").await);

    let start = Instant::now();
    let _stranger = server.served(BOB).await;
    assert!(is_closed(&mut silent).await && !is_closed(&mut half).await);
    assert_eq!(server.counts(), (1, 4, 0, 1));
    let _stranger = server.served(BOB).await;
    assert!(is_closed(&mut half).await && !is_closed(&mut second).await);
    let _stranger = server.served(BOB).await;
    assert!(is_closed(&mut second).await && !is_closed(&mut first).await);
    let _stranger = server.served(BOB).await;
    assert!(is_closed(&mut first).await && !is_closed(&mut busy).await);
    // No connection waited for an idle timeout.
    assert!(start.elapsed() < Duration::from_secs(1));
    server.answers.add_permits(1);
    assert!(gets_response(&mut busy).await);
}

#[tokio::test(start_paused = true)]
async fn newcomers_do_not_close_each_other_before_their_requests() {
    let server = Server::start(2, 100);
    let _idle = [server.served(ALICE).await, server.served(ALICE).await];
    let mut slow = server.connect(BOB);
    sleep(Duration::from_secs(1)).await;
    // A served connection closes, not the newest one.
    let _stranger = server.served(BOB).await;
    assert!(is_answered(&mut slow, "/").await);
}

#[tokio::test(start_paused = true)]
async fn newcomer_waits_while_all_have_requests() {
    let server = Server::start(2, 100);
    let mut busy = [server.connect(ALICE), server.connect(ALICE)];
    for client in &mut busy {
        call(client, "/wait").await;
    }
    sleep(Duration::from_millis(1)).await;
    let mut newcomer = server.connect(BOB);
    assert!(!is_answered(&mut newcomer, "/").await && !is_closed(&mut newcomer).await);
    server.answers.add_permits(1);
    assert!(gets_response(&mut newcomer).await);
    // The other stays open.
    server.answers.add_permits(1);
    let [one, other] = &mut busy;
    assert!(gets_response(one).await || gets_response(other).await);
}

#[tokio::test(start_paused = true)]
async fn tunnel_keeps_its_slot() {
    let server = Server::start(1, 100);
    server.answers.add_permits(1);
    let mut tunnel = server.connect(ALICE);
    let request = REQUEST.replace("/ ", "/tunnel ");
    let request = request.replace("host", "connection: upgrade\r\nupgrade: websocket\r\nhost");
    tunnel.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        assert!(tunnel.read_buf(&mut answer).await.unwrap() > 0);
    }
    assert_eq!(server.counts(), (1, 0, 0, 0));
    let mut newcomer = server.connect(BOB);
    assert!(!is_answered(&mut newcomer, "/").await);
    assert!(!is_closed(&mut tunnel).await);
    tunnel.write_u8(b'a').await.unwrap();
    assert!(gets_response(&mut newcomer).await);
}

#[tokio::test(start_paused = true)]
async fn newcomer_that_waits_at_the_end_is_answered() {
    let server = Server::start(1, 100);
    let mut busy = server.connect(ALICE);
    call(&mut busy, "/wait").await;
    sleep(Duration::from_millis(1)).await;
    let mut newcomer = server.connect(BOB);
    call(&mut newcomer, "/").await;
    sleep(Duration::from_secs(1)).await;
    server.stop.now();
    assert!(gets_response(&mut newcomer).await);
    server.answers.add_permits(1);
    assert!(gets_response(&mut busy).await);
}

#[test]
fn a_key_is_counted_while_it_has_something() {
    let counts = Arc::new(KeyCounts::default());
    let enter = |key: u64| counts.enter(Key::from(key), 16);
    let mut all: Vec<_> = (0..16).filter_map(|_| enter(1)).collect();
    assert_eq!(all.len(), 16);
    assert!(enter(1).is_none() && enter(2).is_some());
    all.pop();
    assert!(enter(1).is_some() && enter(1).is_some());
    all.clear();
    assert!(counts.0.lock().unwrap().is_empty());
}
