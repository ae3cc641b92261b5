//! Two servers with the tools `search` and `echo`, and the limits around them.

use axum::Router;
use rmcp::{
    ServerHandler, tool, tool_handler, tool_router,
    transport::streamable_http_server::{
        StreamableHttpService, session::local::LocalSessionManager,
    },
};
use tower_mcp::{CallToolResult, McpRouter, NoParams, ToolBuilder, transport::http::HttpTransport};
use tower_ratelimit::{
    PeerIp, Quota, RateLimitLayer,
    mcp::{Mcp, McpBodyLayer},
};

/// Each client may call `search` twice a minute, and each other tool or method 60 times.
pub fn limited(server: Router) -> Router {
    let searches = Quota::per_minute(2).named("searches");
    let others = Quota::per_minute(60).named("others");
    let key = (PeerIp, Mcp::tool());
    let searches = RateLimitLayer::new(searches, key).skip(|parts| !Mcp::may_call(parts, "search"));
    let others = RateLimitLayer::new(others, key).skip(|parts| Mcp::may_call(parts, "search"));
    server
        .layer(searches.mcp())
        .layer(others.mcp())
        // Runs first, since it is added last.
        .layer(McpBodyLayer::default())
}

#[derive(Debug, Clone, Default)]
struct Tools;

#[tool_router]
impl Tools {
    #[tool(description = "Searches")]
    fn search(&self) -> String {
        "found".to_owned()
    }

    #[tool(description = "Answers")]
    fn echo(&self) -> String {
        "echo".to_owned()
    }
}

#[tool_handler]
impl ServerHandler for Tools {}

/// A server made with `rmcp`.
pub fn rmcp_server() -> Router {
    let tools: StreamableHttpService<Tools, LocalSessionManager> =
        StreamableHttpService::new(|| Ok(Tools), Default::default(), Default::default());
    Router::new().nest_service("/mcp", tools)
}

/// A server of equal tools, made with `tower-mcp`.
pub fn tower_mcp_server() -> Router {
    let tool = |name: &'static str, answer: &'static str| {
        let tool = ToolBuilder::new(name).description(answer);
        tool.handler(move |_: NoParams| async move { Ok(CallToolResult::text(answer)) })
            .build()
    };
    let tools = McpRouter::new()
        .server_info("tools", "1.0.0")
        .tool(tool("search", "found"))
        .tool(tool("echo", "echo"));
    HttpTransport::new(tools).into_router_at("/mcp")
}
