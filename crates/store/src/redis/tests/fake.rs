//! A connection whose behaviour a test selects.

use std::{
    future::pending,
    io,
    sync::{Arc, Mutex},
    time::Duration,
};

use redis::{
    Arg, Cmd, Pipeline, RedisFuture, RedisResult, Value, aio::ConnectionLike, parse_redis_value,
};

use crate::redis::{RedisStore, RedisStoreBuilder};

/// A connection that behaves as a test selects, and records the commands sent.
#[derive(Debug, Clone, Default)]
pub(super) struct Fake {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    mood: Mood,
    scripts: usize,
    sent: Vec<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) enum Mood {
    #[default]
    Answer,
    Hang,
    /// Every command fails: the connection has ended.
    Broken,
    /// Responds after this time.
    Slow(Duration),
    /// Responds with this error, such as `OOM no memory`.
    Error(&'static str),
    /// Responds to scripts with this error, and to other commands normally.
    ScriptError(&'static str),
    /// Panics when a script is loaded.
    PanicAtLoad,
}

impl Fake {
    pub(super) fn store(&self) -> RedisStore {
        self.with(RedisStore::builder())
    }

    pub(super) fn with(&self, builder: RedisStoreBuilder) -> RedisStore {
        builder.connection(self.clone()).unwrap()
    }

    pub(super) fn set(&self, mood: Mood) {
        self.state.lock().unwrap().mood = mood;
    }

    pub(super) fn forget_scripts(&self) {
        self.state.lock().unwrap().scripts = 0;
    }

    /// Takes the names of the commands that were sent since the last call.
    pub(super) fn sent(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().unwrap().sent)
    }

    fn answer(&self, command: &Cmd) -> Option<RedisResult<Value>> {
        let mut args = command.args_iter();
        let Some(Arg::Simple(name)) = args.next() else {
            panic!("a command without a name");
        };
        let name = String::from_utf8(name.to_vec()).unwrap();
        let mut state = self.state.lock().unwrap();
        state.sent.push(name.clone());
        let is_script = name == "EVALSHA";
        match state.mood {
            Mood::Hang => None,
            Mood::Broken => Some(Err(io::Error::from(io::ErrorKind::BrokenPipe).into())),
            Mood::Error(text) => Some(error(text)),
            Mood::ScriptError(text) if is_script => Some(error(text)),
            _ if name == "SCRIPT" => {
                state.scripts += 1;
                Some(Ok(Value::Okay))
            }
            _ if is_script && state.scripts == 0 => Some(error("NOSCRIPT No matching script.")),
            _ => Some(Ok(Value::Okay)),
        }
    }
}

fn error(text: &str) -> RedisResult<Value> {
    parse_redis_value(format!("-{text}\r\n").as_bytes())
}

impl ConnectionLike for Fake {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        let answer = self.answer(command);
        let mood = self.state.lock().unwrap().mood;
        let is_load = matches!(command.args_iter().next(), Some(Arg::Simple(b"SCRIPT")));
        Box::pin(async move {
            if let Mood::Slow(duration) = mood {
                tokio::time::sleep(duration).await;
            }
            match answer {
                Some(_) if mood == Mood::PanicAtLoad && is_load => panic!("a load"),
                Some(answer) => answer,
                None => pending().await,
            }
        })
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        _: &'a Pipeline,
        _: usize,
        _: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        panic!("no pipelines are sent")
    }

    fn get_db(&self) -> i64 {
        0
    }
}
