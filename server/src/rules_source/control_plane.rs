//! Sets of limits from the control plane.

use std::{collections::BTreeSet, sync::PoisonError, time::SystemTime};

use tracing::{error, info};

use super::{Source, warn_of};
use crate::{
    decide_and_serve_errors::ServeError,
    lyft::Rules,
    plural::counted,
    xds::{self, messages::DiscoveryResponse},
};

impl Source {
    /// The client of the control plane, if there is one.
    ///
    /// # Errors
    ///
    /// When its settings are wrong.
    pub(crate) fn client(&self) -> Result<Option<xds::Client>, ServeError> {
        let plane = self.0.settings.xds.clone();
        let client = plane.map(|plane| xds::Client::new(plane, self.0.connected.clone()));
        client.transpose()
    }

    /// Whether the control plane is connected; `None` without one.
    pub(crate) fn is_connected(&self) -> Option<bool> {
        let has_plane = self.0.settings.xds.is_some();
        has_plane.then(|| self.0.connected.get())
    }

    /// Waits until more than `sets` sets of the control plane have been accepted, and returns their number.
    pub(crate) async fn more_sets(&self, sets: u64) -> u64 {
        let mut accepted = self.0.sets.subscribe();
        match accepted.wait_for(|accepted| *accepted > sets).await {
            Ok(accepted) => *accepted,
            Err(_) => unreachable!("this source sends"),
        }
    }

    /// Puts a set into force. After a fault the old limits stay. The log has each fault once, however often its set comes.
    ///
    /// # Errors
    ///
    /// The faults of the set, on one line.
    pub(crate) fn accept_set(&self, set: DiscoveryResponse) -> Result<(), String> {
        let version = set.version_info.clone();
        let read = xds::rules(set, &self.0.settings.rules_builder());
        let mut loads = self.0.loads.lock().unwrap_or_else(PoisonError::into_inner);
        let rules = match read {
            Ok(rules) => rules,
            Err(fault) => {
                let line = xds::fault_line(&fault);
                let fault = Some(fault.to_string());
                if loads.fault != fault {
                    error!("version {version:?} of the control plane's limits is rejected: {line}");
                }
                loads.refused += 1;
                loads.fault = fault;
                return Err(line);
            }
        };
        loads.accepted += 1;
        loads.fault = None;
        // A control plane sends its set again after each connection.
        if !self.is_in_force(&rules) {
            warn_of(rules.warnings());
            let limits = counted(rules.len(), "limit");
            info!("version {version:?} of the control plane's limits is in force: {limits}");
            let mut quotas = self.0.quotas.lock().unwrap_or_else(PoisonError::into_inner);
            self.replace_limits(rules, &mut quotas);
            loads.loaded_at = SystemTime::now();
        }
        loads.version = version;
        drop(loads);
        self.0.sets.send_modify(|sets| *sets += 1);
        Ok(())
    }

    /// Whether the limits in force are of the same resources, in any order: control planes in Go have none.
    fn is_in_force(&self, rules: &Rules) -> bool {
        let current = self.0.limits.rules();
        current.is_some_and(|current| {
            let of_current: BTreeSet<_> = current.files().collect();
            of_current == rules.files().collect()
        })
    }
}
