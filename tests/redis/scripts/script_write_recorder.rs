//! Scripts that record what they wrote, and for how long.

use redis::{Cmd, Connection, Script, Value};
use testkit::servers::Server;

/// A connection for calls of [`Recorded`] scripts.
pub(crate) struct Calls(Connection);

/// A script whose reply is followed by its `SET`s, as texts.
pub(crate) struct Recorded(Script);

/// The outcome of a call.
#[derive(Debug, PartialEq, Clone)]
pub(crate) struct Outcome {
    /// The reply of each key; an error begins with `-`.
    pub(crate) replies: Vec<Vec<u8>>,
    /// The value written for each key, and its lifetime.
    pub(crate) writes: Vec<Option<Vec<u8>>>,
}

impl Recorded {
    pub(crate) fn new(code: &str) -> Self {
        Self(Script::new(&format!(
            "local sets, real = {{}}, redis
            local redis = {{ call = real.call, error_reply = real.error_reply }}
            function redis.pcall(name, key, value, px, lifetime)
                if name ~= 'SET' then return real.pcall(name, key) end
                assert(px == 'PX')
                sets[key] = value .. ' ' .. string.format('%.0f', lifetime)
                return real.pcall(name, key, value, px, lifetime)
            end
            local function script() {code}\nend
            local reply = script()
            if type(reply) == 'table' and reply.err then reply = '-' .. reply.err end
            if type(reply) ~= 'table' then reply = {{ reply }} end
            for at, key in ipairs(KEYS) do reply[#KEYS + at] = sets[key] or false end
            return reply"
        )))
    }
}

impl Calls {
    pub(crate) fn new(server: &Server) -> Self {
        let client = redis::Client::open(server.url()).unwrap();
        Self(client.get_connection().unwrap())
    }

    pub(crate) fn run(&mut self, words: &[&str]) {
        let mut command = Cmd::new();
        for word in words {
            command.arg(word);
        }
        command.exec(&mut self.0).unwrap();
    }

    pub(crate) fn set(&mut self, key: &str, value: &[u8]) {
        let mut command = redis::cmd("SET");
        command.arg(key).arg(value).exec(&mut self.0).unwrap();
    }

    pub(crate) fn call(
        &mut self,
        script: &Recorded,
        keys: &[String],
        arguments: &[String],
    ) -> Outcome {
        let mut call = script.0.prepare_invoke();
        for key in keys {
            call.key(key);
        }
        for argument in arguments {
            call.arg(argument);
        }
        let reply: Vec<Value> = call.invoke(&mut self.0).unwrap();
        assert_eq!(reply.len(), 2 * keys.len(), "{reply:?}");
        let text = |value: &Value| match value {
            Value::BulkString(text) => Some(text.clone()),
            Value::Nil => None,
            other => panic!("{other:?}"),
        };
        let (replies, writes) = reply.split_at(keys.len());
        Outcome {
            replies: replies.iter().map(|reply| text(reply).unwrap()).collect(),
            writes: writes.iter().map(text).collect(),
        }
    }
}
