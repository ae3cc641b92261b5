//! Readers of responses of language models: an event of a stream, and a large JSON body.
#![allow(clippy::unwrap_used, missing_docs)]

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use http::Response;
use testkit::llm::bodies;
use tower_ratelimit::spend::{
    SpendReader, SpendReaders, Tokens,
    llm::{Llm, LlmReader},
};

fn reader(content_type: &str) -> LlmReader {
    let response = Response::builder().header("content-type", content_type);
    let (head, ()) = response.body(()).unwrap().into_parts();
    let mut tokens = Tokens::default();
    Llm::any().reader(&head, &mut tokens).unwrap()
}

fn bench(criterion: &mut Criterion) {
    let stream = bodies::chat_stream(&["word7 ".to_owned()], Some((1, 1)));
    let event = stream.split_inclusive("\n\n").nth(1).unwrap();
    let mut tokens = Tokens::default();
    let mut events = reader("text/event-stream");
    let name = format!("an event of {} bytes", event.len());
    criterion.bench_function(&name, |bencher| {
        bencher.iter(|| events.data(black_box(event.as_bytes()), &mut tokens));
    });

    let chat = bodies::chat(9, 9).replace("there", &"lorem ipsum\\n ".repeat((1 << 20) / 14));
    let embeddings = bodies::embeddings(9, (1 << 20) / 20);
    let mut group = criterion.benchmark_group("JSON");
    for (name, body) in [("chat", chat), ("embeddings", embeddings)] {
        group.throughput(Throughput::Bytes(body.len() as u64));
        let mut json = reader("application/json");
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                for frame in body.as_bytes().chunks(16_384) {
                    json.data(black_box(frame), &mut tokens);
                }
            });
        });
    }
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
