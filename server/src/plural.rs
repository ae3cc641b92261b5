//! Texts of numbers.

/// `1 limit`, `2 limits`.
pub(crate) fn counted(number: impl TryInto<u64>, noun: &str) -> String {
    let number = number.try_into().unwrap_or(u64::MAX);
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

#[cfg(test)]
mod tests {
    use super::counted;

    #[test]
    fn only_one_is_singular() {
        let texts = [0, 1, 2, 10].map(|number: u64| counted(number, "limit"));
        assert_eq!(texts, ["0 limits", "1 limit", "2 limits", "10 limits"]);
    }
}
