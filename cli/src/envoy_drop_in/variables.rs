//! Environment variables, parsed as by the reference.

use std::{collections::BTreeMap, env, str::FromStr, time::Duration};

use crate::common_options::time;

/// The variables with a value; empty ones are absent.
#[derive(Debug)]
pub(super) struct Variables(BTreeMap<String, String>);

impl Variables {
    pub(super) fn of_process() -> Self {
        let variables = env::vars_os().filter_map(|(name, value)| {
            let texts = (name.into_string().ok()?, value.into_string().ok()?);
            Some(texts).filter(|(_, value)| !value.is_empty())
        });
        Self(variables.collect())
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// The variables with this prefix.
    pub(super) fn beginning_with(&self, prefix: &str) -> impl Iterator<Item = &str> {
        let names = self.0.keys().map(String::as_str);
        names.filter(move |name| name.starts_with(prefix))
    }

    pub(super) fn parsed<T: FromStr>(&self, name: &str, kind: &str) -> Result<Option<T>, String> {
        let parsed = self.text(name).map(|text| {
            text.parse()
                .map_err(|_| format!("{name}={text} is not {kind}"))
        });
        parsed.transpose()
    }

    /// False if absent.
    pub(super) fn truth(&self, name: &str) -> Result<bool, String> {
        match self.text(name) {
            None | Some("0" | "f" | "F" | "false" | "False" | "FALSE") => Ok(false),
            Some("1" | "t" | "T" | "true" | "True" | "TRUE") => Ok(true),
            Some(other) => Err(format!("{name}={other} is neither true nor false")),
        }
    }

    pub(super) fn time(&self, name: &str) -> Result<Option<Duration>, String> {
        let read = self.text(name).map(|text| {
            time(text).map_err(|error| format!("{name}={text} is no time such as 150ms: {error}"))
        });
        read.transpose()
    }
}

#[cfg(test)]
impl From<&[(&str, &str)]> for Variables {
    fn from(pairs: &[(&str, &str)]) -> Self {
        let pairs = pairs.iter().filter(|(_, value)| !value.is_empty());
        let owned = pairs.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Self(owned.collect())
    }
}
