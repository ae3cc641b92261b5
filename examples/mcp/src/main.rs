//! A server of the Model Context Protocol with limits by tool: `cargo run -- rmcp` or `cargo run -- tower-mcp`, from this
//! folder. It listens on 127.0.0.1:3000, at `/mcp`.

use std::{env, error::Error, net::SocketAddr};

use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let app = match env::args().nth(1).as_deref() {
        Some("tower-mcp") => example_mcp::limited(example_mcp::tower_mcp_server()),
        Some("rmcp") | None => example_mcp::limited(example_mcp::rmcp_server()),
        Some(other) => return Err(format!("{other:?} is neither rmcp nor tower-mcp").into()),
    };
    let listener = TcpListener::bind("127.0.0.1:3000").await?;
    println!("listening on http://{}/mcp", listener.local_addr()?);
    axum::serve(
        listener,
        app.into_make_service_with_connect_info::<SocketAddr>(),
    )
    .await?;
    Ok(())
}
