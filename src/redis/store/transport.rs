//! Transports: the kinds of open connections.

use std::{fmt, sync::Arc};

use futures_util::future::BoxFuture;
use redis::{
    Cmd, RedisResult, Value,
    aio::{ConnectionLike, MultiplexedConnection},
};

/// An open connection, shared by all calls.
#[derive(Clone)]
pub(super) enum Transport {
    Node(MultiplexedConnection),
    Given(Arc<dyn Given>),
}

/// A connection that was handed in.
pub(super) trait Given: Send + Sync {
    fn send<'a>(&'a self, command: &'a Cmd) -> BoxFuture<'a, RedisResult<Value>>;
}

impl<C: ConnectionLike + Clone + Send + Sync + 'static> Given for C {
    fn send<'a>(&'a self, command: &'a Cmd) -> BoxFuture<'a, RedisResult<Value>> {
        let mut connection = self.clone();
        Box::pin(async move { command.query_async(&mut connection).await })
    }
}

impl Transport {
    pub(super) async fn send(&self, command: &Cmd) -> RedisResult<Value> {
        match self {
            Self::Node(connection) => command.query_async(&mut connection.clone()).await,
            Self::Given(connection) => connection.send(command).await,
        }
    }

    pub(super) const fn is_node(&self) -> bool {
        matches!(self, Self::Node(_))
    }

    /// Sends a command for a key whose slot is moving to this server.
    pub(super) async fn send_asking(&self, command: &Cmd) -> RedisResult<Value> {
        let Self::Node(connection) = self else {
            return self.send(command).await;
        };
        let mut both = redis::pipe();
        both.cmd("ASKING").add_command(command.clone());
        let mut connection = connection.clone();
        let answers = connection.send_packed_commands(&both, 0, 2).await?;
        let mut answer = Ok(Value::Nil);
        for each in answers {
            answer = each.extract_error();
        }
        answer
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Node(_) => "Node",
            Self::Given(_) => "Given",
        })
    }
}
