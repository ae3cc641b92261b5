//! What a file says for all rules: version, store, client address, templates.

use crate::{
    error::ConfigError,
    key::{ClientIp, ClientIpHeader, IntoNetwork, IpPrefix},
    rules::{problem::ProblemCode, tree::Node},
};

use super::context::Context;

/// The version of the format that this crate reads.
const VERSION: u64 = 1;

/// The file's wishes for the place where counts are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct StoreSettings {
    pub(crate) max_keys: Option<usize>,
    pub(crate) on_failure: Option<OnStoreFailure>,
}

/// What happens while Redis does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnStoreFailure {
    Local,
    Allow,
    Deny,
}

impl StoreSettings {
    pub(super) fn of(node: &Node) -> Self {
        let max_keys = node.get("max_keys").and_then(Node::number);
        Self {
            max_keys: max_keys.and_then(|keys| usize::try_from(keys).ok()),
            on_failure: match node.get("on_failure").and_then(Node::text) {
                Some("local") => Some(OnStoreFailure::Local),
                Some("allow") => Some(OnStoreFailure::Allow),
                Some("deny") => Some(OnStoreFailure::Deny),
                _ => None,
            },
        }
    }
}

impl<'c> Context<'c> {
    pub(super) fn version(&mut self, node: &Node) {
        if let Some(version) = node.number().filter(|version| *version != VERSION) {
            let message = format!(
                "version {version} of the format is not known; this program reads {VERSION}"
            );
            self.fault(ProblemCode::R11, &node.spot, message);
        }
    }

    pub(super) fn read_client_ip(&mut self, node: &'c Node) {
        if let Some(bits) = node.get("ipv6_prefix").and_then(Node::number) {
            self.prefix = IpPrefix::new().v6(u8::try_from(bits).unwrap_or(128));
        }
        let mut networks = Vec::new();
        if let Some(trust) = node.get("trust") {
            let text = |error: ConfigError| error.to_string();
            networks = self.values(ProblemCode::R10, trust, |proxy| {
                proxy.into_network().map_err(text)
            });
            match ClientIp::try_behind(networks.iter()) {
                Ok(client_ip) => self.client_ip = client_ip,
                Err(_) => {
                    let message = "trust in everybody would let every client choose its address; \
                                   list the networks of your proxies";
                    self.fault(ProblemCode::R10, &trust.spot, message);
                }
            }
        }
        if let Some(header) = node.get("header")
            && let Some(name) = header.text()
            && let Some(header_name) = self.header_name(name, &header.spot)
        {
            if networks.is_empty() && node.get("trust").is_none() {
                let message =
                    "`header` is read only from proxies that are trusted: list them in `trust`";
                self.fault(ProblemCode::R02, &header.spot, message);
            }
            self.client_ip = self.client_ip.clone().header(header_named(header_name));
        }
        self.client_ip = self.client_ip.clone().grouped_by(self.prefix);
    }

    /// Takes the templates of a file, and checks each where it stands.
    pub(super) fn read_templates(&mut self, node: &'c Node) {
        self.check_null_keys(node.entries());
        for entry in node.entries() {
            let name = entry.key.as_str();
            if name == "unlimited" || name.contains('/') {
                let message = format!("{name:?} already means something where a quota is said");
                self.fault(ProblemCode::R03, &entry.key_spot, message);
            }
            // Twice in one file is a fault of the file's form.
            if !self.templates.iter().any(|(known, _)| *known == name) {
                self.templates.push((name, Some(&entry.value)));
            }
        }
    }

    pub(super) fn check_templates(&mut self) {
        // Without templates: a template does not stand for another one.
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

/// How a header is read: a list for those that are lists, else one address.
fn header_named(name: http::HeaderName) -> ClientIpHeader {
    match name.as_str() {
        "x-forwarded-for" => ClientIpHeader::XForwardedFor,
        "forwarded" => ClientIpHeader::Forwarded,
        "cloudfront-viewer-address" => ClientIpHeader::CloudFrontViewerAddress,
        _ => ClientIpHeader::Single(name),
    }
}
