//! Redirections of a cluster: the servers that other servers name.

/// The address of a server, as the cluster announces it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NodeAddress {
    pub(crate) host: String,
    pub(crate) port: u16,
}

/// The server that a redirection names for a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Redirect {
    /// This server owns the slot from now on.
    Moved { slot: u16, to: NodeAddress },
    /// This server runs this one command, after `ASKING`: the slot is moving there.
    Ask { to: NodeAddress },
}
