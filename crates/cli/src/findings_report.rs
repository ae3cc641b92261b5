//! Findings as text, as JSON, and as annotations of a GitHub workflow; and the exit codes of the program.

use std::{fmt::Write, net::IpAddr};

use clap::ValueEnum;
use serde_json::{Value, json};
use tower_ratelimit::{
    Priority,
    clock::Timestamp,
    decision::Policy,
    limiter::QuotaChange,
    rules::{
        ExplainedLimit, Explanation, Problem, RuleChanges, RuleExplanation, RuleReason, RulesError,
        RulesOutcome,
    },
};
use tower_ratelimit_replay::timestamps;

use crate::check_response_charge::ResponseCharge;

/// No faults.
pub(crate) const OK: u8 = 0;
/// Faults, or warnings if they are denied.
pub(crate) const FAULTS: u8 = 1;
/// Wrong arguments, or an unreadable file.
pub(crate) const USAGE: u8 = 2;

/// `1 rule`, `2 rules`.
pub(crate) fn counted(number: usize, noun: &str) -> String {
    let ending = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{ending}")
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    Text,
    Json,
    Github,
}

/// The result of a check.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// The number of rules, unless there are faults.
    pub(crate) rules: Option<usize>,
    pub(crate) problems: Vec<Problem>,
    /// Whether there are warnings, and they are denied.
    pub(crate) refused: bool,
    /// The number of further faults.
    pub(crate) more: usize,
    pub(crate) changes: Option<RuleChanges>,
    pub(crate) request: Option<ExplainedRequest>,
    /// The charge for a recorded response to the request.
    pub(crate) charge: Option<ResponseCharge>,
    /// The singular of what is counted, if it is not `rule`.
    pub(crate) noun: Option<&'static str>,
    /// The limits of descriptors, as text and as JSON.
    pub(crate) descriptors: Option<(String, Value)>,
}

/// A request, and its explanation by the rules.
#[derive(Debug)]
pub(crate) struct ExplainedRequest {
    pub(crate) explanation: Explanation,
    pub(crate) line: String,
    pub(crate) peer: IpAddr,
    pub(crate) now: Timestamp,
    /// Whether keys are revealed.
    pub(crate) reveal: bool,
}

impl Findings {
    /// The faults of rules that cannot be used.
    ///
    /// # Errors
    ///
    /// A file that cannot be read.
    pub(crate) fn of_error(error: &RulesError) -> Result<Self, String> {
        if error.is_unreadable() {
            return Err(error.to_string());
        }
        Ok(Self {
            problems: error.problems().to_vec(),
            more: error.more(),
            ..Self::default()
        })
    }

    /// The text to print, and the exit code.
    pub(crate) fn print(
        mut self,
        denies_warnings: bool,
        output: OutputFormat,
        colours: bool,
    ) -> (String, u8) {
        self.refused = denies_warnings && self.problems.iter().any(Problem::is_warning);
        let text = match output {
            OutputFormat::Text => self.text(&Paint(colours)),
            OutputFormat::Json => format!("{:#}\n", self.json()),
            OutputFormat::Github => self.github(),
        };
        let is_ok = self.rules.is_some() && !self.refused;
        (text, if is_ok { OK } else { FAULTS })
    }

    fn text(&self, paint: &Paint) -> String {
        let mut text = String::new();
        for problem in &self.problems {
            let printed = problem.to_string();
            let (head, excerpt) = printed.split_once('\n').unwrap_or((&printed, ""));
            let colour = if problem.is_warning() { YELLOW } else { RED };
            text += &paint.with(colour, head);
            text += "\n";
            if !excerpt.is_empty() {
                text += &format!("{excerpt}\n");
            }
        }
        if self.more > 0 {
            let _ = writeln!(text, "and {} more", self.more);
        }
        text += &self.rest(paint);
        text
    }

    /// The text after the problems.
    fn rest(&self, paint: &Paint) -> String {
        let mut text = format!("{}\n", self.summary());
        if let Some(changes) = &self.changes {
            let _ = writeln!(text, "\na reload would mean\n{changes}");
        }
        if let Some(request) = &self.request {
            text += &request.text(paint);
        }
        if let Some(charge) = &self.charge {
            text += &charge.text();
        }
        if let Some((descriptors, _)) = &self.descriptors {
            text += &format!("\n{descriptors}");
        }
        text
    }

    /// `7 rules, 2 warnings`.
    fn summary(&self) -> String {
        let found = self.problems.len();
        let noun = self.noun.unwrap_or("rule");
        match self.rules {
            None => counted(found + self.more, "fault"),
            Some(rules) if found == 0 => counted(rules, noun),
            Some(rules) => format!("{}, {}", counted(rules, noun), counted(found, "warning")),
        }
    }

    fn json(&self) -> Value {
        let mut value = json!({
            "ok": self.rules.is_some() && !self.refused,
            "rules": self.rules,
            "problems": self.problems.iter().map(problem).collect::<Vec<_>>(),
            "more": self.more,
        });
        if let Some(changes) = &self.changes {
            value["changes"] = json!({
                "added": changes.added,
                "removed": changes.removed,
                "changed": changes.changed,
                "restarted": changes.restarted,
                "kept": changes.kept,
                "quotas": changes.quotas.iter().map(quota_change).collect::<Vec<_>>(),
            });
        }
        if let Some(request) = &self.request {
            value["request"] = request.json();
        }
        if let Some(charge) = &self.charge {
            value["response"] = charge.json();
        }
        if let Some((_, descriptors)) = &self.descriptors {
            value["descriptors"] = descriptors.clone();
        }
        value
    }

    fn github(&self) -> String {
        let mut text = String::new();
        for problem in &self.problems {
            let kind = if problem.is_warning() && !self.refused {
                "warning"
            } else {
                "error"
            };
            let mut place = String::new();
            if let (Some(file), Some(line), Some(column)) =
                (problem.file(), problem.line(), problem.column())
            {
                let file = escaped(file).replace(':', "%3A").replace(',', "%2C");
                place = format!("file={file},line={line},col={column},");
            }
            let message = escaped(&message(problem));
            let _ = writeln!(text, "::{kind} {place}title={}::{message}", problem.code());
        }
        text += &self.rest(&Paint(false));
        text
    }
}

fn message(problem: &Problem) -> String {
    match problem.suggestion() {
        Some(suggestion) => format!("{}; did you mean {suggestion:?}?", problem.message()),
        None => problem.message().to_owned(),
    }
}

fn quota_change(change: &QuotaChange) -> Value {
    json!({
        "policy": change.name,
        "before": change.before.to_string(),
        "after": change.after.to_string(),
        "starts_afresh": change.starts_afresh,
        "available": change.available,
        "next_unit_seconds": change.next_unit.map(|wait| wait.as_secs_f64()),
    })
}

fn problem(problem: &Problem) -> Value {
    json!({
        "code": problem.code(),
        "severity": if problem.is_warning() { "warning" } else { "error" },
        "file": problem.file(),
        "line": problem.line(),
        "column": problem.column(),
        "message": problem.message(),
        "suggestion": problem.suggestion(),
    })
}

/// Escaped for a workflow command.
fn escaped(text: &str) -> String {
    text.replace('%', "%25")
        .replace('\r', "%0D")
        .replace('\n', "%0A")
}

impl ExplainedRequest {
    fn text(&self, paint: &Paint) -> String {
        let mut text = format!(
            "\n{} from {} at {}\n",
            self.line,
            self.peer,
            timestamps::display(self.now)
        );
        let rules = self.explanation.rules();
        let width = rules
            .iter()
            .map(|rule| rule.name().chars().count())
            .max()
            .unwrap_or(0);
        for rule in rules {
            let sign = if rule.applies() {
                paint.with(GREEN, "✓")
            } else {
                paint.with(RED, "✗")
            };
            let _ = writeln!(
                text,
                "  {sign} {:width$}  {}",
                rule.name(),
                self.effect(rule)
            );
        }
        let _ = writeln!(text, "{}", self.outcome());
        text
    }

    /// The part of a rule's line after its name.
    fn effect(&self, rule: &RuleExplanation) -> String {
        match (rule.reason(), rule.limit()) {
            (RuleReason::Differs(field), _) => format!("{field} differs"),
            (RuleReason::ReplacedBy(other), _) => format!("replaced by {other}"),
            (RuleReason::Preflight, _) => "a preflight of `cors_origins`".to_owned(),
            (RuleReason::SwitchedOff, _) => "switched off".to_owned(),
            (RuleReason::AfterEnd(other), _) => format!("not looked at: {other} ends the list"),
            (_, Some(limit)) => self.limit(rule, limit),
            _ => "applies".to_owned(),
        }
    }

    fn limit(&self, rule: &RuleExplanation, limit: &ExplainedLimit) -> String {
        let mut effect = format!("key {}, cost {}", self.key(limit), limit.cost);
        if let Some(tier) = &limit.tier {
            let _ = write!(effect, ", tier {tier}");
        }
        if limit.priority < Priority::CRITICAL {
            let _ = write!(effect, ", share {}", limit.priority);
        }
        match quotas(limit).as_slice() {
            [] if limit.in_flight.is_some() => {}
            [] => effect += ", unlimited",
            quotas => {
                let _ = write!(effect, ", {}", quotas.join(" and "));
            }
        }
        if let Some(most) = &limit.in_flight {
            let _ = write!(effect, ", {}={} at a time", most.name(), most.limit());
        }
        if let Some(wait) = limit.wait {
            let _ = write!(effect, ", waits up to {wait:?}");
        }
        if let Some(block) = limit.block_for {
            let _ = write!(effect, ", blocks for {block:?}");
        }
        if limit.overflows {
            effect += ", overflows";
        }
        if rule.is_shadow() {
            effect += ", in shadow";
        }
        effect
    }

    /// The key, or a digest unless keys are revealed.
    fn key(&self, limit: &ExplainedLimit) -> String {
        match &limit.key {
            Ok(key) if self.reveal => key.reveal().to_string(),
            Ok(_) => "(hidden)".to_owned(),
            Err(error) => format!("missing ({error})"),
        }
    }

    fn outcome(&self) -> String {
        match self.explanation.outcome() {
            RulesOutcome::Bypassed => "passes uncounted: no limit applies".to_owned(),
            RulesOutcome::Allowed(rule) => format!("passes uncounted: {rule} allows it"),
            RulesOutcome::Denied(rule) => format!("answered 403: {rule} denies it"),
            RulesOutcome::Rejected(rule, status) => {
                format!("answered {status}: it has no key for {rule}")
            }
            _ => {
                let limits = self
                    .explanation
                    .rules()
                    .iter()
                    .filter(|rule| rule.limit().is_some_and(|limit| !limit.quotas.is_empty()));
                let names: Vec<&str> = limits.map(RuleExplanation::name).collect();
                format!("counted by {}", names.join(", "))
            }
        }
    }

    fn json(&self) -> Value {
        let rules: Vec<Value> = self
            .explanation
            .rules()
            .iter()
            .map(|rule| self.rule(rule))
            .collect();
        json!({
            "request": self.line,
            "peer": self.peer.to_string(),
            "at": timestamps::display(self.now),
            "rules": rules,
            "outcome": self.outcome(),
        })
    }

    fn rule(&self, rule: &RuleExplanation) -> Value {
        let mut value = json!({ "name": rule.name(), "applies": rule.applies() });
        if !rule.applies() {
            value["why"] = json!(self.effect(rule));
        }
        if let Some(limit) = rule.limit() {
            value["key"] = json!(self.key(limit));
            value["tier"] = json!(limit.tier);
            value["cost"] = json!(limit.cost);
            value["quotas"] = json!(quotas(limit));
            value["in_flight"] = json!(limit.in_flight.as_ref().map(Policy::limit));
            value["shadow"] = json!(rule.is_shadow());
            value["overflows"] = json!(limit.overflows);
        }
        value
    }
}

/// `api.day=10000/86400s fixed_window`.
fn quotas(limit: &ExplainedLimit) -> Vec<String> {
    let quotas = limit.quotas.iter();
    quotas
        .map(|quota| format!("{}={}", quota.name().unwrap_or("default"), quota.quota()))
        .collect()
}

const RED: &str = "31";
const GREEN: &str = "32";
const YELLOW: &str = "33";

/// Colours, or none.
struct Paint(bool);

impl Paint {
    fn with(&self, colour: &str, text: &str) -> String {
        if self.0 {
            format!("\x1b[{colour}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}
