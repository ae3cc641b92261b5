//! The commands of `tower-ratelimit`: `check`, `explain`, `replay`, `schema`, and `serve`, `envoy`, `gateway`,
//! `healthcheck` and `top` with the feature `serve`.
//!
//! The program is [`run`] with the arguments of the process. It is a library so that tests and
//! other programs need no process.

mod check_response_charge;
mod findings_report;

mod check;
#[cfg(feature = "serve")]
mod check_descriptors;
mod explain_quota;
mod replay;

#[cfg(feature = "serve")]
mod service_log;

#[cfg(feature = "serve")]
mod envoy_drop_in;
#[cfg(feature = "serve")]
mod healthcheck;
#[cfg(feature = "serve")]
mod top;

use std::{
    ffi::OsString,
    io::{self, Write},
    path::Path,
};

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand, error::ErrorKind};

use self::{
    check::Check,
    findings_report::{FAULTS, Findings, OK, USAGE},
};

/// Limits of tower-ratelimit: check rule files, explain quotas, try both on access logs, and serve
/// them.
#[derive(Debug, Parser)]
#[command(name = "tower-ratelimit", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Checks rule files. With --request, explains which rules apply to it.
    ///
    /// Exit codes: 0 without faults, 1 with faults, 2 for wrong arguments and unreadable files.
    Check(Box<Check>),
    /// Replays access logs against limits before they are in force.
    ///
    /// Exit codes: 0 on success, 1 if no line could be read, 2 for wrong arguments and files that
    /// cannot be opened, 3 if a larger share is limited than --fail-above allows.
    Replay(Box<replay::Replay>),
    /// Serves limits to Envoy and other proxies, by rule files of Envoy's reference service.
    ///
    /// SIGTERM drains and stops the service, SIGHUP reads the files again. Each option can be set
    /// by an environment variable, such as TOWER_RATELIMIT_GRPC. Exit codes: 0 after a signal, 2
    /// for wrong arguments and files.
    #[cfg(feature = "serve")]
    Serve(Box<service_log::Logged<tower_ratelimit_envoy::serve::Settings>>),
    /// Serves limits to Envoy as a drop-in for its reference service, by the same environment
    /// variables.
    ///
    /// RUNTIME_ROOT, GRPC_PORT, REDIS_URL and so on; its page lists them. Changed
    /// files are read again. Exit codes as for `serve`.
    #[cfg(feature = "serve")]
    Envoy,
    /// Checks whether a service is ready: exits with 0 if it is, else with 1.
    #[cfg(feature = "serve")]
    Healthcheck(healthcheck::Healthcheck),
    /// Forwards requests to a server, and limits them by rule files.
    ///
    /// SIGTERM drains and stops the gateway, SIGHUP reads the files again. Each option can be set
    /// by an environment variable, such as TOWER_RATELIMIT_UPSTREAM. Exit codes: 0 after a signal,
    /// 2 for wrong arguments and files.
    #[cfg(feature = "serve")]
    Gateway(Box<service_log::Logged<tower_ratelimit_gateway::Settings>>),
    /// Lists the keys that a service denies most often.
    #[cfg(feature = "serve")]
    Top(top::Top),
    /// Prints the JSON Schema of rule files, for editors.
    Schema,
    /// Explains what a quota allows, such as "100/minute burst 200".
    Explain {
        /// The quota, with or without quotes.
        #[arg(required = true)]
        quota: Vec<String>,
    },
}

/// Runs the program: writes to `out` and `errors`, with colours or without, and returns the exit
/// code: 0 if all is well, 1 if there are faults, 2 for wrong arguments and unreadable files.
pub fn run<I, T>(arguments: I, colours: bool, out: &mut dyn Write, errors: &mut dyn Write) -> u8
where
    I: IntoIterator<Item = T>,
    T: Into<OsString> + Clone,
{
    let arguments = as_reference(arguments.into_iter().map(Into::into).collect());
    let mut program = program();
    let matches = program.try_get_matches_from_mut(arguments);
    let parsed = matches.and_then(|matches| Arguments::from_arg_matches(&matches));
    let arguments = match parsed.map_err(|error| error.format(&mut program)) {
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

/// The commands with their options. Each option of a service has an environment variable with its name, as in
/// `TOWER_RATELIMIT_GRPC` for `--grpc`.
#[cfg(feature = "serve")]
fn program() -> clap::Command {
    let with_variable = |option: clap::Arg| match option.get_env() {
        Some(_) => option,
        None => {
            let name = option.get_id().as_str().to_ascii_uppercase();
            option.env(format!("TOWER_RATELIMIT_{name}"))
        }
    };
    let services = ["serve", "gateway", "healthcheck"].into_iter();
    services.fold(Arguments::command(), |program, service| {
        program.mut_subcommand(service, |service| service.mut_args(with_variable))
    })
}

#[cfg(not(feature = "serve"))]
fn program() -> clap::Command {
    Arguments::command()
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
        Command::Check(check) => {
            findings(&check).map(|found| found.print(check.deny_warnings, check.output, colours))
        }
        Command::Schema => Ok((tower_ratelimit::rules::schema(), OK)),
        Command::Replay(replay) => replay.run(out, errors).map(|exit| (String::new(), exit)),
        #[cfg(feature = "serve")]
        Command::Serve(service) => {
            let served = service.run(tower_ratelimit_envoy::serve::serve);
            served.map(|()| (String::new(), OK))
        }
        #[cfg(feature = "serve")]
        Command::Envoy => envoy_drop_in::envoy().map(|()| (String::new(), OK)),
        #[cfg(feature = "serve")]
        Command::Healthcheck(arguments) => {
            let (line, is_ready) = healthcheck::healthcheck(&arguments);
            Ok((line, if is_ready { OK } else { FAULTS }))
        }
        #[cfg(feature = "serve")]
        Command::Gateway(service) => {
            let served = service.run(tower_ratelimit_gateway::serve);
            served.map(|()| (String::new(), OK))
        }
        #[cfg(feature = "serve")]
        Command::Top(arguments) => top::top(&arguments, out).map(|()| (String::new(), OK)),
        Command::Explain { quota } => {
            explain_quota::explain(&quota.join(" ")).map(|text| (text, OK))
        }
    }
}

/// Checks rules of requests, or files of Envoy's rate limit service.
fn findings(check: &Check) -> Result<Findings, String> {
    #[cfg(feature = "serve")]
    if check_descriptors::is_meant(check) {
        return check_descriptors::check(check);
    }
    check::check(check)
}

#[cfg(all(test, feature = "serve"))]
mod tests {
    use clap::{Arg, Command};

    use super::program;

    fn options<'c>(arguments: &'c Command, command: &str) -> Vec<&'c Arg> {
        let command = arguments.find_subcommand(command).expect("a command");
        command.get_arguments().collect()
    }

    /// The properties that must be equal.
    fn facts(option: &Arg) -> [String; 5] {
        [
            format!("{:?}", option.get_help()),
            format!("{:?}", option.get_env()),
            format!("{:?}", option.get_value_names()),
            format!("{:?}", option.get_default_values()),
            format!("{:?}", option.get_help_heading()),
        ]
    }

    #[test]
    fn options_of_one_name_are_one_option() {
        let arguments = program();
        let of_serve = options(&arguments, "serve");
        let mut shared = Vec::new();
        for option in options(&arguments, "gateway") {
            let twin = of_serve
                .iter()
                .find(|other| other.get_id() == option.get_id());
            // Their rules and HTTP routes differ.
            let differs = ["rules", "http"].contains(&option.get_id().as_str());
            if let Some(twin) = twin.filter(|_| !differs) {
                assert_eq!(facts(option), facts(twin), "{}", option.get_id());
                shared.push(option.get_id().as_str());
            }
        }
        for expected in [
            "watch",
            "redis",
            "redis_deadline",
            "tls_cert",
            "admin",
            "drain",
            "log_level",
        ] {
            assert!(
                shared.contains(&expected),
                "{expected} is not in both: {shared:?}"
            );
        }
    }
}
