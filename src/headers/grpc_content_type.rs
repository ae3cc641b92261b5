//! The content type of gRPC.

use http::{HeaderMap, header::CONTENT_TYPE};

const GRPC: &str = "application/grpc";

/// Whether a request or response with these fields is gRPC, by its `Content-Type`. gRPC-Web, whose
/// trailers are part of the body, is not.
pub fn is_grpc(headers: &HeaderMap) -> bool {
    let Some(value) = headers.get(CONTENT_TYPE) else {
        return false;
    };
    let Some((media_type, rest)) = value.as_bytes().split_at_checked(GRPC.len()) else {
        return false;
    };
    media_type.eq_ignore_ascii_case(GRPC.as_bytes())
        && matches!(rest, [] | [b'+' | b';' | b' ' | b'\t', ..])
}
