//! A stand-in for Redis: its replies, and their times, are a function of the command.

use std::{fmt, sync::Arc};

use redis::{Arg, Cmd, Pipeline, RedisFuture, Value, aio::ConnectionLike};

/// A connection to it, for `RedisStoreBuilder::connection`.
#[derive(Clone)]
pub struct FakeServer(Arc<Reply>);

type Reply = dyn Fn(&[String]) -> RedisFuture<'static, Value> + Send + Sync;

impl FakeServer {
    /// `decide` gets the words of each `EVALSHA`. All other commands succeed.
    pub fn new(
        decide: impl Fn(&[String]) -> RedisFuture<'static, Value> + Send + Sync + 'static,
    ) -> Self {
        Self::replying(move |words| match words[0].as_str() {
            "EVALSHA" => decide(words),
            _ => Box::pin(async { Ok(Value::Okay) }),
        })
    }

    /// `reply` gets the words of each command.
    pub fn replying(
        reply: impl Fn(&[String]) -> RedisFuture<'static, Value> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(reply))
    }
}

fn text(word: &Arg<&[u8]>) -> String {
    match word {
        Arg::Simple(word) => String::from_utf8_lossy(word).into_owned(),
        _ => String::new(),
    }
}

impl ConnectionLike for FakeServer {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        let words: Vec<_> = command.args_iter().map(|word| text(&word)).collect();
        (self.0)(&words)
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        _: &'a Pipeline,
        _: usize,
        _: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        unreachable!("there is one command a call")
    }

    fn get_db(&self) -> i64 {
        0
    }
}

impl fmt::Debug for FakeServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FakeServer").finish_non_exhaustive()
    }
}
