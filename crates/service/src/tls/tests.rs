//! Certificates that change while the service runs, in tokio's paused time.

use testkit::{
    logged, needs,
    servers::certificates::{CERTIFICATE, KEY, make_certificates},
};
use tokio::{runtime::Builder, time::sleep};

use super::*;

#[test]
fn files_are_read_again_when_they_change() {
    needs!(openssl);
    let [now, next] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    make_certificates(now.path());
    make_certificates(next.path());
    let files = TlsFiles::new(now.path().join(CERTIFICATE), now.path().join(KEY));
    let tls = Tls::new(files).unwrap();
    let config = || Arc::as_ptr(&tls.config());
    let first = config();
    let copy = |file| fs::copy(next.path().join(file), now.path().join(file)).unwrap();
    let steps = async {
        sleep(3 * CHECK_TIME).await;
        // Between the two copies there is a fault, which is logged once.
        copy(KEY);
        sleep(3 * CHECK_TIME).await;
        assert_eq!(config(), first);
        fs::remove_file(now.path().join(CERTIFICATE)).unwrap();
        sleep(3 * CHECK_TIME).await;
        assert_eq!(config(), first);
        copy(CERTIFICATE);
        sleep(3 * CHECK_TIME).await;
        assert_ne!(config(), first);
    };
    let runtime = Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    let mut lines = logged(|| runtime.block_on(watch_during(steps, || tls.reload())));
    lines.retain(|line| line.contains("tower_ratelimit_service"));
    let [mismatch, missing, accepted] = lines.as_slice() else {
        panic!("{lines:?}");
    };
    for (line, level, text) in [
        (
            mismatch,
            "ERROR",
            "stay as they were: --tls-cert and --tls-key",
        ),
        (missing, "ERROR", "stay as they were: --tls-cert "),
        (accepted, " INFO", "read the certificates again"),
    ] {
        assert!(line.starts_with(level) && line.contains(text), "{line}");
    }
}

#[test]
fn fault_names_the_file_and_what_is_accepted() {
    needs!(openssl);
    let folder = tempfile::tempdir().unwrap();
    make_certificates(folder.path());
    let [cert, key, other] = [CERTIFICATE, KEY, "other.pem"].map(|file| folder.path().join(file));
    let fault = |cert: &Path, key: &Path| match Tls::new(TlsFiles::new(cert, key)) {
        Ok(_) => panic!("{} is accepted", cert.display()),
        Err(error) => error.to_string(),
    };
    for (error, words) in [
        (
            fault(&key, &key),
            &["--tls-cert", KEY, "no certificate in PEM", "there is"][..],
        ),
        (
            fault(&cert, &cert),
            &[
                "--tls-key",
                CERTIFICATE,
                "no private key",
                "there is CERTIFICATE",
            ],
        ),
    ] {
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
    }
    for (text, word) in [
        (
            &b"-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n"
                [..],
            "encrypted",
        ),
        (
            b"-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\nAAAA\n-----END EC PRIVATE KEY-----\n",
            "encrypted",
        ),
        (b"\x30\x82", "it is DER"),
        (b"", "no private key"),
    ] {
        fs::write(&other, text).unwrap();
        let error = fault(&cert, &other);
        assert!(error.contains("other.pem") && error.contains(word), "{error}");
    }
}
