//! The commands of `tower-ratelimit`: `check`, `explain`, `replay`, `schema`, and `serve`, `envoy`, `gateway`,
//! `healthcheck` and `top` with the feature `serve`.
//!
//! The program is [`run`] with the arguments of the process. It is a library so that tests and
//! other programs need no process.

mod exit;
mod plural;

mod response_charge;

mod output;

mod check;
mod explain;
mod replay;

#[cfg(feature = "serve")]
mod service_log;

#[cfg(feature = "serve")]
mod common_options;
#[cfg(feature = "serve")]
mod runtime;

#[cfg(feature = "serve")]
mod envoy_drop_in;
#[cfg(feature = "serve")]
mod gateway;
#[cfg(feature = "serve")]
mod healthcheck;
#[cfg(feature = "serve")]
mod serve;
#[cfg(feature = "serve")]
mod top;

mod arguments;

use std::{
    ffi::OsString,
    io::{self, Write},
    path::Path,
};

use clap::{Parser, error::ErrorKind};

use self::{
    arguments::{Arguments, Command},
    exit::{OK, USAGE},
};

/// Runs the program: writes to `out` and `errors`, with colours or without, and returns the exit
/// code: 0 if all is well, 1 if there are faults, 2 for wrong arguments and unreadable files.
pub fn run<I, T>(arguments: I, colours: bool, out: &mut dyn Write, errors: &mut dyn Write) -> u8
where
    I: IntoIterator<Item = T>,
    T: Into<OsString> + Clone,
{
    let arguments = as_reference(arguments.into_iter().map(Into::into).collect());
    let arguments = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help without arguments goes to the standard output.
            let is_help = error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
            let is_fault = error.use_stderr() && !is_help;
            let to: &mut dyn Write = if is_fault { errors } else { out };
            let _ = write!(to, "{error}");
            return if is_fault { USAGE } else { OK };
        }
    };
    match run_command(arguments.command, colours, out, errors) {
        Ok((text, exit)) => {
            let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
            match written {
                Ok(()) => exit,
                // The reader closed the pipe: no error.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => exit,
                Err(error) => {
                    let _ = writeln!(errors, "error: the output cannot be written: {error}");
                    USAGE
                }
            }
        }
        Err(message) => {
            let _ = writeln!(errors, "error: {message}");
            USAGE
        }
    }
}

/// The arguments with the command `envoy`, if the program has the name of Envoy's reference service and no arguments: then
/// only the image of a container changes.
fn as_reference(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let is_reference = |program: &OsString| {
        cfg!(feature = "serve") && Path::new(program).file_name() == Some("ratelimit".as_ref())
    };
    if let [program] = &*arguments
        && is_reference(program)
    {
        arguments.push("envoy".into());
    }
    arguments
}

/// Runs a command. Returns the text to print, and the exit code.
fn run_command(
    command: Command,
    colours: bool,
    out: &mut dyn Write,
    errors: &mut dyn Write,
) -> Result<(String, u8), String> {
    match command {
        Command::Check(check) => check::check(&check, colours),
        Command::Schema => Ok((tower_ratelimit::rules::schema(), OK)),
        Command::Replay(replay) => replay.run(out, errors).map(|exit| (String::new(), exit)),
        #[cfg(feature = "serve")]
        Command::Serve(serve) => serve::serve(*serve).map(|()| (String::new(), OK)),
        #[cfg(feature = "serve")]
        Command::Envoy => envoy_drop_in::envoy().map(|()| (String::new(), OK)),
        #[cfg(feature = "serve")]
        Command::Healthcheck(arguments) => {
            let (line, is_ready) = healthcheck::healthcheck(&arguments);
            Ok((line, if is_ready { OK } else { exit::FAULTS }))
        }
        #[cfg(feature = "serve")]
        Command::Gateway(gateway) => gateway::gateway(*gateway).map(|()| (String::new(), OK)),
        #[cfg(feature = "serve")]
        Command::Top(arguments) => top::top(&arguments, out).map(|()| (String::new(), OK)),
        Command::Explain { quota } => explain::explain(&quota.join(" ")).map(|text| (text, OK)),
    }
}
