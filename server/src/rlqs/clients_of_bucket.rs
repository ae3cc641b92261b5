//! The clients of a bucket and what they have, for operators.

use std::{collections::BTreeMap, time::Duration};

use tower_ratelimit::store::StoreError;

use super::{
    shares::{RowOfClient, Shares},
    treatment::Treatment,
    units,
};

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
    /// The value of `--rlqs-client-header`, or its address; `None` if it is at another instance.
    pub(crate) name: Option<String>,
    /// The time since its stream was opened, at this instance.
    pub(crate) age: Option<Duration>,
    /// The time since its last report of this bucket.
    pub(crate) silence: Duration,
    /// Requests a second; `None` before a measurement.
    pub(crate) demand: Option<f64>,
    pub(crate) share: Option<ShareOfClient>,
}

impl Shares {
    /// The clients of a bucket: of a rate those of all instances, of units those of this one. `None` if the bucket has
    /// no limit that is shared.
    ///
    /// # Errors
    ///
    /// When Redis does not respond.
    pub(crate) async fn clients_of_bucket(
        &self,
        domain: &str,
        pairs: &BTreeMap<String, String>,
    ) -> Result<Option<Vec<ClientOfBucket>>, StoreError> {
        let Some(limit) = self.limits().bucket_limit(domain, pairs) else {
            return Ok(None);
        };
        let clients = match Treatment::of(limit) {
            Treatment::Share(subject, _) => {
                let rows = self.rows(&subject).await?.into_iter();
                rows.map(|row| self.client_of_row(&row)).collect()
            }
            Treatment::Units(limit) => self
                .units()
                .clients(&limit)
                .into_iter()
                .filter_map(|client| {
                    let demand = client
                        .demand
                        .map(|demand| demand as f64 / units::LEASE as f64);
                    let (opened_at, name) = self.stream(client.stream)?;
                    let now = self.now();
                    Some(ClientOfBucket {
                        name: Some(name),
                        age: Some(now.saturating_sub(opened_at)),
                        silence: now.saturating_sub(client.reported_at),
                        demand,
                        share: client.units.map(ShareOfClient::Units),
                    })
                })
                .collect(),
            Treatment::Blanket(..) | Treatment::Excess(_) => return Ok(None),
        };
        Ok(Some(clients))
    }

    fn client_of_row(&self, row: &RowOfClient) -> ClientOfBucket {
        let a_second = |number: u64| number as f64 / row.interval as f64;
        let stream = row.stream.and_then(|stream| self.stream(stream));
        let (opened_at, name) = stream.unzip();
        ClientOfBucket {
            name,
            age: opened_at.map(|at| self.now().saturating_sub(at)),
            silence: row.silence,
            demand: row.demand.map(a_second),
            share: row.share.map(|share| ShareOfClient::Rate {
                rate: a_second(share.tokens),
                size: share.size,
            }),
        }
    }
}
