//! A configuration file sets the limit of each route.

use axum::{Router, routing::get};
use std::{collections::HashMap, error::Error};
use tower_ratelimit::{PeerIp, RateLimitLayer, quota::OwnedQuota};

fn app(file: &str) -> Result<Router, Box<dyn Error>> {
    // "/search" = "10/minute"
    // "/export" = { rate = "2/minute", algorithm = "sliding_log", name = "export" }
    let mut app = Router::new();
    for (path, quota) in toml::from_str::<HashMap<String, OwnedQuota>>(file)? {
        let limit = RateLimitLayer::try_new(quota, PeerIp)?;
        app = app.route(&path, get(|| async { "hello" }).layer(limit));
    }
    Ok(app)
}

// The test, which is not on the page.

use crate::{
    page::recipe,
    test_requests::{Ask, field},
};

#[tokio::test]
async fn the_file_in_the_comment_is_read() {
    let code = recipe(include_str!("limits_from_a_configuration_file.rs"));
    let file = code
        .lines()
        .filter_map(|line| line.trim().strip_prefix("// \""));
    let file: String = file.map(|line| format!("\"{line}\n")).collect();
    let app = app(&file).unwrap();
    for (path, policy) in [
        ("/search", "\"default\";q=10;w=60"),
        ("/export", "\"export\";q=2;w=60"),
    ] {
        let answer = Ask::get(path).of(&app).await;
        assert_eq!(field(&answer, "ratelimit-policy"), policy);
    }
}

#[test]
fn a_mistake_in_the_file_is_reported() {
    let fault = app("\"/\" = \"10/fortnight\"").unwrap_err().to_string();
    assert!(fault.contains("fortnight"), "{fault}");
    let fault = app("\"/\" = \"0/minute\"").unwrap_err().to_string();
    assert!(fault.contains("limit"), "{fault}");
}
