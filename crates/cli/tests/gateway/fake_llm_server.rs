//! A server of language models: responds by the published formats, with as much output as a request allows.

use serde_json::{Value, from_str};
use testkit::llm::{bodies, formats::of_4_000_tokens};

use crate::raw_http1::Wire;

/// Whether a path is one of the formats'.
pub(crate) fn responds_to(path: &str) -> bool {
    let formats = ["/completions", "/responses", "/messages", "/embeddings"];
    formats.iter().any(|format| path.ends_with(format))
}

/// Responds to a request of one of the formats, whole or as a stream of events, a chunk each.
pub(crate) async fn respond(wire: &mut Wire, path: &str, request: &str) {
    let request: Value = from_str(request).unwrap();
    let number = |name: &str| request[name].as_u64();
    let output = ["max_completion_tokens", "max_output_tokens", "max_tokens"];
    let output = output.into_iter().find_map(number).unwrap_or(0);
    let words = bodies::words(usize::try_from(output).unwrap());
    let is_stream = request["stream"] == true;
    let body = match (path.rsplit('/').next().unwrap(), is_stream) {
        ("completions", false) => bodies::chat(11, output),
        ("completions", true) => {
            let has_usage = request["stream_options"]["include_usage"] == true;
            bodies::chat_stream(&words, has_usage.then_some((11, output)))
        }
        ("responses", false) => bodies::responses(20, output),
        ("responses", true) => bodies::responses_stream(&words, 20, output, "response.completed"),
        ("messages", false) => bodies::messages(25, output),
        ("messages", true) => bodies::messages_stream(&words, 25, output),
        _ => bodies::embeddings(30, 8),
    };
    let kind = if is_stream {
        "text/event-stream"
    } else {
        "application/json"
    };
    wire.request(&format!(
        "HTTP/1.1 200 OK\ncontent-type: {kind}\ntransfer-encoding: chunked"
    ))
    .await;
    for event in body.split_inclusive("\n\n") {
        wire.send(format!("{:x}\r\n{event}\r\n", event.len())).await;
    }
    wire.send("0\r\n\r\n").await;
}

/// Responds in one of the formats that servers have, by its number: `/format/0`.
pub(crate) async fn serve(wire: &mut Wire, path: &str) {
    let number = path.trim_start_matches("/format/");
    let served = of_4_000_tokens().remove(number.parse().unwrap());
    let mut head = format!(
        "HTTP/1.1 200 OK\ncontent-type: {}\ncontent-length: {}",
        served.content_type,
        served.body.len()
    );
    for (name, value) in served.headers {
        head += &format!("\n{name}: {value}");
    }
    wire.request(&head).await;
    wire.send(served.body).await;
}
