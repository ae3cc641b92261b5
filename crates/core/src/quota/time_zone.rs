//! Time zones by their names, kept until the process ends.

use std::{collections::BTreeMap, sync::Mutex};

use jiff::tz::{TimeZone, db};

use crate::{
    error::{ConfigError, ConfigErrorKind},
    lock::unpoisoned,
};

/// A zone for the life of the process, with its name. No more memory is kept than for each zone of the database once.
pub(super) fn known(name: &str) -> Result<(&'static str, &'static TimeZone), ConfigError> {
    static ZONES: Mutex<BTreeMap<&'static str, &'static TimeZone>> = Mutex::new(BTreeMap::new());
    let mut zones = unpoisoned(ZONES.lock());
    if let Some((name, zone)) = zones.get_key_value(name) {
        return Ok((name, zone));
    }
    let zone: &'static TimeZone = Box::leak(Box::new(time_zone(name)?));
    let name: &'static str = Box::leak(Box::from(name));
    zones.insert(name, zone);
    Ok((name, zone))
}

/// The zone of a checked quota. Only one that nothing has checked has an unknown zone.
pub(crate) fn kept_zone(name: &str) -> &'static TimeZone {
    static UTC: TimeZone = TimeZone::UTC;
    known(name).map_or(&UTC, |(_, zone)| zone)
}

/// The zone of this name, spelled as the database does. Two spellings would be two counters in a
/// store.
fn time_zone(name: &str) -> Result<TimeZone, ConfigError> {
    if name == "UTC" {
        // Known also on a system without the database.
        return Ok(TimeZone::UTC);
    }
    let found = TimeZone::get(name).ok();
    let is_exact = |zone: &TimeZone| !zone.is_unknown() && zone.iana_name() == Some(name);
    found.filter(is_exact).ok_or_else(|| unknown(name))
}

#[cold]
fn unknown(name: &str) -> ConfigError {
    let wanted = name.replace([' ', '-'], "_").to_lowercase();
    let is_meant = |known: &str| {
        let known = known.to_lowercase();
        let city = known.rsplit('/').next();
        known == wanted || city == Some(wanted.as_str())
    };
    let meant = db().available().find(|known| is_meant(known.as_str()));
    let remedy = match meant {
        Some(known) => format!("; did you mean {:?}?", known.as_str()),
        None if db().is_definitively_empty() => {
            "; this system has no zones but UTC: install its package tzdata".to_owned()
        }
        None => String::new(),
    };
    let shown: String = name.chars().take(40).collect();
    ConfigError::new(
        ConfigErrorKind::Zone,
        format!(
            "{shown:?} is no time zone of this system; accepted are names of the IANA database, such as \
             \"Europe/Berlin\" or \"UTC\"{remedy}"
        ),
    )
}
