//! The address of Redis, composed of several variables, and the certificates for it.

use std::path::PathBuf;

use tower_ratelimit_server::serve::RedisTlsFiles;

use super::variables::Variables;

/// The address in the format of this crate; `None` without Redis.
pub(super) fn address(variables: &Variables) -> Result<Option<String>, String> {
    let Some(url) = variables.text("REDIS_URL") else {
        return Ok(None);
    };
    if url.contains("://") {
        return Ok(Some(url.to_owned()));
    }
    let socket = variables.text("REDIS_SOCKET_TYPE").unwrap_or("unix");
    let tls = variables.truth("REDIS_TLS")? || socket == "tls";
    let scheme = if tls { "rediss" } else { "redis" };
    let login = login(variables.text("REDIS_AUTH"));
    match variables.text("REDIS_TYPE").unwrap_or("SINGLE") {
        "SINGLE" if socket == "unix" => {
            let password = variables.text("REDIS_AUTH").map(percent_encoded);
            let query = password.map_or_else(String::new, |password| format!("?pass={password}"));
            Ok(Some(format!("unix://{url}{query}")))
        }
        "SINGLE" => Ok(Some(format!("{scheme}://{login}{url}"))),
        "CLUSTER" => Ok(Some(format!("{scheme}-cluster://{login}{url}"))),
        "SENTINEL" => {
            let (master, nodes) = url.split_once(',').ok_or_else(|| {
                format!("REDIS_URL={url} lacks the master's name before the sentinels, or these")
            })?;
            let password = variables.text("REDIS_SENTINEL_AUTH").map(percent_encoded);
            let query = password.map_or_else(String::new, |password| {
                format!("?sentinel_password={password}")
            });
            let address = format!("{scheme}-sentinel://{login}{nodes}/{master}{query}");
            Ok(Some(address))
        }
        other => Err(format!(
            "REDIS_TYPE={other} is not one of SINGLE, CLUSTER and SENTINEL"
        )),
    }
}

/// The certificates for an encrypted address. As in the reference, they have no meaning for another one.
pub(super) fn certificates(
    variables: &Variables,
    address: Option<&str>,
) -> Result<RedisTlsFiles, String> {
    let mut files = RedisTlsFiles::default();
    let is_encrypted = address
        .is_some_and(|address| address.starts_with("rediss") || address.starts_with("valkeys"));
    if !is_encrypted {
        return Ok(files);
    }
    let file = |name: &str| variables.text(name).map(PathBuf::from);
    files.authority = file("REDIS_TLS_CACERT");
    files.certificate = match (file("REDIS_TLS_CLIENT_CERT"), file("REDIS_TLS_CLIENT_KEY")) {
        (None, None) => None,
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (Some(_), None) => {
            return Err("REDIS_TLS_CLIENT_CERT needs REDIS_TLS_CLIENT_KEY".to_owned());
        }
        (None, Some(_)) => {
            return Err("REDIS_TLS_CLIENT_KEY needs REDIS_TLS_CLIENT_CERT".to_owned());
        }
    };
    Ok(files)
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
    let encode = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
            char::from(byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}

#[cfg(test)]
mod tests {
    use tower_ratelimit::RedisStore;

    #[test]
    fn certificates_are_for_encrypted_addresses() {
        let variables = [
            ("REDIS_TLS_CACERT", "ca.pem"),
            ("REDIS_TLS_CLIENT_CERT", "tls.crt"),
            ("REDIS_TLS_CLIENT_KEY", "tls.key"),
        ];
        let read = |pairs: &[(&str, &str)], address| certificates(&Variables::from(pairs), address);
        let files = read(&variables, Some("rediss://redis")).expect("files");
        assert_eq!(files.authority, Some("ca.pem".into()));
        assert_eq!(
            files.certificate,
            Some(("tls.crt".into(), "tls.key".into()))
        );
        for address in [Some("redis://redis"), Some("unix:///run/redis"), None] {
            let files = read(&variables, address).expect("no files");
            assert!(files.authority.is_none() && files.certificate.is_none());
        }
        for lone in [&variables[1..2], &variables[2..]] {
            let fault = read(lone, Some("rediss-cluster://redis")).expect_err("one of two");
            assert!(fault.contains("needs"), "{fault}");
        }
    }

    use super::*;

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
            let result = address(&Variables::from(pairs)).expect("an address");
            assert_eq!(result.as_deref(), Some(expected));
            // The address is parsed, and nothing is connected.
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            let _inside = runtime.as_ref().expect("a runtime").enter();
            let store = RedisStore::connect(expected);
            assert!(store.is_ok(), "{expected}: {:?}", store.err());
        }
        let other = [("REDIS_URL", "a"), ("REDIS_TYPE", "OTHER")];
        assert!(address(&Variables::from(&other[..])).is_err());
    }
}
