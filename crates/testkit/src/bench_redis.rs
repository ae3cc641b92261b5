//! A `redis-server` of a bench's own.

use std::{
    process::{Child, Command, Stdio},
    time::Duration,
};

use redis::aio::MultiplexedConnection;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// It ends when this is dropped.
pub struct Server {
    process: Child,
    port: u16,
}

impl Server {
    pub async fn start() -> Result<Self> {
        let port = std::net::TcpListener::bind("127.0.0.1:0")?
            .local_addr()?
            .port();
        let program = std::env::var_os("REDIS_SERVER").unwrap_or_else(|| "redis-server".into());
        let process = Command::new(program)
            .args(["--port", &port.to_string(), "--save", ""])
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| format!("redis-server is needed: {error}"))?;
        let server = Self { process, port };
        for _ in 0..100 {
            if server.connection().await.is_ok() {
                return Ok(server);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Err("redis-server does not answer".into())
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub async fn connection(&self) -> Result<MultiplexedConnection> {
        let client = redis::Client::open(self.url())?;
        Ok(client.get_multiplexed_async_connection().await?)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// How many scripts the server has run.
    pub async fn scripts(&self) -> Result<u64> {
        self.calls("evalsha").await
    }

    /// How many scripts the server was given.
    pub async fn loads(&self) -> Result<u64> {
        self.calls("script|load").await
    }

    /// The microseconds that the server has run scripts.
    pub async fn script_micros(&self) -> Result<u64> {
        self.stat("evalsha", "usec").await
    }

    async fn calls(&self, command: &str) -> Result<u64> {
        self.stat(command, "calls").await
    }

    async fn stat(&self, command: &str, name: &str) -> Result<u64> {
        let mut connection = self.connection().await?;
        let info: String = redis::cmd("INFO")
            .arg("commandstats")
            .query_async(&mut connection)
            .await?;
        let command = format!("cmdstat_{command}:");
        let line = info.lines().find_map(|line| line.strip_prefix(&*command));
        let mut numbers = line.into_iter().flat_map(|line| line.split(','));
        let number = numbers.find_map(|number| number.strip_prefix(name)?.strip_prefix('='));
        Ok(number.map_or(Ok(0), str::parse)?)
    }

    pub fn signal(&self, signal: &str) -> Result<()> {
        let id = self.process.id().to_string();
        Command::new("kill").args([signal, &id]).status()?;
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
