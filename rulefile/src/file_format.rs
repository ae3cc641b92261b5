//! The formats of rule files.

use std::path::Path;

/// The format of a rule file. All three have the same fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// YAML 1.2; in directories `*.yaml` and `*.yml`.
    Yaml,
    /// JSON; in directories `*.json`. The YAML parser reads it, since JSON is YAML.
    Json,
    /// TOML 1.1; in directories `*.toml`.
    Toml,
}

impl Format {
    /// The format by the path's extension: `yaml`, `yml`, `json` or `toml` in any case.
    pub fn of_path(path: &Path) -> Option<Self> {
        let extension = path.extension()?.to_str()?.to_ascii_lowercase();
        match extension.as_str() {
            "yaml" | "yml" => Some(Self::Yaml),
            "json" => Some(Self::Json),
            "toml" => Some(Self::Toml),
            _ => None,
        }
    }
}
