//! The client of a stream: a header's value, or the address of the connection.

use std::{
    net::{IpAddr, SocketAddr},
    num::NonZeroU64,
};

use axum::extract::ConnectInfo;
use http::HeaderName;
use sha2::{Digest as _, Sha256};
use tonic::Request;

/// The bytes of a name that operators see. The digest is of all.
const MAX_NAME: usize = 128;

/// The digest of a client's name. It is the same in all instances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ClientId(pub(super) NonZeroU64);

impl ClientId {
    /// The client that opens a stream: the value of this header, else the peer's address. `None` without either: the
    /// server has no addresses.
    pub(super) fn of<T>(request: &Request<T>, header: Option<&HeaderName>) -> Option<Self> {
        let named = header.and_then(|header| request.metadata().get(header.as_str()));
        let named = named.map(|name| name.as_encoded_bytes());
        match named.filter(|name| !name.is_empty()) {
            Some(name) => Self::named(b"header", name),
            None => Self::named(b"address", address(request)?.to_string().as_bytes()),
        }
    }

    fn named(kind: &[u8], name: &[u8]) -> Option<Self> {
        let digest = Sha256::new().chain_update(kind).chain_update(name);
        let digest = digest.finalize();
        let (first, _) = digest.split_first_chunk()?;
        NonZeroU64::new(u64::from_be_bytes(*first)).map(Self)
    }
}

/// The name of the client that opens a stream, for operators: what [`ClientId::of`] digests. `None` without either.
pub(super) fn name<T>(request: &Request<T>, header: Option<&HeaderName>) -> Option<String> {
    let named = header.and_then(|header| request.metadata().get(header.as_str()));
    let named = named.map(|name| {
        let name = name.as_encoded_bytes();
        String::from_utf8_lossy(&name[..name.len().min(MAX_NAME)]).into_owned()
    });
    let named = named.filter(|name| !name.is_empty());
    named.or_else(|| Some(address(request)?.to_string()))
}

/// The address of the connection's other end. Its port is another one after a reconnect.
fn address<T>(request: &Request<T>) -> Option<IpAddr> {
    let ConnectInfo(address) = request.extensions().get::<ConnectInfo<SocketAddr>>()?;
    Some(address.ip().to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(name: Option<&'static str>, address: Option<&str>) -> Option<ClientId> {
        let mut request = Request::new(());
        if let Some(name) = name {
            let name = name.parse().expect("a value");
            request.metadata_mut().insert("x-envoy", name);
        }
        if let Some(address) = address {
            let address: SocketAddr = address.parse().expect("an address");
            request.extensions_mut().insert(ConnectInfo(address));
        }
        ClientId::of(&request, Some(&HeaderName::from_static("x-envoy")))
    }

    #[test]
    fn a_client_is_its_header_or_its_address_without_the_port() {
        let here = client(None, Some("127.0.0.1:1"));
        assert!(here.is_some());
        assert_eq!(here, client(None, Some("127.0.0.1:2")));
        assert_eq!(here, client(None, Some("[::ffff:127.0.0.1]:2")));
        assert_eq!(here, client(Some(""), Some("127.0.0.1:2")));
        assert_ne!(here, client(None, Some("127.0.0.2:1")));
        let named = client(Some("a"), Some("127.0.0.1:1"));
        assert_eq!(named, client(Some("a"), None));
        assert_ne!(named, client(Some("b"), None));
        assert_ne!(here, client(Some("127.0.0.1"), None), "a made up address");
        assert_eq!(client(None, None), None);
    }
}
