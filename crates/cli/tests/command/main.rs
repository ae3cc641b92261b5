//! The command in this process: arguments, output and exit codes, logs and files of other servers, and the pages that show
//! its output. One program, since each links the whole command.

#[path = "../support/access_log.rs"]
mod access_log;
mod arguments;
#[cfg(feature = "serve")]
mod check_descriptors;
mod documented_output;
#[cfg(target_os = "linux")]
mod real_server_logs;
mod replay;
