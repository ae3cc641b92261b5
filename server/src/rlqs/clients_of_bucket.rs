//! The clients of a bucket and what they have, for operators.

use std::{collections::BTreeMap, time::Duration};

use super::{shares::Shares, treatment::Treatment, units};

/// The share of a client.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum ShareOfClient {
    /// Requests a second, and at once.
    Rate { rate: f64, size: u64 },
    /// Requests that it may allow. The service does not know which part is spent.
    Units(u64),
}

/// A client of a bucket.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ClientOfBucket {
    pub(crate) name: String,
    /// The time since its stream was opened.
    pub(crate) age: Duration,
    /// The time since its last report of this bucket.
    pub(crate) silence: Duration,
    /// Requests a second; `None` before a measurement.
    pub(crate) demand: Option<f64>,
    pub(crate) share: Option<ShareOfClient>,
}

impl Shares {
    /// The clients of a bucket; `None` if the bucket has no limit that is shared.
    pub(crate) fn clients_of_bucket(
        &self,
        domain: &str,
        pairs: &BTreeMap<String, String>,
    ) -> Option<Vec<ClientOfBucket>> {
        let limit = self.limits().bucket_limit(domain, pairs)?;
        let clients = match Treatment::of(limit) {
            Treatment::Share(subject, _) => self
                .rows(&subject)
                .into_iter()
                .filter_map(|row| {
                    let a_second = |number: u64| number as f64 / row.interval as f64;
                    let share = row.share.map(|share| ShareOfClient::Rate {
                        rate: a_second(share.tokens),
                        size: share.size,
                    });
                    let demand = row.demand.map(a_second);
                    self.client(row.stream, row.reported_at, demand, share)
                })
                .collect(),
            Treatment::Units(limit) => self
                .units()
                .clients(&limit)
                .into_iter()
                .filter_map(|client| {
                    let demand = client
                        .demand
                        .map(|demand| demand as f64 / units::LEASE as f64);
                    let share = client.units.map(ShareOfClient::Units);
                    self.client(client.stream, client.reported_at, demand, share)
                })
                .collect(),
            Treatment::Blanket(..) | Treatment::Excess(_) => return None,
        };
        Some(clients)
    }

    fn client(
        &self,
        stream: u64,
        reported_at: Duration,
        demand: Option<f64>,
        share: Option<ShareOfClient>,
    ) -> Option<ClientOfBucket> {
        let now = self.now();
        Some(ClientOfBucket {
            name: name_of(stream),
            age: now.saturating_sub(self.opened_at(stream)?),
            silence: now.saturating_sub(reported_at),
            demand,
            share,
        })
    }
}

/// The name of the client of a stream.
fn name_of(stream: u64) -> String {
    format!("stream {stream}")
}
