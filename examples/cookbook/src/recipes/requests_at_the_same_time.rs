//! A rule file limits the downloads that an address runs at the same time.

use axum::{Router, routing::get};
use tower_ratelimit::rules::{Rules, RulesError, RulesLayer};

fn app(file: &str) -> Result<Router, RulesError> {
    // rules: [{name: downloads, match: {path: /download}, in_flight: 2}]
    let rules = Rules::builder().accept_in_flight(true).read(file)?;
    // Its responses hold the permits until they have ended.
    let layer = RulesLayer::new(rules).holding();
    Ok(Router::new().route("/download", get(download)).layer(layer))
}

// The test, which is not on the page.

use crate::test_requests::{Ask, text};

async fn download() -> &'static str {
    "a long text"
}

#[tokio::test]
async fn permit_is_held_until_the_download_has_ended() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules.yaml");
    let rules = "rules: [{name: downloads, match: {path: /download}, in_flight: 2}]";
    std::fs::write(&file, rules).unwrap();
    let app = app(file.to_str().unwrap()).unwrap();
    let open = async || Ask::get("/download").of(&app).await;
    let (first, second) = (open().await, open().await);
    assert_eq!(open().await.status(), 429);
    assert_eq!(text(first).await, "a long text");
    let third = open().await;
    assert_eq!(third.status(), 200);
    drop((second, third));
    assert_eq!(open().await.status(), 200);
}
