//! Variables without a meaning here: they belong to missing features that change no decision, or to another source.

use super::variables::Variables;

/// Prefixes of variables without a meaning.
const ALWAYS: [&str; 23] = [
    "DEBUG_HOST",
    "DISABLE_STATS",
    "EXPIRATION_JITTER_MAX_SECONDS",
    "EXTRA_TAGS",
    "GRPC_MAX_CONNECTION_AGE_GRACE",
    // Set by Envoy Gateway, and not read by the reference either.
    "GRPC_SERVER_TLS_CA_CERT",
    "LOCAL_CACHE_SIZE_IN_BYTES",
    // Ignored with BACKEND_TYPE=redis, the default.
    "MEMCACHE_",
    "PROMETHEUS_MAPPER_YAML",
    "PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS",
    "REDIS_CLUSTER_PIPELINE_PARALLELISM",
    "REDIS_PERSECOND",
    "REDIS_PIPELINE_",
    "REDIS_POOL_",
    "REDIS_STARTUP_",
    "RUNTIME_WATCH_ROOT",
    "STATSD_",
    "STATS_",
    "TRACING_",
    "USE_DOG_STATSD",
    "USE_STATSD",
    "XDS_CLIENT_BACKOFF_JITTER",
    "XDS_CLIENT_BACKOFF_RANDOM_FACTOR",
];

/// Prefixes of variables of the control plane. The reference's compose file sets some with CONFIG_TYPE=FILE.
const OF_CONTROL_PLANE: [&str; 4] = [
    "CONFIG_GRPC_XDS_",
    "FORCE_START_WITHOUT_INITIAL_CONFIG",
    "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED",
    "XDS_CLIENT_",
];

/// Variables of files. Envoy Gateway sets some with CONFIG_TYPE=GRPC_XDS_SOTW.
const OF_FILES: [&str; 4] = [
    "RUNTIME_APPDIRECTORY",
    "RUNTIME_IGNOREDOTFILES",
    "RUNTIME_ROOT",
    "RUNTIME_SUBDIRECTORY",
];

/// The variables that are set and have no meaning, in the order of their names.
pub(super) fn without_meaning(variables: &Variables, has_control_plane: bool) -> Vec<&str> {
    let of_source = if has_control_plane {
        &OF_FILES
    } else {
        &OF_CONTROL_PLANE
    };
    let prometheus: &[&str] = match variables.truth("USE_PROMETHEUS") {
        Ok(true) => &[],
        _ => &["PROMETHEUS_ADDR", "PROMETHEUS_PATH"],
    };
    let prefixes = ALWAYS.iter().chain(of_source).chain(prometheus);
    let mut names: Vec<&str> = prefixes
        .flat_map(|prefix| variables.beginning_with(prefix))
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(has_control_plane: bool, names: &[&str]) -> Vec<String> {
        let pairs: Vec<_> = names.iter().map(|name| (*name, "1")).collect();
        let variables = Variables::from(&*pairs);
        let found = without_meaning(&variables, has_control_plane);
        found.into_iter().map(str::to_owned).collect()
    }

    #[test]
    fn variables_without_a_meaning_are_named() {
        let names = [
            "CONFIG_GRPC_XDS_NODE_ID",
            "DEBUG_HOST",
            "GRPC_SERVER_TLS_CA_CERT",
            "MEMCACHE_HOST_PORT",
            "PROMETHEUS_MAPPER_YAML",
            "REDIS_PERSECOND",
            "REDIS_PERSECOND_URL",
            "REDIS_PIPELINE_LIMIT",
            "REDIS_PIPELINE_WINDOW",
            "REDIS_POOL_SIZE",
            "RUNTIME_WATCH_ROOT",
            "STATSD_PORT",
            "TRACING_SAMPLING_RATE",
            "XDS_CLIENT_BACKOFF_JITTER",
        ];
        let known = [
            "DEBUG_PORT",
            "PROMETHEUS_ADDR",
            "REDIS_TLS",
            "REDIS_URL",
            "RUNTIME_ROOT",
            "USE_PROMETHEUS",
            "USE_TLS",
        ];
        let all = [&names[..], &known].concat();
        assert_eq!(named(false, &all), names);
    }

    #[test]
    fn variables_of_the_other_source_are_named() {
        let all = [
            "CONFIG_GRPC_XDS_NODE_ID",
            "PROMETHEUS_PATH",
            "RUNTIME_ROOT",
            "XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES",
        ];
        assert_eq!(named(true, &all), ["PROMETHEUS_PATH", "RUNTIME_ROOT"]);
        assert_eq!(named(false, &all), [all[0], all[1], all[3]]);
    }
}
