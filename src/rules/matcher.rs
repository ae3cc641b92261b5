//! The match of a rule: all fields must fit, and of a list one value.

use std::{borrow::Cow, fmt, net::IpAddr, sync::Arc};

use http::{HeaderMap, HeaderName, HeaderValue, Method, request::Parts};
use ipnet::IpNet;
use tower_ratelimit_rulefile::{
    pattern::{Glob, HostPattern, InDoubt, PathPattern},
    weekly_time_window::TimeWindow,
};

use super::request::{NamedHost, RequestView, hosts};
use crate::{
    clock::Timestamp,
    key::other_readings::{lines_in_any_spelling, parameters, parameters_by_semicolons},
};

/// The application's function that decides whether a request is authenticated.
#[derive(Clone)]
pub(super) struct Authenticator(pub(super) Arc<dyn Fn(&Parts) -> bool + Send + Sync>);

impl fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Authenticator")
    }
}

/// The fields of a match. A missing field fits every request.
#[derive(Debug, Clone, Default)]
pub(super) struct Matcher {
    pub(super) methods: Option<Box<[Method]>>,
    pub(super) paths: Option<Box<[PathPattern]>>,
    pub(super) routes: Option<Box<[Box<str>]>>,
    pub(super) hosts: Option<Box<[HostPattern]>>,
    pub(super) clients: Option<Box<[IpNet]>>,
    pub(super) headers: Box<[HeaderCondition]>,
    pub(super) query: Box<[(Box<str>, Pattern)]>,
    pub(super) authenticated: Option<(bool, Authenticator)>,
    pub(super) times: Option<Box<[TimeWindow]>>,
    pub(super) not: Option<Box<Self>>,
    /// Whether the match has a field other than method and path.
    pub(super) has_more_fields: bool,
    /// Whether the match has the client's address, also within `not`.
    pub(super) needs_client: bool,
}

/// The condition on a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HeaderCondition {
    pub(super) name: HeaderName,
    pub(super) pattern: Pattern,
    /// Whether the words of its values have no case by their definition.
    pub(super) has_caseless_words: bool,
}

impl HeaderCondition {
    /// Whether a header fits. Servers may read other names as this one, and words in any case.
    fn fits(&self, headers: &HeaderMap, in_doubt: InDoubt) -> bool {
        let any_case = self.has_caseless_words && in_doubt == InDoubt::Fits;
        let lines = headers
            .get_all(&self.name)
            .iter()
            .map(HeaderValue::as_bytes);
        in_doubt.of_two(self.pattern.fits(lines, in_doubt, any_case), || {
            let lines = lines_in_any_spelling(headers, &self.name);
            self.pattern.fits(lines, in_doubt, any_case)
        })
    }
}

/// The condition on the values of a header or a query parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Pattern {
    Present,
    Absent,
    OneOf(Box<[Glob]>),
}

impl Pattern {
    fn fits(
        &self,
        mut values: impl Iterator<Item: AsRef<[u8]>>,
        in_doubt: InDoubt,
        any_case: bool,
    ) -> bool {
        match self {
            Self::Present => values.next().is_some(),
            Self::Absent => values.next().is_none(),
            Self::OneOf(globs) => {
                let matches = if any_case {
                    Glob::matches_in_any_case
                } else {
                    Glob::matches
                };
                any_or_all(in_doubt, values, |value| {
                    let value = value.as_ref().trim_ascii();
                    globs.iter().any(|glob| matches(glob, value))
                })
            }
        }
    }
}

/// Whether values fit when the application may read any one of them: one is enough for a limit, and an exemption needs
/// all.
#[inline(always)]
fn any_or_all<T>(
    in_doubt: InDoubt,
    mut values: impl Iterator<Item = T>,
    fits: impl Fn(T) -> bool,
) -> bool {
    match in_doubt {
        InDoubt::Fits => values.any(fits),
        InDoubt::Differs => values.next().is_some_and(&fits) && values.all(fits),
    }
}

/// Whether an instant is in one of these times.
pub(super) fn contains(times: &[TimeWindow], now: Timestamp) -> bool {
    let minutes = now.as_micros() / 60_000_000;
    times.iter().any(|time| time.contains(minutes))
}

impl Matcher {
    /// The matcher of these fields, with the flags that follow from them.
    pub(super) fn new(mut fields: Self) -> Self {
        fields.has_more_fields = fields.routes.is_some()
            || fields.hosts.is_some()
            || fields.clients.is_some()
            || !fields.headers.is_empty()
            || !fields.query.is_empty()
            || fields.authenticated.is_some()
            || fields.times.is_some()
            || fields.not.is_some();
        let negated = fields.not.as_ref();
        fields.needs_client =
            fields.clients.is_some() || negated.is_some_and(|not| not.needs_client);
        fields
    }

    /// Compares a request.
    ///
    /// # Errors
    ///
    /// The first field that does not fit.
    #[inline(always)]
    pub(super) fn check(
        &self,
        view: &RequestView<'_>,
        in_doubt: InDoubt,
    ) -> Result<(), &'static str> {
        self.check_line(view, in_doubt)?;
        if self.has_more_fields {
            self.check_more(view, in_doubt)
        } else {
            Ok(())
        }
    }

    /// Compares method and path, the only fields of most rules.
    // Inlined as the rest of the loop over all rules: a call for each took 27 instructions.
    #[inline(always)]
    fn check_line(&self, view: &RequestView<'_>, in_doubt: InDoubt) -> Result<(), &'static str> {
        if !self.method_fits(view, in_doubt) {
            let differs = !self.method_fits(view, InDoubt::Fits);
            return Err(if differs {
                "method"
            } else {
                "method's spelling"
            });
        }
        let Some(paths) = &self.paths else {
            return Ok(());
        };
        let fits = |in_doubt| paths.iter().any(|path| path.fits(&view.path, in_doubt));
        if fits(in_doubt) {
            Ok(())
        } else if fits(InDoubt::Fits) {
            Err("path's spelling")
        } else {
            Err("path")
        }
    }

    #[inline(never)]
    fn check_more(&self, view: &RequestView<'_>, in_doubt: InDoubt) -> Result<(), &'static str> {
        let of = |fits: bool, field: &'static str| if fits { Ok(()) } else { Err(field) };
        if let Some(routes) = &self.routes {
            let route = view.route();
            of(routes.iter().any(|known| Some(&**known) == route), "route")?;
        }
        if let Some(patterns) = &self.hosts {
            of(hosts_fit(patterns, view.parts, in_doubt), "host")?;
        }
        for header in &self.headers {
            of(header.fits(&view.parts.headers, in_doubt), "header")?;
        }
        for (name, pattern) in &self.query {
            of(query_fits(name, pattern, view.parts, in_doubt), "query")?;
        }
        self.check_circumstances(view, in_doubt)?;
        match &self.not {
            Some(not) => of(not.check(view, in_doubt.negated()).is_err(), "not"),
            None => Ok(()),
        }
    }

    /// Compares the fields that are not in the request's head: client, authentication and time.
    fn check_circumstances(
        &self,
        view: &RequestView<'_>,
        in_doubt: InDoubt,
    ) -> Result<(), &'static str> {
        let of = |fits: bool, field: &'static str| if fits { Ok(()) } else { Err(field) };
        if let Some(networks) = &self.clients {
            let fits = |client| in_one(client, networks);
            let fits = match in_doubt {
                InDoubt::Fits => view.client().map_or(true, fits),
                InDoubt::Differs => view.certain_client().is_some_and(fits),
            };
            of(fits, "client")?;
        }
        if let Some((wanted, authenticator)) = &self.authenticated {
            of(authenticator.0(view.parts) == *wanted, "authenticated")?;
        }
        match &self.times {
            Some(times) => of(contains(times, view.now), "time"),
            None => Ok(()),
        }
    }

    pub(super) fn needs_time(&self) -> bool {
        let negated = self.not.as_ref();
        self.times.is_some() || negated.is_some_and(|not| not.needs_time())
    }

    /// Whether the method fits. The methods of rules are in upper case.
    fn method_fits(&self, view: &RequestView<'_>, in_doubt: InDoubt) -> bool {
        let is_certain = in_doubt == InDoubt::Fits || view.is_method_certain();
        let known = self.methods.as_ref();
        known.is_none_or(|known| is_certain && known.contains(view.method()))
    }
}

/// Compares hosts. Not inlined, since rules without a host would pay for its stack.
#[inline(never)]
fn hosts_fit(patterns: &[HostPattern], parts: &Parts, in_doubt: InDoubt) -> bool {
    any_or_all(in_doubt, hosts(parts), |host| {
        host_fits(patterns, host, in_doubt)
    })
}

/// Whether a host of the request fits. A server may read an unreadable one as any host.
fn host_fits(patterns: &[HostPattern], host: NamedHost<'_>, in_doubt: InDoubt) -> bool {
    match host {
        NamedHost::Known(host) => patterns.iter().any(|pattern| pattern.matches(host)),
        NamedHost::Empty => false,
        NamedHost::Unreadable => in_doubt == InDoubt::Fits,
    }
}

/// Whether a query parameter fits. Some servers also end a parameter at `;`.
fn query_fits(name: &str, pattern: &Pattern, parts: &Parts, in_doubt: InDoubt) -> bool {
    let query = parts.uri.query().unwrap_or_default();
    let of_name =
        |(key, value): (Cow<'_, str>, Cow<'_, str>)| (*key == *name).then(|| value.into_owned());
    let values = parameters(query).filter_map(of_name);
    let fits = pattern.fits(values, in_doubt, false);
    match parameters_by_semicolons(query) {
        None => fits,
        Some(others) => in_doubt.of_two(fits, || {
            pattern.fits(others.filter_map(of_name), in_doubt, false)
        }),
    }
}

fn in_one(client: IpAddr, networks: &[IpNet]) -> bool {
    networks.iter().any(|network| network.contains(&client))
}
