//! The address of Redis, composed of several variables, and the certificates for it.

use tower_ratelimit::RedisStore;
use tower_ratelimit_service::StoreSettings;

use super::variables::Variables;

/// The kinds of deployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RedisType {
    Single,
    Cluster,
    Sentinel,
}

/// The address in the format of this crate; `None` without Redis.
pub(super) fn address(variables: &Variables) -> Result<Option<String>, String> {
    let Some(url) = variables.text("REDIS_URL") else {
        return Ok(None);
    };
    let kind = redis_type(variables)?;
    if is_unix_socket(variables, url, kind) {
        return unix_socket(variables, url, kind).map(Some);
    }
    let (master, nodes) = match kind {
        Some(RedisType::Sentinel) if !url.contains("-sentinel://") => {
            let (master, nodes) = url.split_once(',').ok_or(
                "REDIS_URL lacks the master's name before the sentinels, or these, as in \
                 main,a:26379,b:26379",
            )?;
            (format!("/{master}"), nodes)
        }
        _ => (String::new(), url),
    };
    let servers = Servers::read(nodes)?;
    let kind = deployment(variables, &servers)?;
    let scheme = scheme(variables, &servers)?;
    let login = servers.login(variables.text("REDIS_AUTH"))?;
    let Servers { hosts, tail, .. } = &servers;
    Ok(Some(match kind {
        RedisType::Single => format!("{scheme}://{login}{hosts}{tail}"),
        RedisType::Cluster => format!("{scheme}-cluster://{login}{hosts}{tail}"),
        RedisType::Sentinel => {
            let address = format!("{scheme}-sentinel://{login}{hosts}{master}{tail}");
            with_sentinel_login(address, variables.text("REDIS_SENTINEL_AUTH"))?
        }
    }))
}

/// Whether the address is a unix socket: by its scheme, or a path of a single server.
fn is_unix_socket(variables: &Variables, url: &str, kind: Option<RedisType>) -> bool {
    match url.split_once("://") {
        Some((scheme, _)) => matches!(scheme, "unix" | "redis+unix" | "valkey+unix"),
        None => {
            let socket = variables.text("REDIS_SOCKET_TYPE").unwrap_or("unix");
            socket == "unix" && kind.unwrap_or(RedisType::Single) == RedisType::Single
        }
    }
}

/// The deployment, by `REDIS_TYPE` or by the scheme.
fn deployment(variables: &Variables, servers: &Servers) -> Result<RedisType, String> {
    let (of_scheme, _) = servers.scheme()?;
    let given = redis_type(variables)?;
    if let (Some(given), Some(of_scheme)) = (given, of_scheme)
        && given != of_scheme
    {
        return Err(format!(
            "REDIS_TYPE={} contradicts the scheme of REDIS_URL, {}",
            variables.text("REDIS_TYPE").unwrap_or_default(),
            servers.scheme
        ));
    }
    let kind = given.or(of_scheme).unwrap_or(RedisType::Single);
    if kind == RedisType::Single && variables.text("REDIS_SOCKET_TYPE") == Some("unix") {
        return Err("REDIS_SOCKET_TYPE=unix contradicts REDIS_URL, which is no path".to_owned());
    }
    Ok(kind)
}

/// `rediss` if a variable or the scheme demands TLS, or else `redis`.
fn scheme(variables: &Variables, servers: &Servers) -> Result<&'static str, String> {
    let (_, is_encrypted) = servers.scheme()?;
    let tls = variables.truth("REDIS_TLS")?;
    if is_encrypted && !tls && variables.text("REDIS_TLS").is_some() {
        return Err("REDIS_TLS=false contradicts REDIS_URL, whose scheme is encrypted".to_owned());
    }
    let is_tls = is_encrypted || tls || variables.text("REDIS_SOCKET_TYPE") == Some("tls");
    Ok(if is_tls { "rediss" } else { "redis" })
}

/// The value of `REDIS_TYPE`, in any case.
fn redis_type(variables: &Variables) -> Result<Option<RedisType>, String> {
    let Some(text) = variables.text("REDIS_TYPE") else {
        return Ok(None);
    };
    match text.to_ascii_lowercase().as_str() {
        "single" => Ok(Some(RedisType::Single)),
        "cluster" => Ok(Some(RedisType::Cluster)),
        "sentinel" => Ok(Some(RedisType::Sentinel)),
        _ => Err(format!(
            "REDIS_TYPE={text} is not one of SINGLE, CLUSTER and SENTINEL"
        )),
    }
}

/// The address of a server at a path, or at an address with the scheme `unix`.
fn unix_socket(
    variables: &Variables,
    url: &str,
    kind: Option<RedisType>,
) -> Result<String, String> {
    let socket = variables.text("REDIS_SOCKET_TYPE").unwrap_or("unix");
    if socket != "unix" {
        return Err(format!(
            "REDIS_SOCKET_TYPE={socket} contradicts REDIS_URL, which is a unix socket"
        ));
    }
    if !matches!(kind, None | Some(RedisType::Single)) {
        return Err("REDIS_URL is a unix socket, and REDIS_TYPE is not SINGLE".to_owned());
    }
    if variables.truth("REDIS_TLS")? {
        return Err(
            "REDIS_TLS needs REDIS_SOCKET_TYPE=tcp: it is unix, the default, and a unix socket \
             has no TLS"
                .to_owned(),
        );
    }
    let address = if url.contains("://") {
        url.to_owned()
    } else if url.starts_with('/') {
        format!("unix://{url}")
    } else {
        return Err(
            "REDIS_URL is no path, and REDIS_SOCKET_TYPE is unix, the default: for an address it is tcp"
                .to_owned(),
        );
    };
    let Some(auth) = variables.text("REDIS_AUTH") else {
        return Ok(address);
    };
    if address.contains("pass=") {
        return Err(TWO_LOGINS.to_owned());
    }
    Ok(with_login(address, auth, ["user", "pass"]))
}

const TWO_LOGINS: &str = "REDIS_AUTH and REDIS_URL have a login each; leave one of them out";

/// The address with parameters for the sentinels' login.
fn with_sentinel_login(address: String, auth: Option<&str>) -> Result<String, String> {
    match auth {
        None => Ok(address),
        Some(_) if address.contains("sentinel_password=") => Err(
            "REDIS_SENTINEL_AUTH and REDIS_URL have a login each; leave one of them out".to_owned(),
        ),
        Some(auth) => Ok(with_login(
            address,
            auth,
            ["sentinel_user", "sentinel_password"],
        )),
    }
}

/// The address with parameters for the user, if there is one, and the password.
fn with_login(mut address: String, auth: &str, [user, password]: [&str; 2]) -> String {
    let (name, secret) = match auth.split_once(':') {
        Some((name, secret)) => (Some(name), secret),
        None => (None, auth),
    };
    let name = name.map(|name| (user, name));
    for (parameter, value) in name.into_iter().chain([(password, secret)]) {
        address.push(if address.contains('?') { '&' } else { '?' });
        address += &format!("{parameter}={}", percent_encoded(value));
    }
    address
}

/// The parts of a list of servers. As in the reference, each may have a scheme and a login, which are those of all.
#[derive(Debug, Default)]
struct Servers {
    scheme: String,
    /// With the `@`.
    login: String,
    /// With commas between.
    hosts: String,
    /// The path and the query.
    tail: String,
}

impl Servers {
    /// Reads `redis://user:password@a:1/0,redis://user:password@b:2/0`, `redis-cluster://user:password@a:1,b:2`
    /// and `a:1,b:2`.
    fn read(text: &str) -> Result<Self, String> {
        let has_one_scheme = text.find("://").is_none_or(|at| {
            let is_first = !text[..at].contains(',');
            is_first && !text[at + 3..].contains("://")
        });
        if has_one_scheme {
            return Ok(Self::one(text));
        }
        let mut all = Self::default();
        for one in text.split(',').map(Self::one) {
            all.add(one)?;
        }
        Ok(all)
    }

    fn one(text: &str) -> Self {
        let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
        let (rest, query) = rest.split_at(rest.find('?').unwrap_or(rest.len()));
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (login, hosts) = authority.split_at(authority.rfind('@').map_or(0, |at| at + 1));
        Self {
            scheme: scheme.to_owned(),
            login: login.to_owned(),
            hosts: hosts.to_owned(),
            tail: format!("{path}{query}"),
        }
    }

    /// Adds a server, unless its scheme, login or path differs.
    fn add(&mut self, one: Self) -> Result<(), String> {
        for (all, own, name) in [
            (&mut self.scheme, one.scheme, "schemes"),
            (&mut self.login, one.login, "logins"),
            (&mut self.tail, one.tail, "paths"),
        ] {
            if all.is_empty() {
                *all = own;
            } else if !own.is_empty() && own != *all {
                return Err(format!(
                    "the addresses of REDIS_URL have different {name}; give all of them the same"
                ));
            }
        }
        if !self.hosts.is_empty() {
            self.hosts.push(',');
        }
        self.hosts += &one.hosts;
        Ok(())
    }

    /// The deployment that the scheme names, and whether it is encrypted.
    fn scheme(&self) -> Result<(Option<RedisType>, bool), String> {
        let (name, kind) = match self.scheme.rsplit_once('-') {
            Some((name, "cluster")) => (name, Some(RedisType::Cluster)),
            Some((name, "sentinel")) => (name, Some(RedisType::Sentinel)),
            _ => (self.scheme.as_str(), None),
        };
        match name {
            "" | "redis" | "valkey" => Ok((kind, false)),
            "rediss" | "valkeys" => Ok((kind, true)),
            _ => Err(format!(
                "REDIS_URL has the unknown scheme {}; there are redis, rediss and unix",
                self.scheme
            )),
        }
    }

    /// The login of the variable, or of the address.
    fn login(&self, auth: Option<&str>) -> Result<String, String> {
        let login = login(auth);
        if login.is_empty() {
            Ok(self.login.clone())
        } else if self.login.is_empty() || self.login == login {
            Ok(login)
        } else {
            Err(TWO_LOGINS.to_owned())
        }
    }
}

/// The prefix of keys in Redis. Characters that the store does not accept are percent-encoded, and so is `%` itself.
pub(super) fn key_prefix(variables: &Variables) -> Result<Option<String>, String> {
    let Some(text) = variables.text("CACHE_KEY_PREFIX") else {
        return Ok(None);
    };
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"{}*?[]\\%".contains(&byte);
    let prefix: String = text
        .bytes()
        .map(|byte| encoded_unless(byte, is_plain))
        .collect();
    // The store of any address checks it.
    let checked = RedisStore::builder().prefix(&prefix).connect(ANY_ADDRESS);
    match checked {
        Ok(_) => Ok(Some(prefix)),
        Err(error) => Err(format!("CACHE_KEY_PREFIX={text}: {error}")),
    }
}

const ANY_ADDRESS: &str = "redis://127.0.0.1";

/// Sets the certificates for an encrypted address. As in the reference, they have no meaning for another one.
pub(super) fn set_certificates(
    variables: &Variables,
    store: &mut StoreSettings,
) -> Result<(), String> {
    let schemes = ["rediss", "valkeys"];
    let address = store.redis.as_deref().unwrap_or_default();
    if schemes.iter().any(|scheme| address.starts_with(scheme)) {
        store.redis_tls_ca = variables.path("REDIS_TLS_CACERT");
        (store.redis_tls_cert, store.redis_tls_key) =
            variables.certificate("REDIS_TLS_CLIENT_CERT", "REDIS_TLS_CLIENT_KEY")?;
    }
    Ok(())
}

/// `user:password@`, or `:password@` without a user.
fn login(auth: Option<&str>) -> String {
    match auth.map(|auth| auth.split_once(':')) {
        None => String::new(),
        Some(Some((user, password))) => {
            format!("{}:{}@", percent_encoded(user), percent_encoded(password))
        }
        Some(None) => format!(":{}@", percent_encoded(auth.unwrap_or_default())),
    }
}

fn percent_encoded(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    text.bytes()
        .map(|byte| encoded_unless(byte, is_plain))
        .collect()
}

fn encoded_unless(byte: u8, is_plain: impl Fn(u8) -> bool) -> String {
    if is_plain(byte) {
        char::from(byte).to_string()
    } else {
        format!("%{byte:02X}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_are_for_encrypted_addresses() {
        let variables = [
            ("REDIS_TLS_CACERT", "ca.pem"),
            ("REDIS_TLS_CLIENT_CERT", "tls.crt"),
            ("REDIS_TLS_CLIENT_KEY", "tls.key"),
        ];
        let read = |pairs: &[(&str, &str)], address: Option<&str>| {
            let mut store = StoreSettings::default();
            store.redis = address.map(str::to_owned);
            set_certificates(&Variables::from(pairs), &mut store).map(|()| store)
        };
        let files = read(&variables, Some("rediss://redis")).expect("files");
        assert_eq!(files.redis_tls_ca, Some("ca.pem".into()));
        assert_eq!(files.redis_tls_cert, Some("tls.crt".into()));
        assert_eq!(files.redis_tls_key, Some("tls.key".into()));
        for address in [Some("redis://redis"), Some("unix:///run/redis"), None] {
            let files = read(&variables, address).expect("no files");
            assert!(files.redis_tls_ca.is_none() && files.redis_tls_cert.is_none());
        }
        for lone in [&variables[1..2], &variables[2..]] {
            let fault = read(lone, Some("rediss-cluster://redis")).expect_err("one of two");
            assert!(fault.contains("needs"), "{fault}");
        }
    }

    fn check(pairs: &[(&str, &str)], expected: &str) {
        let result = address(&Variables::from(pairs)).expect("an address");
        assert_eq!(result.as_deref(), Some(expected), "{pairs:?}");
        // The address is parsed, and nothing is connected.
        let store = RedisStore::connect(expected);
        assert!(store.is_ok(), "{expected}: {:?}", store.err());
    }

    #[test]
    fn each_set_up_has_its_address() {
        let cases: [(&[(&str, &str)], &str); 8] = [
            (
                &[("REDIS_URL", "/run/redis.sock")],
                "unix:///run/redis.sock",
            ),
            (
                &[("REDIS_URL", "/run/redis.sock"), ("REDIS_AUTH", "p w")],
                "unix:///run/redis.sock?pass=p%20w",
            ),
            (
                &[("REDIS_URL", "redis:6379"), ("REDIS_SOCKET_TYPE", "tcp")],
                "redis://redis:6379",
            ),
            (
                &[
                    ("REDIS_URL", "redis:6379"),
                    ("REDIS_SOCKET_TYPE", "tcp"),
                    ("REDIS_AUTH", "p@ss/word"),
                ],
                "redis://:p%40ss%2Fword@redis:6379",
            ),
            (
                &[
                    ("REDIS_URL", "redis:6379"),
                    ("REDIS_SOCKET_TYPE", "tcp"),
                    ("REDIS_TLS", "true"),
                    ("REDIS_AUTH", "eve:secret"),
                ],
                "rediss://eve:secret@redis:6379",
            ),
            (
                &[
                    ("REDIS_TYPE", "CLUSTER"),
                    ("REDIS_URL", "a:1,b:2"),
                    ("REDIS_SOCKET_TYPE", "tcp"),
                ],
                "redis-cluster://a:1,b:2",
            ),
            (
                &[
                    ("REDIS_TYPE", "SENTINEL"),
                    ("REDIS_URL", "main,a:1,b:2"),
                    ("REDIS_SOCKET_TYPE", "tcp"),
                    ("REDIS_SENTINEL_AUTH", "s3"),
                    ("REDIS_AUTH", "p"),
                ],
                "redis-sentinel://:p@a:1,b:2/main?sentinel_password=s3",
            ),
            (&[("REDIS_URL", "rediss://redis")], "rediss://redis"),
        ];
        for (pairs, expected) in cases {
            check(pairs, expected);
        }
        let other = [("REDIS_URL", "a"), ("REDIS_TYPE", "OTHER")];
        assert!(address(&Variables::from(&other[..])).is_err());
    }

    #[test]
    fn variables_are_read_as_by_the_reference() {
        let tcp = ("REDIS_SOCKET_TYPE", "tcp");
        check(
            &[tcp, ("REDIS_TYPE", "cluster"), ("REDIS_URL", "a:1")],
            "redis-cluster://a:1",
        );
        check(
            &[tcp, ("REDIS_TYPE", "Single"), ("REDIS_URL", "a:1")],
            "redis://a:1",
        );
        check(
            &[("REDIS_URL", "/run/redis.sock"), ("REDIS_AUTH", "eve:p:w")],
            "unix:///run/redis.sock?user=eve&pass=p%3Aw",
        );
        check(
            &[
                ("REDIS_TYPE", "sentinel"),
                ("REDIS_URL", "main,a:1"),
                ("REDIS_SENTINEL_AUTH", "eve:s3"),
            ],
            "redis-sentinel://a:1/main?sentinel_user=eve&sentinel_password=s3",
        );
    }

    #[test]
    fn addresses_with_a_scheme_keep_the_other_variables() {
        let auth = ("REDIS_AUTH", "eve:p@ss");
        let url = |url| ("REDIS_URL", url);
        let cluster = ("REDIS_TYPE", "CLUSTER");
        let sentinel = ("REDIS_TYPE", "SENTINEL");
        let cases: [(&[(&str, &str)], &str); 12] = [
            (&[url("redis://a:1"), auth], "redis://eve:p%40ss@a:1"),
            (
                &[url("redis://a:1/2"), ("REDIS_TLS", "true")],
                "rediss://a:1/2",
            ),
            (
                &[url("redis://eve:p%40ss@a:1"), auth],
                "redis://eve:p%40ss@a:1",
            ),
            (&[url("redis://a:1"), cluster], "redis-cluster://a:1"),
            (
                &[url("redis://a:1,redis://b:2"), cluster, auth],
                "redis-cluster://eve:p%40ss@a:1,b:2",
            ),
            (
                &[url("rediss://:pw@a:1,rediss://:pw@b:2"), cluster],
                "rediss-cluster://:pw@a:1,b:2",
            ),
            (
                &[url("main,redis://a:1,redis://b:2"), sentinel, auth],
                "redis-sentinel://eve:p%40ss@a:1,b:2/main",
            ),
            (
                &[url("redis-cluster://:pw@a:1,b:2")],
                "redis-cluster://:pw@a:1,b:2",
            ),
            (
                &[url("redis-cluster://a:1,b:2"), cluster, auth],
                "redis-cluster://eve:p%40ss@a:1,b:2",
            ),
            (
                &[
                    url("redis-sentinel://a:1,b:2/main"),
                    ("REDIS_SENTINEL_AUTH", "s3"),
                ],
                "redis-sentinel://a:1,b:2/main?sentinel_password=s3",
            ),
            (
                &[url("unix:///run/redis?db=1"), auth],
                "unix:///run/redis?db=1&user=eve&pass=p%40ss",
            ),
            (&[url("valkeys://a")], "rediss://a"),
        ];
        for (pairs, expected) in cases {
            check(pairs, expected);
        }
    }

    #[test]
    fn contradictions_are_faults() {
        let url = |url| ("REDIS_URL", url);
        let cases: [(&[(&str, &str)], &str); 12] = [
            (&[url("redis:6379")], "for an address it is tcp"),
            (
                &[url("redis://:hunter@a"), ("REDIS_AUTH", "other")],
                "a login each",
            ),
            (
                &[url("redis-cluster://a"), ("REDIS_TYPE", "SINGLE")],
                "REDIS_TYPE=SINGLE contradicts",
            ),
            (
                &[url("rediss://a"), ("REDIS_TLS", "false")],
                "REDIS_TLS=false contradicts",
            ),
            (
                &[url("redis://a"), ("REDIS_SOCKET_TYPE", "unix")],
                "REDIS_SOCKET_TYPE=unix contradicts",
            ),
            (
                &[url("unix:///a"), ("REDIS_SOCKET_TYPE", "tcp")],
                "REDIS_SOCKET_TYPE=tcp contradicts",
            ),
            (
                &[url("unix:///a"), ("REDIS_TYPE", "CLUSTER")],
                "REDIS_TYPE is not SINGLE",
            ),
            (
                &[url("redis:6379"), ("REDIS_TLS", "true")],
                "REDIS_SOCKET_TYPE=tcp",
            ),
            (
                &[
                    url("redis://a,rediss://:hunter@b"),
                    ("REDIS_TYPE", "CLUSTER"),
                ],
                "different schemes",
            ),
            (
                &[
                    url("redis://:hunter@a,redis://:x@b"),
                    ("REDIS_TYPE", "CLUSTER"),
                ],
                "different logins",
            ),
            (
                &[url("redis://:hunter@a"), ("REDIS_TYPE", "SENTINEL")],
                "master's name",
            ),
            (&[url("memcached://a")], "unknown scheme memcached"),
        ];
        for (pairs, expected) in cases {
            let fault = address(&Variables::from(pairs)).expect_err(expected);
            assert!(fault.contains(expected), "{fault}");
            assert!(!fault.contains("hunter"), "{fault}");
        }
    }

    #[test]
    fn a_prefix_may_have_any_characters() {
        let prefix = |text| {
            let pairs = [("CACHE_KEY_PREFIX", text)];
            key_prefix(&Variables::from(&pairs[..]))
        };
        for (text, expected) in [
            ("rl:", "rl:"),
            ("my {app}:", "my%20%7Bapp%7D:"),
            ("é%", "%C3%A9%25"),
        ] {
            assert_eq!(prefix(text), Ok(Some(expected.to_owned())));
        }
        let fault = prefix(&"x".repeat(65)).expect_err("too long");
        assert!(fault.contains("CACHE_KEY_PREFIX"), "{fault}");
    }
}
