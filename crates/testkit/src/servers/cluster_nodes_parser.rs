//! Parses the reply of CLUSTER NODES: a node's view of its cluster.

/// A line of `CLUSTER NODES`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) id: String,
    pub(super) port: u16,
    pub(super) is_primary: bool,
    pub(super) is_myself: bool,
    /// The ranges that it owns.
    slots: Vec<(u16, u16)>,
}

impl Node {
    pub(super) fn owns(&self, slot: u16) -> bool {
        self.slots
            .iter()
            .any(|(first, last)| (*first..=*last).contains(&slot))
    }
}

pub(super) fn parse(text: &str) -> Vec<Node> {
    text.lines().filter_map(parse_line).collect()
}

/// `<id> <ip:port@bus-port[,hostname]> <flags> <primary> <ping> <pong> <epoch> <link> <slot>…`
fn parse_line(line: &str) -> Option<Node> {
    let mut words = line.split(' ');
    let id = words.next()?.to_owned();
    let address = words.next()?.split('@').next()?;
    let port = address.rsplit(':').next()?.parse().ok()?;
    let flags: Vec<&str> = words.next()?.split(',').collect();
    // Slots that are on the move stand in brackets and are listed among the owned ones besides.
    let slots = words.skip(5).filter(|word| !word.starts_with('['));
    Some(Node {
        id,
        port,
        is_primary: flags.contains(&"master"),
        is_myself: flags.contains(&"myself"),
        slots: slots.filter_map(parse_slots).collect(),
    })
}

fn parse_slots(word: &str) -> Option<(u16, u16)> {
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    Some((first.parse().ok()?, last.parse().ok()?))
}
