//! nginx and HAProxy, each with the configuration that their manuals and the web recommend.

use std::{fs, path::Path, process::Command};

use tempfile::TempDir;
use testkit::child_processes::{Process, eventually, find, free_port, missing};
use tokio::net::TcpStream;

use crate::app::ForwardingHeader;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Nginx,
    Haproxy,
}

impl Kind {
    const fn program(self) -> &'static str {
        match self {
            Self::Nginx => "nginx",
            Self::Haproxy => "haproxy",
        }
    }

    /// Whether the test has to be left out because the proxy is not installed.
    pub(crate) fn is_missing(self) -> bool {
        let program = self.program();
        let there = find(program, None).is_some();
        missing(there, program, &format!("apt-get install {program}"))
    }

    fn config(self, port: u16, app: u16, header: ForwardingHeader) -> String {
        match self {
            Self::Nginx => nginx(port, app, header),
            Self::Haproxy => haproxy(port, app, header),
        }
    }

    fn command(self, folder: &Path) -> Command {
        let mut command = Command::new(find(self.program(), None).expect("the proxy"));
        command.current_dir(folder);
        match self {
            Self::Nginx => command.args(["-e", "stderr", "-p", ".", "-c", "config"]),
            Self::Haproxy => command.args(["-db", "-f", "config"]),
        };
        command
    }
}

/// A proxy on a free port of 127.0.0.1, until it is dropped.
#[derive(Debug)]
pub(crate) struct Proxy {
    _process: Process,
    _folder: TempDir,
    port: u16,
}

impl Proxy {
    /// Starts it before the application that listens on `app`.
    ///
    /// # Panics
    ///
    /// With what it printed, if it does not start.
    pub(crate) async fn start(kind: Kind, app: u16, header: ForwardingHeader) -> Self {
        Self::with(kind, |port| kind.config(port, app, header)).await
    }

    /// Starts it with the configuration for a port.
    ///
    /// # Panics
    ///
    /// With what it printed, if it does not start.
    pub(crate) async fn with(kind: Kind, config: impl Fn(u16) -> String) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let log = folder.path().join("log");
        // Between finding a port and listening on it another process may take it.
        for _ in 0..5 {
            let port = free_port();
            fs::write(folder.path().join("config"), config(port)).expect("a configuration file");
            let mut process = Process::start(&mut kind.command(folder.path()), &log);
            if listens(&mut process, port).await {
                return Self {
                    _process: process,
                    _folder: folder,
                    port,
                };
            }
            let text = process.log();
            assert!(
                text.to_lowercase().contains("address already in use"),
                "{text}"
            );
        }
        panic!("no port was free");
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }
}

/// Whether it listens on the port; it does not if it ends before.
async fn listens(process: &mut Process, port: u16) -> bool {
    eventually("a proxy that listens", async || {
        if process.has_ended() {
            return Some(false);
        }
        TcpStream::connect(("127.0.0.1", port))
            .await
            .ok()
            .map(|_| true)
    })
    .await
}

/// One process, so that none is left when it is killed. Its connections to the application are kept
/// open and shared by all clients.
fn nginx(port: u16, app: u16, header: ForwardingHeader) -> String {
    let name = header.header();
    let value = match header {
        ForwardingHeader::XForwardedFor => "$proxy_add_x_forwarded_for",
        // On the line that the client sent, whatever stands there.
        ForwardingHeader::Forwarded => "\"$http_forwarded, for=$remote_addr\"",
        ForwardingHeader::XRealIp => "$remote_addr",
    };
    nginx_http(&format!(
        "upstream app {{
             server 127.0.0.1:{app};
             keepalive 4;
         }}
         server {{
             listen 127.0.0.1:{port};
             location / {{
                 proxy_pass http://app;
                 proxy_http_version 1.1;
                 proxy_set_header Connection \"\";
                 proxy_set_header {name} {value};
             }}
         }}"
    ))
}

/// The block `http` of nginx, with everything around it.
pub(crate) fn nginx_http(block: &str) -> String {
    format!(
        "daemon off;
         master_process off;
         pid nginx.pid;
         error_log stderr;
         events {{ worker_connections 64; }}
         http {{
             access_log off;
             client_body_temp_path body;
             proxy_temp_path proxy;
             fastcgi_temp_path fastcgi;
             uwsgi_temp_path uwsgi;
             scgi_temp_path scgi;
             {block}
         }}\n"
    )
}

/// One thread, as each has connections to the application of its own.
fn haproxy(port: u16, app: u16, header: ForwardingHeader) -> String {
    let header = match header {
        ForwardingHeader::XForwardedFor => "option forwardfor",
        // On a line of its own, after those that the client sent.
        ForwardingHeader::Forwarded => "http-request add-header Forwarded for=%[src]",
        ForwardingHeader::XRealIp => "http-request set-header X-Real-IP %[src]",
    };
    format!(
        "global
             maxconn 64
             nbthread 1
         defaults
             mode http
             timeout connect 10s
             timeout client 60s
             timeout server 60s
         frontend clients
             bind 127.0.0.1:{port}
             {header}
             default_backend app
         backend app
             http-reuse always
             server app 127.0.0.1:{app}\n"
    )
}
