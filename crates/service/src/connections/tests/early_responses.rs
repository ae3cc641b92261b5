//! Requests whose response begins before their body has ended.

use super::*;

const TOO_LONG: usize = 900_000;

fn post(length: usize, sent: usize) -> String {
    let body = "x".repeat(sent);
    format!("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: {length}\r\n\r\n{body}")
}

/// The seconds until the connection closes after these requests, and the bytes received before.
async fn end_after(requests: &str) -> (u64, String) {
    let mut served = served();
    served.answers.add_permits(10);
    served.client.write_all(requests.as_bytes()).await.unwrap();
    end(&mut served.client).await
}

#[tokio::test(start_paused = true)]
async fn connection_whose_body_is_read_to_its_end_is_kept_like_any() {
    let two = post(200_000, 200_000) + REQUEST;
    for requests in [&post(200_000, 200_000), &two] {
        let (seconds, answers) = end_after(requests).await;
        // The header timeout, 10 seconds, does not apply.
        assert!((75..78).contains(&seconds), "{seconds}");
        assert_eq!(answers.matches("POST").count(), 0);
        assert!(!answers.contains("connection: close"), "{answers}");
    }
    assert_eq!(end_after(&two).await.1.matches("200 OK").count(), 2);
}

#[tokio::test(start_paused = true)]
async fn peer_has_two_seconds_to_read_a_response_before_the_reset() {
    let chunked = "POST / HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n";
    let waiting =
        "POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 9\r\nexpect: 100-continue\r\n\r\n";
    for request in [&post(TOO_LONG, TOO_LONG), chunked, waiting] {
        let (seconds, answers) = end_after(request).await;
        assert_eq!(seconds, 2);
        assert!(answers.starts_with("HTTP/1.1 200 OK"), "{answers}");
        assert!(answers.contains("connection: close"), "{answers}");
    }
    // A short body that never arrives.
    let (seconds, answers) = end_after(&post(200_000, 10)).await;
    assert_eq!(seconds, 2);
    assert!(!answers.contains("connection: close"), "{answers}");
}
