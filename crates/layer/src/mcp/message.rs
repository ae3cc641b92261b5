//! The messages of JSON-RPC in the body of a request.

use std::{fmt, sync::Arc};

use serde::{
    Deserializer as _,
    de::{Error as _, IgnoredAny, MapAccess, Visitor},
};
use serde_json::{Deserializer, value::RawValue};

use tower_ratelimit_core::error::KeyError;

use super::call::{BadInput, CallFields, checked_method, checked_name, name_member};

/// The most messages of a batch.
const MOST_MESSAGES: usize = 64;

/// A longer id is not sent back.
const LONGEST_ID: usize = 256;

/// A call in a body.
#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) method: String,
    pub(super) name: Option<String>,
}

/// The calls in the body of a request, in the request's extensions.
#[derive(Debug, Clone, Default)]
pub(super) struct Calls {
    pub(super) calls: Arc<[Call]>,
    /// The id of the only message, as it is in the body.
    pub(super) id: Option<Arc<str>>,
    /// The index of the call of a batch that is charged now.
    pub(super) at: Option<usize>,
}

impl Calls {
    /// Reads a body: one message or a batch. On an error the id is kept, if there is one.
    pub(super) fn read(&mut self, body: &[u8]) -> Result<(), BadInput> {
        let text = str::from_utf8(body).or(Err(NO_JSON))?;
        if !text.trim_ascii_start().starts_with('[') {
            self.calls = message(text, &mut self.id)?.into_iter().collect();
            return Ok(());
        }
        let batch: Vec<&RawValue> = serde_json::from_str(text).or(Err(NO_JSON))?;
        if batch.is_empty() || batch.len() > MOST_MESSAGES {
            return Err(BadInput("a batch has no message or more than 64"));
        }
        let calls = batch
            .iter()
            .map(|raw| message(raw.get(), &mut None).transpose());
        self.calls = calls.flatten().collect::<Result<_, _>>()?;
        Ok(())
    }

    /// The call that is charged now.
    pub(super) fn charged(&self) -> Result<&Call, KeyError> {
        match &*self.calls {
            [] => Err(KeyError::absent()),
            [only] => Ok(only),
            calls => {
                let call = self.at.and_then(|at| calls.get(at));
                call.ok_or(KeyError::ambiguous())
            }
        }
    }

    /// Compares the calls with the fields of the header, as far as there are any.
    pub(super) fn compare(&self, fields: &CallFields<'_>) -> Result<(), BadInput> {
        let mut calls = self.calls.iter();
        let is_said = |call: &Call| {
            let of_name = |(field, own): (_, &String)| field == own;
            let names = fields.name.as_deref().zip(call.name.as_ref());
            let method = fields.method.as_deref();
            method.is_none_or(|method| method == call.method) && names.is_none_or(of_name)
        };
        let is_response = self.calls.is_empty() && fields.method.is_some();
        if is_response || !calls.all(is_said) {
            return Err(BadInput("the header differs from the body"));
        }
        Ok(())
    }
}

const NO_JSON: BadInput = BadInput("the body is not a message of JSON-RPC");

/// The call of a message; `None` for a response.
fn message(text: &str, id: &mut Option<Arc<str>>) -> Result<Option<Call>, BadInput> {
    let [method, params, its_id, result, error] =
        members(text, ["method", "params", "id", "result", "error"])?;
    let its_id = its_id.map(RawValue::get);
    let is_id = |id: &&str| id.len() <= LONGEST_ID && !id.starts_with(['{', '[', 't', 'f']);
    *id = its_id.filter(is_id).map(Arc::from);
    let Some(method) = method else {
        let is_response = result.or(error).is_some();
        return if is_response { Ok(None) } else { Err(NO_JSON) };
    };
    let method = checked_method(string(method)?.into())?.into_owned();
    let name = name_member(&method).map(|member| {
        let params = params.ok_or(NO_JSON)?.get();
        let [name, uri] = members(params, ["name", "uri"])?;
        let name = if member == "name" { name } else { uri };
        checked_name(string(name.ok_or(NO_JSON)?)?.into()).map(Into::into)
    });
    Ok(Some(Call {
        name: name.transpose()?,
        method,
    }))
}

fn string(raw: &RawValue) -> Result<String, BadInput> {
    serde_json::from_str(raw.get()).or(Err(NO_JSON))
}

/// The members of an object with these names.
fn members<'t, const N: usize>(
    text: &'t str,
    names: [&str; N],
) -> Result<[Option<&'t RawValue>; N], BadInput> {
    let mut reader = Deserializer::from_str(text);
    let found = reader.deserialize_map(Members(names)).or(Err(NO_JSON))?;
    reader.end().or(Err(NO_JSON))?;
    Ok(found)
}

/// Refuses an object that has one of these members twice, or in another case: servers differ in the one that they read,
/// and some ignore case.
struct Members<'n, const N: usize>([&'n str; N]);

impl<'t, const N: usize> Visitor<'t> for Members<'_, N> {
    type Value = [Option<&'t RawValue>; N];

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'t>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = [None; N];
        while let Some(name) = map.next_key::<String>()? {
            let upper = name.to_uppercase();
            let mut known = self.0.iter();
            match known.position(|known| known.eq_ignore_ascii_case(&upper)) {
                None => drop(map.next_value::<IgnoredAny>()?),
                Some(at) if self.0[at] == name && found[at].is_none() => {
                    found[at] = Some(map.next_value()?);
                }
                Some(_) => return Err(A::Error::custom("a member twice")),
            }
        }
        Ok(found)
    }
}
