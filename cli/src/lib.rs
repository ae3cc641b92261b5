//! The commands of `tower-ratelimit`: `check`, `explain`, `replay`, `schema`, and `serve`, `envoy`, `gateway`,
//! `healthcheck` and `top` with the feature `serve`.
//!
//! The program is [`run`] with the arguments of the process. It is a library so that tests and other
//! programs need no process.

mod arguments;
mod check;
#[cfg(feature = "serve")]
mod envoy;
mod explain;
#[cfg(feature = "serve")]
mod gateway;
#[cfg(feature = "serve")]
mod healthcheck;
#[cfg(feature = "serve")]
mod log;
#[cfg(feature = "serve")]
mod options;
mod output;
mod replay;
mod request;
#[cfg(feature = "serve")]
mod serve;
mod time;
#[cfg(feature = "serve")]
mod tls;
#[cfg(feature = "serve")]
mod top;

/// The questions of fuzz targets to the program.
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::replay::{LogLine, read_line};
}

use std::{ffi::OsString, io::Write};

use clap::Parser;

use self::arguments::{Arguments, Command};

/// Nothing is wrong.
const OK: u8 = 0;
/// There are faults, or warnings where these are denied.
const FAULTS: u8 = 1;
/// The arguments are wrong, or a file cannot be read.
const USAGE: u8 = 2;

/// Runs the program: writes to `out` and `errors`, with colours or without, and returns the exit
/// code: 0 if all is well, 1 if there are faults, 2 for wrong arguments and unreadable files.
pub fn run<I, T>(arguments: I, colours: bool, out: &mut dyn Write, errors: &mut dyn Write) -> u8
where
    I: IntoIterator<Item = T>,
    T: Into<OsString> + Clone,
{
    let arguments = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(error) => {
            let to: &mut dyn Write = if error.use_stderr() { errors } else { out };
            let _ = write!(to, "{error}");
            return if error.use_stderr() { USAGE } else { OK };
        }
    };
    let done = match arguments.command {
        Command::Check(check) => check::check(&check, colours),
        Command::Schema => Ok((tower_ratelimit::rules::schema(), OK)),
        Command::Replay(replay) => replay::replay(&replay, out).map(|exit| (String::new(), exit)),
        #[cfg(feature = "serve")]
        Command::Serve(serve) => serve::serve(*serve).map(|()| (String::new(), OK)),
        #[cfg(feature = "serve")]
        Command::Envoy => envoy::envoy().map(|()| (String::new(), OK)),
        #[cfg(feature = "serve")]
        Command::Healthcheck(asked) => {
            let (line, is_ready) = healthcheck::healthcheck(&asked);
            Ok((line, if is_ready { OK } else { FAULTS }))
        }
        #[cfg(feature = "serve")]
        Command::Gateway(gateway) => gateway::gateway(*gateway).map(|()| (String::new(), OK)),
        #[cfg(feature = "serve")]
        Command::Top(asked) => top::top(&asked, out).map(|()| (String::new(), OK)),
        Command::Explain { quota } => explain::explain(&quota.join(" ")).map(|text| (text, OK)),
    };
    match done {
        // A reader that closed the pipe has read enough.
        Ok((text, exit)) => {
            let _ = out.write_all(text.as_bytes());
            exit
        }
        Err(message) => {
            let _ = writeln!(errors, "error: {message}");
            USAGE
        }
    }
}
