//! The match of a rule: all fields have to fit, and of a list one value.

use std::{fmt, net::IpAddr, sync::Arc};

use http::{HeaderName, Method, request::Parts};
use ipnet::IpNet;

use super::{
    pattern::{Glob, HostPattern, InDoubt, NamedHost, PathPattern, hosts},
    request::RequestView,
    time::TimeWindow,
};

/// Something that the application says of a request.
#[derive(Clone)]
pub(super) struct Authenticator(pub(super) Arc<dyn Fn(&Parts) -> bool + Send + Sync>);

impl fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Authenticator")
    }
}

/// The fields of a match that were said. None that was not said is looked at.
#[derive(Debug, Clone, Default)]
pub(super) struct Matcher {
    pub(super) methods: Option<Box<[Method]>>,
    pub(super) paths: Option<Box<[PathPattern]>>,
    pub(super) routes: Option<Box<[Box<str>]>>,
    pub(super) hosts: Option<Box<[HostPattern]>>,
    pub(super) clients: Option<Box<[IpNet]>>,
    pub(super) headers: Box<[(HeaderName, Pattern)]>,
    pub(super) query: Box<[(Box<str>, Pattern)]>,
    pub(super) authenticated: Option<(bool, Authenticator)>,
    pub(super) times: Option<Box<[TimeWindow]>>,
    pub(super) not: Option<Box<Self>>,
    /// Whether any field but the method and the path was said.
    pub(super) says_more: bool,
    /// Whether the client's address was.
    pub(super) asks_the_client: bool,
}

/// What a header or a query parameter has to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Pattern {
    Present,
    Absent,
    OneOf(Box<[Glob]>),
}

impl Pattern {
    fn fits(&self, mut values: impl Iterator<Item: AsRef<[u8]>>, in_doubt: InDoubt) -> bool {
        match self {
            Self::Present => values.next().is_some(),
            Self::Absent => values.next().is_none(),
            Self::OneOf(globs) => in_doubt.of_several(values, |value| {
                let value = value.as_ref().trim_ascii();
                globs.iter().any(|glob| glob.matches(value))
            }),
        }
    }
}

impl InDoubt {
    /// Whether values fit, of which the application may read any.
    #[inline(always)]
    fn of_several<T>(self, mut values: impl Iterator<Item = T>, fits: impl Fn(T) -> bool) -> bool {
        match self {
            Self::Fits => values.any(fits),
            Self::Differs => values.next().is_some_and(&fits) && values.all(fits),
        }
    }
}

impl Matcher {
    /// The matcher of fields that are all set, or none.
    pub(super) fn new(mut fields: Self) -> Self {
        fields.says_more = fields.routes.is_some()
            || fields.hosts.is_some()
            || fields.clients.is_some()
            || !fields.headers.is_empty()
            || !fields.query.is_empty()
            || fields.authenticated.is_some()
            || fields.times.is_some()
            || fields.not.is_some();
        let negated = fields.not.as_ref();
        fields.asks_the_client =
            fields.clients.is_some() || negated.is_some_and(|not| not.asks_the_client);
        fields
    }

    /// Whether the request fits, else the first field that does not.
    #[inline(always)]
    pub(super) fn check(
        &self,
        view: &RequestView<'_>,
        in_doubt: InDoubt,
    ) -> Result<(), &'static str> {
        self.check_line(view, in_doubt)?;
        match self.says_more {
            true => self.check_more(view, in_doubt),
            false => Ok(()),
        }
    }

    /// Method and path, which most rules say and no more.
    #[inline]
    fn check_line(&self, view: &RequestView<'_>, in_doubt: InDoubt) -> Result<(), &'static str> {
        if !self.method_fits(view.method()) {
            return Err("method");
        }
        let Some(paths) = &self.paths else {
            return Ok(());
        };
        let fits = |in_doubt| paths.iter().any(|path| path.fits(&view.path, in_doubt));
        match fits(in_doubt) {
            true => Ok(()),
            false if fits(InDoubt::Fits) => Err("path's spelling"),
            false => Err("path"),
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
        for (name, pattern) in &self.headers {
            let lines = view.parts.headers.get_all(name).iter();
            let lines = lines.map(|line| line.as_bytes());
            of(pattern.fits(lines, in_doubt), "header")?;
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

    /// What is not written in the request itself.
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
        if let Some((wanted, told)) = &self.authenticated {
            of(told.0(view.parts) == *wanted, "authenticated")?;
        }
        match &self.times {
            Some(times) => of(times.iter().any(|time| time.contains(view.now)), "time"),
            None => Ok(()),
        }
    }

    pub(super) fn asks_the_time(&self) -> bool {
        let negated = self.not.as_ref();
        self.times.is_some() || negated.is_some_and(|not| not.asks_the_time())
    }

    fn method_fits(&self, method: &Method) -> bool {
        let known = self.methods.as_ref();
        known.is_none_or(|known| known.contains(method))
    }
}

/// Parsed out of line: rules that match no host would pay for the room on the stack.
#[inline(never)]
fn hosts_fit(patterns: &[HostPattern], parts: &Parts, in_doubt: InDoubt) -> bool {
    in_doubt.of_several(hosts(parts), |host| host_fits(patterns, host, in_doubt))
}

/// Whether a host fits that the request names. A server may take an unreadable one for any host.
fn host_fits(patterns: &[HostPattern], host: NamedHost<'_>, in_doubt: InDoubt) -> bool {
    match host {
        NamedHost::Known(host) => patterns.iter().any(|pattern| pattern.matches(host)),
        NamedHost::Empty => false,
        NamedHost::Unreadable => in_doubt == InDoubt::Fits,
    }
}

fn query_fits(name: &str, pattern: &Pattern, parts: &Parts, in_doubt: InDoubt) -> bool {
    let query = parts.uri.query().unwrap_or_default();
    let pairs = form_urlencoded::parse(query.as_bytes());
    let values = pairs
        .filter(|(key, _)| *key == *name)
        .map(|(_, value)| value.into_owned());
    pattern.fits(values, in_doubt)
}

fn in_one(client: IpAddr, networks: &[IpNet]) -> bool {
    networks.iter().any(|network| network.contains(&client))
}
