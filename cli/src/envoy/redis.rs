//! The address of Redis, composed of several variables.

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
