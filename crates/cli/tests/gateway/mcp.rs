//! Limits by tool in front of an MCP server that does not compare the fields with the body.

use crate::{
    gateway_process::{Gateway, bounded},
    upstream::Upstream,
};

const RULES: &str = "rules:
  - {name: images, match: {mcp: {tool: draw}}, key: client_ip, quota: 2/day}
  - {name: tools, match: {path: /mcp}, key: [client_ip, mcp_tool], quota: 3/day}
  - {name: calls, match: {method: POST}, key: client_ip, quota: 9/day}
";

/// The fields are what the gateway limits by, and a request without them meets every limit. A client that names another
/// tool in the header than in the body meets the limit of all its calls.
#[tokio::test]
async fn calls_of_mcp_are_limited_by_their_fields() {
    bounded(async {
        let upstream = Upstream::start().await;
        let gateway = Gateway::start_with(RULES, upstream.port, &[]).await;
        let call = async |fields: &str| {
            let request = format!("POST /mcp HTTP/1.1\r\ncontent-length: 0{fields}");
            let (head, _) = gateway.connect().await.answer(&request).await;
            (
                head.status(),
                head.field("ratelimit").unwrap_or_default().to_owned(),
            )
        };
        let draw = "\r\nmcp-method: tools/call\r\nmcp-name: =?base64?ZHJhdw==?=";
        let search = "\r\nmcp-method: tools/call\r\nmcp-name: search";
        assert_eq!(call(draw).await.0, 200);
        assert_eq!(call("").await.0, 200);
        for fields in [
            draw,
            "",
            "\r\nmcp-method: tools/call\r\nmcp-name: =?base64?*?=",
        ] {
            let (status, limits) = call(fields).await;
            assert_eq!(status, 429, "{fields}");
            assert!(limits.contains("images"), "{limits}");
        }
        for _ in 0..3 {
            assert_eq!(call(search).await.0, 200);
        }
        assert_eq!(call(search).await.0, 429);
        // Names that no tool has: each is a key, and the client still meets its own limit.
        let names = ["a", "b", "c", "d", "e"];
        let mut statuses = Vec::new();
        for name in names {
            let fields = format!("\r\nmcp-method: tools/call\r\nmcp-name: {name}");
            statuses.push(call(&fields).await.0);
        }
        assert_eq!(statuses, [200, 200, 200, 200, 429]);
        let get = "GET /mcp HTTP/1.1";
        let (head, _) = gateway.connect().await.answer(get).await;
        assert_eq!(head.status(), 200);
    })
    .await;
}
