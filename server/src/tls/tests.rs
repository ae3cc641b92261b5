//! Certificates that change while the service runs; the clock is tokio's.

use testkit::{
    needs,
    servers::certificates::{CERTIFICATE, KEY, make_certificates},
};

use super::*;

#[tokio::test(start_paused = true)]
async fn files_are_read_again_when_they_change() {
    needs!(openssl);
    let [now, next] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    make_certificates(now.path());
    make_certificates(next.path());
    let files = TlsFiles::new(now.path().join(CERTIFICATE), now.path().join(KEY));
    let tls = Tls::new(files).unwrap();
    let said = Mutex::new(Vec::new());
    let say = |line: String| said.lock().unwrap().push(line);
    let config = || Arc::as_ptr(&tls.0.current.lock().unwrap().config);
    let first = config();
    let copy = |file| fs::copy(next.path().join(file), now.path().join(file)).unwrap();
    let steps = async {
        sleep(3 * CHECK_TIME).await;
        assert_eq!((config(), said.lock().unwrap().len()), (first, 0));
        // In the middle of an exchange there is a fault, which is told once.
        copy(KEY);
        sleep(3 * CHECK_TIME).await;
        assert_eq!((config(), said.lock().unwrap().len()), (first, 1));
        fs::remove_file(now.path().join(CERTIFICATE)).unwrap();
        sleep(3 * CHECK_TIME).await;
        assert_eq!((config(), said.lock().unwrap().len()), (first, 2));
        copy(CERTIFICATE);
        sleep(3 * CHECK_TIME).await;
        assert_ne!(config(), first);
        let said = said.lock().unwrap();
        assert_eq!(said.len(), 3);
        assert_eq!(said[2], "read the certificates again");
    };
    watch_during(steps, Some(&tls), &say).await;
}
