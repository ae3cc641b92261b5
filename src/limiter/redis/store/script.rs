use std::{fmt, sync::Arc};

use redis::{Cmd, ErrorKind, RedisResult, ServerErrorKind, ToRedisArgs, Value};

use super::wire::Wire;

/// A Lua script, known to the server by its digest.
#[derive(Clone)]
pub(in crate::limiter) struct Script {
    code: Arc<str>,
    digest: Arc<str>,
}

impl Script {
    pub(in crate::limiter) fn new(code: &str) -> Self {
        Self {
            code: code.into(),
            digest: redis::Script::new(code).get_hash().into(),
        }
    }

    /// The command that runs it on the value of `key`.
    pub(super) fn call<A: ToRedisArgs>(&self, key: &[u8], args: &[A]) -> Cmd {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&*self.digest).arg(1).arg(key);
        for arg in args {
            command.arg(arg);
        }
        command
    }

    /// Runs `call`. A server that does not know the script, because it was restarted or its
    /// scripts were flushed, is given it and asked once more: the first call did nothing.
    pub(super) async fn run(&self, wire: &Wire, call: &Cmd) -> RedisResult<Value> {
        match wire.send(call).await {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                wire.send_to_all(redis::cmd("SCRIPT").arg("LOAD").arg(&*self.code))
                    .await?;
                wire.send(call).await
            }
            outcome => outcome,
        }
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Script").field(&self.digest).finish()
    }
}
