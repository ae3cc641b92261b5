//! Words about numbers.

/// `1 rule`, `2 rules`.
pub(crate) fn counted(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", plural(number))
}

/// The end of a noun of which there are as many.
pub(crate) const fn plural(number: usize) -> &'static str {
    if number == 1 { "" } else { "s" }
}
