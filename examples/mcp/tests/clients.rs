//! The clients of both crates against both servers.

use std::net::SocketAddr;

use axum::Router;
use rmcp::{
    ServiceExt as _, model::CallToolRequestParams, transport::StreamableHttpClientTransport,
};
use tower_mcp::client::{HttpClientTransport, McpClient};

async fn start(server: Router) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = example_mcp::limited(server);
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, app).await });
    format!("http://{address}/mcp")
}

/// The third search of a minute is denied, and other tools still answer. This client reads the status of a 429 and its
/// `Retry-After`, not its body.
async fn rmcp_client(url: String) {
    let client = ().serve(StreamableHttpClientTransport::from_uri(url)).await.unwrap();
    let call = |name: &'static str| client.call_tool(CallToolRequestParams::new(name));
    for _ in 0..2 {
        call("search").await.unwrap();
    }
    let denied = call("search").await.unwrap_err().to_string();
    assert!(denied.contains("HTTP 429"), "{denied}");
    call("echo").await.unwrap();
}

/// This client reads the error of JSON-RPC.
async fn tower_mcp_client(url: String) {
    let client = McpClient::connect(HttpClientTransport::new(&url))
        .await
        .unwrap();
    client.initialize("test", "1.0.0").await.unwrap();
    let call = |name: &'static str| client.call_tool_text(name, serde_json::json!({}));
    for _ in 0..2 {
        assert_eq!(call("search").await.unwrap(), "found");
    }
    let denied = call("search").await.unwrap_err().to_string();
    assert!(denied.contains("Too Many Requests"), "{denied}");
    assert_eq!(call("echo").await.unwrap(), "echo");
}

#[tokio::test]
async fn rmcp_with_its_own_client() {
    rmcp_client(start(example_mcp::rmcp_server()).await).await;
}

#[tokio::test]
async fn rmcp_with_the_other_client() {
    tower_mcp_client(start(example_mcp::rmcp_server()).await).await;
}

#[tokio::test]
async fn tower_mcp_with_its_own_client() {
    tower_mcp_client(start(example_mcp::tower_mcp_server()).await).await;
}

#[tokio::test]
async fn tower_mcp_with_the_other_client() {
    rmcp_client(start(example_mcp::tower_mcp_server()).await).await;
}
