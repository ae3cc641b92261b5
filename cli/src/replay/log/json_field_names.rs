//! Fields of JSON lines: the tree of names to read.

use std::collections::BTreeMap;

/// Names of fields from the arguments.
#[derive(Debug, Clone, Default)]
pub(super) struct FieldNames {
    pub(super) time: Option<String>,
    pub(super) ip: Option<String>,
    pub(super) status: Option<String>,
    /// The fields for keys.
    pub(super) keys: Vec<String>,
    /// The fields that rules read, by the index of the need.
    pub(super) needed: BTreeMap<usize, Vec<String>>,
}

/// The meaning of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    Time,
    Client,
    Method,
    Uri,
    /// `GET / HTTP/1.1`.
    Line,
    Host,
    User,
    ForwardedFor,
    Status,
    /// The part of the key at this index.
    Key(usize),
    /// The need of rules at this index.
    LookedAt(usize),
    /// A cookie that rules need, logged as a field of its own.
    Cookie(usize),
}

/// Names that servers use, the best first. A dot is an object in an object.
const TIMES: [&str; 8] = [
    "ts",
    "msec",
    "time_iso8601",
    "time",
    "@timestamp",
    "timestamp",
    "time_local",
    "date",
];
const CLIENTS: [&str; 7] = [
    "remote_addr",
    "request.client_ip",
    "request.remote_ip",
    "client_ip",
    "remote_ip",
    "ip",
    "ClientHost",
];
const STATUSES: [&str; 6] = [
    "status",
    "status_code",
    "statusCode",
    "response_code",
    "DownstreamStatus",
    "http.response.status_code",
];
const OTHERS: [(Meaning, &[&str]); 6] = [
    (
        Meaning::Method,
        &[
            "request_method",
            "request.method",
            "method",
            "RequestMethod",
        ],
    ),
    (
        Meaning::Uri,
        &["request_uri", "request.uri", "uri", "path", "RequestPath"],
    ),
    (Meaning::Line, &["request"]),
    (
        Meaning::Host,
        &["http_host", "request.host", "host", "RequestHost"],
    ),
    (Meaning::User, &["remote_user", "user_id", "user"]),
    (
        Meaning::ForwardedFor,
        &[
            "http_x_forwarded_for",
            "request.headers.X-Forwarded-For",
            "x_forwarded_for",
        ],
    ),
];

/// The object with all headers of a request in Caddy's logs.
const HEADERS: &str = "request.headers";

/// The prefix of a cookie's name in nginx's logs.
pub(super) const COOKIE: &str = "cookie_";

/// All names, as a tree; everything else in a line is skipped.
#[derive(Debug, Default)]
pub(super) struct FieldTree {
    name: String,
    /// The shorter names first.
    children: Vec<Self>,
    /// The meanings of a field of this name, each with the rank of the name.
    pub(super) meanings: Vec<(Meaning, usize)>,
    /// Whether it is the object of all headers.
    pub(super) has_headers: bool,
}

impl FieldTree {
    pub(super) fn new(names: &FieldNames) -> Self {
        let mut tree = Self::default();
        let own = |own: &Option<String>, known: &[&str]| match own {
            Some(own) => vec![own.clone()],
            None => known.iter().map(|name| (*name).to_owned()).collect(),
        };
        tree.add_all(Meaning::Time, own(&names.time, &TIMES));
        tree.add_all(Meaning::Client, own(&names.ip, &CLIENTS));
        tree.add_all(Meaning::Status, own(&names.status, &STATUSES));
        for (meaning, names) in OTHERS {
            tree.add_all(meaning, names.iter().map(|name| (*name).to_owned()));
        }
        for (place, name) in names.keys.iter().enumerate() {
            tree.add_all(Meaning::Key(place), [name.clone()]);
        }
        for (place, names) in &names.needed {
            let (cookies, headers): (Vec<_>, Vec<_>) = names
                .iter()
                .cloned()
                .partition(|name| name.starts_with(COOKIE));
            tree.add_all(Meaning::LookedAt(*place), headers);
            tree.add_all(Meaning::Cookie(*place), cookies);
        }
        if !names.needed.is_empty() {
            tree.node(HEADERS).has_headers = true;
        }
        tree
    }

    fn add_all(&mut self, meaning: Meaning, names: impl IntoIterator<Item = String>) {
        for (place, name) in names.into_iter().enumerate() {
            self.node(&name).meanings.push((meaning, place));
        }
    }

    fn node(&mut self, path: &str) -> &mut Self {
        let mut node = self;
        for name in path.split('.') {
            let place = match node.place(name) {
                Some(known) => known,
                None => {
                    let place = node.first_of(name.len());
                    let child = Self {
                        name: name.to_owned(),
                        ..Self::default()
                    };
                    node.children.insert(place, child);
                    place
                }
            };
            node = &mut node.children[place];
        }
        node
    }

    /// Ignores case, as in names of headers.
    fn place(&self, name: &str) -> Option<usize> {
        let first = self.first_of(name.len());
        let children = self.children[first..].iter();
        let mut alike = children.take_while(|child| child.name.len() == name.len());
        let place = alike.position(|child| child.name.eq_ignore_ascii_case(name))?;
        Some(first + place)
    }

    /// The index of the first child whose name is at least this long.
    fn first_of(&self, length: usize) -> usize {
        self.children
            .partition_point(|child| child.name.len() < length)
    }

    /// Whether all lines of the header count: each proxy appends to the list, or adds a line.
    pub(super) fn is_list(&self) -> bool {
        let mut meanings = self.meanings.iter();
        meanings.any(|(meaning, _)| *meaning == Meaning::ForwardedFor)
    }

    /// The child with this name; some servers write dots for nested objects.
    pub(super) fn child(&self, name: &str) -> Option<&Self> {
        match self.place(name) {
            Some(place) => Some(&self.children[place]),
            None if name.bytes().any(|byte| byte == b'.') => {
                let mut names = name.split('.');
                names.try_fold(self, |node, name| Some(&node.children[node.place(name)?]))
            }
            None => None,
        }
    }
}

impl FieldNames {
    /// The number of needs.
    pub(super) fn needs(&self) -> usize {
        let last = self.needed.last_key_value();
        last.map_or(0, |(last, _)| last + 1)
    }
}
