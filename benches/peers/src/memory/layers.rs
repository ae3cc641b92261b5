//! Limiters that are called through their layers, with addresses or strings of 100 bytes as keys.

use axum::{Router, body::Body};
use axum_governor::{GovernorConfigBuilder, GovernorLayer, extractor::Extension};
use http::{Extensions, Request};
use tower_rate_limiter::{
    FixedWindow, GcraQuota, KeyExtractor, MemoryGcra, MemoryStore, RateLimitError, RateLimitLayer,
};

use crate::{
    decision::{BenchKey, LongText},
    middleware::{
        AXUM_GOVERNOR, Client, Direct, TOWER_RATE_LIMITER_GCRA, TOWER_RATE_LIMITER_WINDOW, app,
        find,
    },
    rate_conversions::Rate,
};

pub const KINDS: [&str; 3] = [
    AXUM_GOVERNOR,
    TOWER_RATE_LIMITER_GCRA,
    TOWER_RATE_LIMITER_WINDOW,
];

/// # Panics
///
/// When there is no such kind.
pub fn client(kind: &str, is_long: bool, rate: Rate) -> Box<dyn Client> {
    if !is_long {
        return find(kind).client(rate);
    }
    let router = match kind {
        AXUM_GOVERNOR => axum_governor(rate),
        TOWER_RATE_LIMITER_GCRA => gcra(rate),
        TOWER_RATE_LIMITER_WINDOW => window(rate),
        _ => panic!("no layer is called {kind:?}"),
    };
    Box::new(Direct {
        service: router.with_state(()),
        body: Body::empty,
        mark: insert_text,
    })
}

fn insert_text(extensions: &mut Extensions, client: u32) {
    let mut text = LongText::first();
    text.set(client);
    extensions.insert(text);
}

fn axum_governor(rate: Rate) -> Router {
    let config = GovernorConfigBuilder::default()
        .with_extractor(Extension::<LongText>::new())
        .quota_default(rate.governor().into())
        .finish();
    app().layer(GovernorLayer::new(config.expect("a good configuration")))
}

fn gcra(rate: Rate) -> Router {
    let quota = GcraQuota::new(1, rate.interval, rate.burst).expect("a good quota");
    let builder = RateLimitLayer::builder(InsertedText).with_policy(MemoryGcra::new(quota));
    app().layer(builder.build().expect("a good configuration"))
}

fn window(rate: Rate) -> Router {
    let (limit, window) = rate.as_window();
    let policy = FixedWindow::new(MemoryStore::new(), limit, window).expect("a good quota");
    let builder = RateLimitLayer::builder(InsertedText).with_policy(policy);
    app().layer(builder.build().expect("a good configuration"))
}

#[derive(Clone)]
struct InsertedText;

impl KeyExtractor for InsertedText {
    type Key = String;

    fn extract<T>(&self, request: &Request<T>) -> Result<String, RateLimitError> {
        let text = request.extensions().get::<LongText>();
        let text = text.map(|text| text.0.clone());
        text.ok_or_else(|| RateLimitError::Key("no_text".to_owned(), "no text".to_owned()))
    }
}
