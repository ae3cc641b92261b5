//! A TCP proxy that fails on demand.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::{mpsc, oneshot, watch},
    task::{JoinHandle, JoinSet},
    time::Instant,
};

use crate::child_processes::free_port;

/// The treatment of bytes by a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    Forward,
    /// Every piece is passed on so long after it came, in either direction: a round trip is two of
    /// these, however much is under way.
    Delay(Duration),
    /// Connections open and stay open, and nothing comes through. What was sent meanwhile comes
    /// through when the flow resumes, as TCP would send it again.
    BlackHole,
    /// Requests come through and are served, their responses don't until the flow resumes.
    BlackHoleResponses,
}

/// Forwards connections to a server, as long as it lives. It runs on the test's runtime.
#[derive(Debug)]
pub struct Proxy {
    server: SocketAddr,
    port: u16,
    flow: watch::Sender<Flow>,
    accepted: Arc<AtomicUsize>,
    task: Option<Task>,
}

impl Proxy {
    /// Opens it on a free port of 127.0.0.1.
    pub async fn before(server: SocketAddr) -> Self {
        let mut proxy = Self {
            server,
            port: free_port(),
            flow: watch::Sender::new(Flow::Forward),
            accepted: Arc::default(),
            task: None,
        };
        proxy.accept().await;
        proxy
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Changes the flow of all connections, open ones too.
    pub fn set(&self, flow: Flow) {
        self.flow.send_replace(flow);
    }

    /// Cuts all connections. New ones are taken.
    pub async fn cut(&mut self) {
        self.refuse().await;
        self.accept().await;
    }

    /// Cuts all connections and refuses new ones until [`accept`](Self::accept).
    pub async fn refuse(&mut self) {
        let Some(Task { stop, ended }) = self.task.take() else {
            return;
        };
        drop(stop);
        ended.await.expect("the proxy's task");
    }

    /// Takes connections again, on the same port.
    pub async fn accept(&mut self) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, self.port)).await;
        let listener = listener.expect("the proxy's port");
        let (stop, stopped) = oneshot::channel();
        let connections = Connections {
            server: self.server,
            flow: self.flow.clone(),
            accepted: self.accepted.clone(),
        };
        let ended = tokio::spawn(connections.serve(listener, stopped));
        self.task = Some(Task { stop, ended });
    }

    /// How many connections it has taken so far.
    pub fn connections(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }
}

/// A task that closes the port and all connections, and ends, when `stop` is dropped.
#[derive(Debug)]
struct Task {
    stop: oneshot::Sender<()>,
    ended: JoinHandle<()>,
}

struct Connections {
    server: SocketAddr,
    flow: watch::Sender<Flow>,
    accepted: Arc<AtomicUsize>,
}

impl Connections {
    async fn serve(self, listener: TcpListener, mut stopped: oneshot::Receiver<()>) {
        let mut open = JoinSet::new();
        loop {
            let client = tokio::select! {
                _ = &mut stopped => break,
                client = listener.accept() => client.expect("a connection").0,
            };
            self.accepted.fetch_add(1, Ordering::SeqCst);
            open.spawn(connect(client, self.server, self.flow.subscribe()));
        }
        drop(listener);
        open.shutdown().await;
    }
}

async fn connect(
    client: TcpStream,
    server: SocketAddr,
    flow: watch::Receiver<Flow>,
) -> io::Result<()> {
    let server = TcpStream::connect(server).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    // Either end that closes closes both.
    tokio::select! {
        ended = pump(from_client, to_server, flow.clone(), Direction::Request) => ended,
        ended = pump(from_server, to_client, flow, Direction::Response) => ended,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Request,
    Response,
}

/// Bytes that came, and the earliest time to pass them on.
type Piece = (Instant, Vec<u8>);

async fn pump(
    from: impl AsyncRead + Unpin,
    to: impl AsyncWrite + Unpin,
    flow: watch::Receiver<Flow>,
    direction: Direction,
) -> io::Result<()> {
    let (line, pieces) = mpsc::channel(64 * 1024);
    let (taken, passed) = tokio::join!(
        take_in(from, line, flow.clone()),
        pass_on(pieces, to, flow, direction)
    );
    taken.and(passed)
}

/// An end of the connection is an empty piece.
async fn take_in(
    mut from: impl AsyncRead + Unpin,
    line: mpsc::Sender<Piece>,
    flow: watch::Receiver<Flow>,
) -> io::Result<()> {
    let mut piece = vec![0; 16 * 1024];
    loop {
        let length = from.read(&mut piece).await?;
        let delay = match *flow.borrow() {
            Flow::Delay(time) => time,
            _ => Duration::ZERO,
        };
        let piece = (Instant::now() + delay, piece[..length].to_vec());
        if line.send(piece).await.is_err() || length == 0 {
            return Ok(());
        }
    }
}

async fn pass_on(
    mut pieces: mpsc::Receiver<Piece>,
    mut to: impl AsyncWrite + Unpin,
    mut flow: watch::Receiver<Flow>,
    direction: Direction,
) -> io::Result<()> {
    while let Some((due, piece)) = pieces.recv().await {
        // Even a sleep that is over takes a millisecond.
        if due > Instant::now() {
            tokio::time::sleep_until(due).await;
        }
        if flow
            .wait_for(|flow| passes(*flow, direction))
            .await
            .is_err()
        {
            return Ok(());
        }
        if piece.is_empty() {
            return to.shutdown().await;
        }
        to.write_all(&piece).await?;
    }
    Ok(())
}

fn passes(flow: Flow, direction: Direction) -> bool {
    match flow {
        Flow::Forward | Flow::Delay(_) => true,
        Flow::BlackHole => false,
        Flow::BlackHoleResponses => direction == Direction::Request,
    }
}
