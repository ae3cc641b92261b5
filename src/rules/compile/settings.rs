//! The settings of a file that hold for all rules: version, store, client address, templates.

use tower_ratelimit_rulefile::{ProblemCode, document::Node};

use super::context::Context;
use crate::{
    key::{ClientIp, ClientIpHeader, IpPrefix},
    rules::{
        cors::{CorsOrigin, CorsOrigins},
        fields::file::{
            CLIENT_IP_HEADER, CORS_ORIGINS, IPV6_PREFIX, MAX_KEYS, ON_FAILURE, OnStoreFailure,
            TRUST,
        },
    },
};

/// The only version of the format.
const VERSION: u64 = 1;

/// The file's settings for the store of counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct StoreSettings {
    pub(crate) max_keys: Option<usize>,
    pub(crate) on_failure: Option<OnStoreFailure>,
}

impl StoreSettings {
    pub(super) fn of(node: &Node) -> Self {
        let max_keys = MAX_KEYS.of(node);
        Self {
            max_keys: max_keys.and_then(|keys| usize::try_from(keys).ok()),
            on_failure: ON_FAILURE.of(node),
        }
    }
}

impl<'c> Context<'c> {
    pub(super) fn check_version(&mut self, node: &Node) {
        if let Some(version) = node.number().filter(|version| *version != VERSION) {
            let message = format!(
                "version {version} of the format is not known; this program reads {VERSION}"
            );
            self.report(ProblemCode::R11, &node.span, message);
        }
    }

    pub(super) fn read_client_ip(&mut self, node: &'c Node) {
        if let Some(bits) = IPV6_PREFIX.of(node) {
            self.prefix = IpPrefix::new().v6(u8::try_from(bits).unwrap_or(128));
        }
        let networks = TRUST.all(node, &mut self.report).unwrap_or_default();
        if let Some(trust) = TRUST.node(node) {
            match ClientIp::try_behind(networks.iter()) {
                Ok(client_ip) => self.client_ip = client_ip,
                Err(_) => {
                    let message = "trust in everybody would let every client choose its address; \
                                   list the networks of your proxies";
                    self.report(ProblemCode::R10, &trust.span, message);
                }
            }
        }
        if let Some(header) = CLIENT_IP_HEADER.node(node)
            && let Some(name) = CLIENT_IP_HEADER.of(node, &mut self.report)
        {
            if TRUST.node(node).is_none() {
                let message =
                    "`header` is read only from proxies that are trusted: list them in `trust`";
                self.report(ProblemCode::R02, &header.span, message);
            }
            self.client_ip = self.client_ip.clone().header(header_named(name));
        }
        self.client_ip = self.client_ip.clone().grouped_by(self.prefix);
    }

    /// The origins of a file.
    pub(super) fn read_cors_origins(&mut self, root: &Node) -> CorsOrigins {
        let origins = CORS_ORIGINS.all(root, &mut self.report).unwrap_or_default();
        let has_any = origins.iter().any(|one| matches!(one, CorsOrigin::Any));
        if let Some(list) = CORS_ORIGINS.node(root).filter(|_| has_any)
            && list.items().len() > 1
        {
            let message =
                "`*` is any origin, so it is alone: list the origins without `*`, or only `*`";
            self.report(ProblemCode::R01, &list.span, message);
        }
        CorsOrigins::new(origins)
    }

    /// Adds the templates of a file.
    pub(super) fn read_templates(&mut self, node: &'c Node) {
        self.check_null_keys(node.entries());
        for entry in node.entries() {
            let name = entry.key.as_str();
            if name == "unlimited" || name.contains('/') {
                let message = format!("{name:?} already means something where a quota is said");
                self.report(ProblemCode::R03, &entry.key_span, message);
            }
            // A name that one file has twice is reported with the file's form.
            if !self.templates.iter().any(|(known, _)| *known == name) {
                self.templates.push((name, Some(&entry.value)));
            }
        }
    }

    /// Reads each template once, to report its faults at its own place.
    pub(super) fn check_templates(&mut self) {
        // No templates while they are read: a template cannot name another one.
        let mut templates = std::mem::take(&mut self.templates);
        for (_, template) in &mut templates {
            let faults = self.report.faults();
            let found = template.and_then(|node| self.quota_set(node, "template"));
            if found.is_none() || self.report.faults() > faults {
                *template = None;
            }
        }
        self.templates = templates;
    }
}

/// The kind of a header: a list where the header is one by its specification, else a single address.
fn header_named(name: http::HeaderName) -> ClientIpHeader {
    match name.as_str() {
        "x-forwarded-for" => ClientIpHeader::XForwardedFor,
        "forwarded" => ClientIpHeader::Forwarded,
        "cloudfront-viewer-address" => ClientIpHeader::CloudFrontViewerAddress,
        _ => ClientIpHeader::Single(name),
    }
}
