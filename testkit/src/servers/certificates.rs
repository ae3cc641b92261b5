//! Certificates for TLS, made by the `openssl` command.

use std::{fs, path::Path, process::Command};

/// The authority's certificate.
pub(super) const AUTHORITY: &str = "ca.pem";
/// The server's certificate, signed by the authority, for 127.0.0.1 and localhost.
pub(super) const CERTIFICATE: &str = "server.pem";
/// The server's key.
pub(super) const KEY: &str = "server.key";

/// Makes them in the folder, unless they are there.
pub(super) fn make_certificates(folder: &Path) {
    if folder.join(CERTIFICATE).exists() {
        return;
    }
    let extensions = "subjectAltName=IP:127.0.0.1,DNS:localhost\n\
                      basicConstraints=CA:FALSE\n\
                      extendedKeyUsage=serverAuth\n";
    fs::write(folder.join("extensions"), extensions).expect("a file of extensions");
    for arguments in [
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=test-authority \
         -keyout ca.key -out ca.pem",
        "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=test-server \
         -keyout server.key -out server.csr",
        "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 \
         -extfile extensions -out server.pem",
    ] {
        let mut openssl = Command::new("openssl");
        let output = openssl
            .args(arguments.split_whitespace())
            .current_dir(folder)
            .output();
        let output = output.expect("openssl can be started");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "openssl {arguments}: {text}");
    }
}
