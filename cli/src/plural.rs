//! Texts of numbers.

/// `1 rule`, `2 rules`.
pub(crate) fn counted(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", plural(number))
}

/// The plural ending of a noun for this number.
pub(crate) const fn plural(number: usize) -> &'static str {
    if number == 1 { "" } else { "s" }
}
