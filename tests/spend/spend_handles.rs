//! Handles for handlers that report units, while the layer settles and while it calls closures of the user.

use std::{
    sync::{Arc, Mutex, mpsc},
    thread,
    time::Duration,
};

use http::{Request, Response};
use testkit::limiter;
use tower::{Layer, ServiceExt, service_fn};
use tower_ratelimit::{
    Global, Limiter, RateLimitLayer, SpendLayer,
    rate_limit::{SpendBody, Spent},
    spend::Tokens,
};

use crate::{
    streams::{quota, settle, slow, taken},
    test_responses::chat,
};

/// The body of a response, and the handle of its handler.
async fn stream_with_handle<L>(
    layer: &SpendLayer<L>,
    body: testkit::llm::StreamingBody,
) -> (SpendBody<testkit::llm::StreamingBody>, Spent)
where
    L: Limiter,
{
    let (handle, body) = (Arc::new(Mutex::new(None)), Arc::new(Mutex::new(Some(body))));
    let kept = Arc::clone(&handle);
    let service = layer.layer(service_fn(move |request: Request<()>| {
        *kept.lock().unwrap() = request.extensions().get::<Spent>().cloned();
        let head = Response::builder().header("content-type", crate::EVENTS);
        let response = head.body(body.lock().unwrap().take().unwrap()).unwrap();
        async move { Ok::<_, std::io::Error>(response) }
    }));
    let response = service.oneshot(Request::new(())).await.unwrap();
    let handle = handle.lock().unwrap().take().unwrap();
    (response.into_body(), handle)
}

#[tokio::test]
async fn units_that_are_added_while_the_account_settles_are_charged() {
    for keeps_handle in [true, false] {
        let (limiter, gate, layer) = slow();
        gate.add_permits(1);
        let (body, spent) = stream_with_handle(&layer, chat(4, Some((5, 10)))).await;
        // The refund waits for the limiter.
        drop(body);
        settle().await;
        spent.add(&Tokens::output(200));
        let _kept = keeps_handle.then_some(spent);
        gate.add_permits(2);
        settle().await;
        assert_eq!((taken(&limiter), gate.available_permits()), (200, 0));
    }
}

#[test]
fn closures_of_the_user_may_use_the_handle() {
    let (done, ended) = mpsc::channel();
    thread::spawn(move || {
        let (limiter, _) = limiter(quota());
        let handle: Arc<Mutex<Option<Spent>>> = Arc::default();
        let (by_reader, by_units) = (Arc::clone(&handle), Arc::clone(&handle));
        let layer = RateLimitLayer::new(limiter.clone(), Global)
            .spending(move |_: &http::response::Parts| {
                let handle = Arc::clone(&by_reader);
                Some(move |data: &[u8], tokens: &mut Tokens| {
                    if let Some(spent) = &*handle.lock().unwrap() {
                        spent.model("small");
                        assert_eq!(spent.so_far().output, tokens.output);
                    }
                    tokens.output += data.len() as u64;
                })
            })
            .spends(move |tokens| {
                let spent = by_units.lock().unwrap().clone();
                spent.map_or(tokens.total(), |spent| {
                    assert_eq!(spent.so_far().model(), tokens.model());
                    spent.so_far().total()
                })
            });
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let (body, spent) = runtime
            .unwrap()
            .block_on(stream_with_handle(&layer, chat(1, None)));
        *handle.lock().unwrap() = Some(spent.clone());
        crate::test_responses::read(body);
        done.send((taken(&limiter), spent.so_far())).unwrap();
    });
    let (taken, so_far) = ended
        .recv_timeout(Duration::from_secs(60))
        .expect("no closure waits for itself");
    assert_eq!((taken, so_far.model()), (so_far.output, Some("small")));
}
