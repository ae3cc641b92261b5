//! Certificates for TLS, made by the `openssl` command.

use std::{fs, path::Path, process::Command};

/// The authority's certificate.
pub const AUTHORITY: &str = "ca.pem";
/// The server's certificate, signed by the authority, for 127.0.0.1 and localhost.
pub const CERTIFICATE: &str = "server.pem";
/// The server's key.
pub const KEY: &str = "server.key";

/// A client's certificate, signed by the authority, and its key.
pub const CLIENT: [&str; 2] = ["client.pem", "client.key"];

/// Makes all but the client's in the folder, unless they exist.
///
/// # Panics
///
/// If `openssl` is missing or fails.
pub fn make_certificates(folder: &Path) {
    if folder.join(CERTIFICATE).exists() {
        return;
    }
    let extensions = "subjectAltName=IP:127.0.0.1,DNS:localhost\n\
                      basicConstraints=CA:FALSE\n\
                      extendedKeyUsage=serverAuth\n";
    fs::write(folder.join("extensions"), extensions).expect("a file of extensions");
    openssl(
        folder,
        &[
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=test-authority \
             -keyout ca.key -out ca.pem",
            "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=test-server \
             -keyout server.key -out server.csr",
            "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 \
             -extfile extensions -out server.pem",
        ],
    );
}

/// Makes a client's certificate, by the existing authority.
///
/// # Panics
///
/// If `openssl` is missing or fails.
pub fn make_client_certificate(folder: &Path) {
    let extensions = "basicConstraints=CA:FALSE\nextendedKeyUsage=clientAuth\n";
    fs::write(folder.join("client.extensions"), extensions).expect("a file of extensions");
    openssl(
        folder,
        &[
            "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=test-client \
             -keyout client.key -out client.csr",
            "x509 -req -in client.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 \
             -extfile client.extensions -out client.pem",
        ],
    );
}

/// Makes a client's certificate that has expired, and replaces the existing one.
///
/// # Panics
///
/// If `openssl` is missing or fails.
pub fn make_expired_client_certificate(folder: &Path) {
    make_client_certificate(folder);
    expire(folder, "client.extensions", "client");
}

/// Replaces the server's certificate by one that has expired.
///
/// # Panics
///
/// If `openssl` is missing or fails.
pub fn make_expired_certificate(folder: &Path) {
    make_certificates(folder);
    expire(folder, "extensions", "server");
}

/// Signs the request `name.csr` again, with an end in the past.
fn expire(folder: &Path, extensions: &str, name: &str) {
    let config = "[ca]\ndefault_ca=test\n[test]\ndatabase=index\nnew_certs_dir=.\nrand_serial=yes\n\
                  default_md=sha256\npolicy=names\n[names]\ncommonName=supplied\n";
    fs::write(folder.join("ca.config"), config).expect("a configuration");
    fs::write(folder.join("index"), "").expect("a list of certificates");
    openssl(
        folder,
        &[&format!(
            "ca -batch -notext -config ca.config -cert ca.pem -keyfile ca.key -startdate 20200101000000Z \
             -enddate 20200201000000Z -extfile {extensions} -in {name}.csr -out {name}.pem",
        )],
    );
}

fn openssl(folder: &Path, commands: &[&str]) {
    for arguments in commands {
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
