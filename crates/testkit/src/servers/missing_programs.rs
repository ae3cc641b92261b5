//! Programs that a test may have to do without, see [`missing`].

use std::env;

use super::{
    postgres::postgres_program,
    server_settings::{faketime_library, redis_program, valkey_program},
};
use crate::child_processes::{find, missing};

/// Whether the test has to be left out because there is no Redis.
pub fn redis() -> bool {
    missing(
        redis_program().is_some(),
        "redis-server",
        "apt-get install redis-server",
    )
}

/// Whether the test has to be left out because there is no Valkey.
pub fn valkey() -> bool {
    let install = "export VALKEY_SERVER=\"$(bash scripts/get-valkey.sh)\"";
    missing(valkey_program().is_some(), "valkey-server", install)
}

/// Whether the test has to be left out because there is no Envoy.
pub fn envoy() -> bool {
    let install = "export ENVOY=\"$(bash scripts/get-envoy.sh)\"";
    missing(find("envoy", Some("ENVOY")).is_some(), "envoy", install)
}

/// Whether the test has to be left out because there is no twemproxy.
pub fn twemproxy() -> bool {
    let install = "apt-get install nutcracker";
    missing(find("nutcracker", None).is_some(), "nutcracker", install)
}

/// Whether the test has to be left out because there is no gRPC client for Python, with Envoy's protocol.
pub fn grpcio() -> bool {
    let install = "export GRPCIO=\"$(bash scripts/get-grpcio.sh)\"";
    missing(has_packages("GRPCIO"), "grpcio with xds-protos", install)
}

/// Whether the test has to be left out because there are no official clients of language models for Python.
pub fn llm_clients() -> bool {
    let install = "export LLM_CLIENTS=\"$(bash scripts/get-llm-clients.sh)\"";
    missing(has_packages("LLM_CLIENTS"), "openai and anthropic", install)
}

/// Whether there is a Python, and this variable names a folder of packages for it.
fn has_packages(variable: &str) -> bool {
    find("python3", None).is_some() && env::var_os(variable).is_some()
}

/// Whether the test has to be left out because no server's clock can be stepped.
pub fn fake_clock() -> bool {
    valkey()
        || missing(
            faketime_library().is_some(),
            "libfaketime",
            "apt-get install libfaketime",
        )
}

/// Whether the test has to be left out because no certificates can be made.
pub fn openssl() -> bool {
    missing(
        find("openssl", None).is_some(),
        "openssl",
        "apt-get install openssl",
    )
}

/// Whether the test has to be left out because there is no Postgres.
pub fn postgres() -> bool {
    let there = postgres_program("initdb").is_some() && postgres_program("postgres").is_some();
    missing(there, "postgres", "apt-get install postgresql")
}

/// Whether the test has to be left out because there is no PgBouncer.
pub fn pgbouncer() -> bool {
    let there = find("pgbouncer", None).is_some();
    missing(there, "pgbouncer", "apt-get install pgbouncer")
}
