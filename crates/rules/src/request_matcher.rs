//! The match of a rule: all fields must fit, and of a list one value.

use std::{borrow::Cow, fmt, net::IpAddr, sync::Arc};

use http::{HeaderName, HeaderValue, Method, request::Parts};
use ipnet::IpNet;
use tower_ratelimit_rulefile::{
    pattern::{Glob, HostPattern, InDoubt, PathPattern},
    weekly_time_window::TimeWindow,
};

use super::request::{NamedHost, RequestPart, RequestView, has_other_signs, hosts};
use tower_ratelimit_core::clock::Timestamp;
use tower_ratelimit_layer::key::request_value::{
    lines_in_any_spelling, parameters, parameters_by_semicolons,
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
    pub(super) mcp: Option<McpCondition>,
    pub(super) authenticated: Option<(bool, Authenticator)>,
    pub(super) times: Option<Box<[TimeWindow]>>,
    pub(super) not: Option<Box<Self>>,
    /// Whether the match has a field other than method and path.
    pub(super) has_more_fields: bool,
    /// Whether the match has the client's address, also within `not`.
    pub(super) needs_client: bool,
    /// Whether the match has a call of MCP, also within `not`.
    pub(super) needs_call: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HeaderCondition {
    name: HeaderName,
    pattern: Pattern,
    /// The pattern of a limit if the words of the values have no case by their definition.
    in_any_case: Option<Pattern>,
    /// Whether a request may have another reading although its names have no signs but hyphens.
    has_other_readings: bool,
}

impl HeaderCondition {
    pub(super) fn new(name: HeaderName, pattern: Pattern, has_caseless_words: bool) -> Self {
        Self {
            has_other_readings: has_caseless_words || has_other_signs(&name),
            in_any_case: has_caseless_words.then(|| pattern.in_any_case()),
            name,
            pattern,
        }
    }

    pub(super) const fn name(&self) -> &HeaderName {
        &self.name
    }

    pub(super) fn absent(&self) -> Self {
        Self::new(
            self.name.clone(),
            Pattern::Absent,
            self.in_any_case.is_some(),
        )
    }

    #[inline(always)]
    fn fits(&self, view: &RequestView<'_>, in_doubt: InDoubt) -> bool {
        let lines = view.parts.headers.get_all(&self.name).iter();
        let fits = self
            .pattern
            .fits(lines.map(HeaderValue::as_bytes), in_doubt);
        if self.has_other_readings || view.has_other_signs() {
            return in_doubt.of_two(fits, || self.fits_in_any_spelling(view, in_doubt));
        }
        fits
    }

    /// Whether a header fits for servers that read other names as this one. For a limit words have any case.
    #[cold]
    #[inline(never)]
    fn fits_in_any_spelling(&self, view: &RequestView<'_>, in_doubt: InDoubt) -> bool {
        let in_any_case = self.in_any_case.as_ref();
        let in_any_case = in_any_case.filter(|_| in_doubt == InDoubt::Fits);
        let lines = lines_in_any_spelling(&view.parts.headers, &self.name);
        in_any_case.unwrap_or(&self.pattern).fits(lines, in_doubt)
    }
}

/// The condition on a call of MCP.
#[derive(Debug, Clone)]
pub(super) struct McpCondition {
    pub(super) method: Option<Pattern>,
    pub(super) tool: Option<Pattern>,
}

impl McpCondition {
    /// A call that cannot be read fits a limit, and no exemption.
    fn fits(&self, view: &RequestView<'_>, in_doubt: InDoubt) -> bool {
        if view.call_is_unread {
            return in_doubt == InDoubt::Fits;
        }
        tower_ratelimit_layer::mcp::Mcp::call_fits(
            view.parts,
            in_doubt == InDoubt::Fits,
            |method, name| {
                let fits = |pattern: &Pattern, value: &str| pattern.fits([value].iter(), in_doubt);
                let tool = name.filter(|_| method == "tools/call");
                let is_tool = |pattern: &Pattern| tool.is_some_and(|tool| fits(pattern, tool));
                self.method.as_ref().is_none_or(|own| fits(own, method))
                    && self.tool.as_ref().is_none_or(is_tool)
            },
        )
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
    /// This pattern with letters of ASCII in either case.
    fn in_any_case(&self) -> Self {
        match self {
            Self::OneOf(globs) => Self::OneOf(globs.iter().map(Glob::in_any_case).collect()),
            other => other.clone(),
        }
    }

    fn fits(&self, mut values: impl Iterator<Item: AsRef<[u8]>>, in_doubt: InDoubt) -> bool {
        match self {
            Self::Present => values.next().is_some(),
            Self::Absent => values.next().is_none(),
            Self::OneOf(globs) => any_or_all(in_doubt, values, |value| {
                let value = value.as_ref().trim_ascii();
                globs.iter().any(|glob| glob.matches(value))
            }),
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
            || fields.mcp.is_some()
            || fields.authenticated.is_some()
            || fields.times.is_some()
            || fields.not.is_some();
        let negated = fields.not.as_ref();
        fields.needs_client =
            fields.clients.is_some() || negated.is_some_and(|not| not.needs_client);
        fields.needs_call = fields.mcp.is_some() || negated.is_some_and(|not| not.needs_call);
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
    // Inlined as the rest of the loop over all rules, which benches/instructions counts.
    #[inline(always)]
    fn check_line(&self, view: &RequestView<'_>, in_doubt: InDoubt) -> Result<(), &'static str> {
        if !self.method_fits(view, in_doubt) {
            return Err(self.difference_of_method(view));
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
            of(header.fits(view, in_doubt), "header")?;
        }
        for (name, pattern) in &self.query {
            of(query_fits(name, pattern, view.parts, in_doubt), "query")?;
        }
        if let Some(mcp) = &self.mcp {
            of(mcp.fits(view, in_doubt), "mcp")?;
        }
        if let Some(networks) = &self.clients {
            let fits = |client: IpAddr| networks.iter().any(|network| network.contains(&client));
            let fits = match in_doubt {
                InDoubt::Fits => view.client().map_or(true, fits),
                InDoubt::Differs => view.certain_client().is_some_and(fits),
            };
            of(fits, "client")?;
        }
        if let Some((wanted, authenticator)) = &self.authenticated {
            of(authenticator.0(view.parts) == *wanted, "authenticated")?;
        }
        if let Some(times) = &self.times {
            of(contains(times, view.now), "time")?;
        }
        match &self.not {
            Some(not) => of(not.check(view, in_doubt.negated()).is_err(), "not"),
            None => Ok(()),
        }
    }

    pub(super) fn needs_time(&self) -> bool {
        let negated = self.not.as_ref();
        self.times.is_some() || negated.is_some_and(|not| not.needs_time())
    }

    /// Adds the parts of requests that the match reads, in addition to method, path, query and client.
    pub(super) fn request_parts(&self, parts: &mut Vec<RequestPart>) {
        let headers = self.headers.iter().map(|header| header.name.clone());
        parts.extend(headers.map(RequestPart::Header));
        if self.mcp.is_some() {
            parts.extend(RequestPart::OF_MCP);
        }
        let others = [
            (self.hosts.is_some(), RequestPart::Host),
            (self.authenticated.is_some(), RequestPart::Authenticated),
            (self.routes.is_some(), RequestPart::Route),
        ];
        let others = others.into_iter().filter(|(is_read, _)| *is_read);
        parts.extend(others.map(|(_, part)| part));
        if let Some(not) = &self.not {
            not.request_parts(parts);
        }
    }

    #[cold]
    fn difference_of_method(&self, view: &RequestView<'_>) -> &'static str {
        if self.method_fits(view, InDoubt::Fits) {
            "method's spelling"
        } else {
            "method"
        }
    }

    /// Whether the method fits. The methods of rules are in upper case.
    #[inline(always)]
    pub(super) fn method_fits(&self, view: &RequestView<'_>, in_doubt: InDoubt) -> bool {
        let Some(known) = &self.methods else {
            return true;
        };
        let is_certain = in_doubt == InDoubt::Fits || view.is_method_certain();
        is_certain && known.contains(view.method())
    }
}

/// Compares hosts. Not inlined, since rules without a host would pay for its stack.
#[inline(never)]
fn hosts_fit(patterns: &[HostPattern], parts: &Parts, in_doubt: InDoubt) -> bool {
    any_or_all(in_doubt, hosts(parts), |host| match host {
        NamedHost::Known(host) => patterns.iter().any(|pattern| pattern.matches(host)),
        NamedHost::Empty => false,
        // A server may read it as any host.
        NamedHost::Unreadable => in_doubt == InDoubt::Fits,
    })
}

/// Whether a query parameter fits. Some servers also end a parameter at `;`. Not inlined, as hosts are not.
#[inline(never)]
fn query_fits(name: &str, pattern: &Pattern, parts: &Parts, in_doubt: InDoubt) -> bool {
    let query = parts.uri.query().unwrap_or_default();
    let of_name =
        |(key, value): (Cow<'_, str>, Cow<'_, str>)| (*key == *name).then(|| value.into_owned());
    let values = parameters(query).filter_map(of_name);
    let fits = pattern.fits(values, in_doubt);
    match parameters_by_semicolons(query) {
        None => fits,
        Some(others) => {
            in_doubt.of_two(fits, || pattern.fits(others.filter_map(of_name), in_doubt))
        }
    }
}
