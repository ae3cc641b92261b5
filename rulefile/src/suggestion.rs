//! Suggestions for messages: the known word that is nearest to a misspelt one, and lists of words.

/// The longest word that gets a suggestion. The distance takes time by the square of the length.
const MAX_WORD: usize = 64;

/// The most words that a message lists.
const MAX_LISTED: usize = 24;

/// The one of `known` that `word` probably misspells: at most a third of its letters differ.
pub fn nearest<'k>(word: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    if word.len() > MAX_WORD {
        return None;
    }
    let lower = word.to_ascii_lowercase().replace('-', "_");
    let distances = known.map(|other| (distance(&lower, &other.to_ascii_lowercase()), other));
    let (distance, other) = distances.min_by_key(|(distance, _)| *distance)?;
    let tolerated = (word.chars().count().max(other.chars().count()) / 3).max(1);
    (distance <= tolerated).then_some(other)
}

/// The number of letters to add, remove, change or swap with their neighbour (optimal string alignment).
fn distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=other.len()).collect()];
    for i in 1..=one.len() {
        let mut row = vec![i];
        for j in 1..=other.len() {
            let change = usize::from(one[i - 1] != other[j - 1]);
            let mut least = (rows[i - 1][j - 1] + change)
                .min(rows[i - 1][j] + 1)
                .min(row[j - 1] + 1);
            let swapped =
                i > 1 && j > 1 && one[i - 1] == other[j - 2] && one[i - 2] == other[j - 1];
            if swapped {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[one.len()][other.len()]
}

/// Words as a message lists them: `"a", "b" or "c"`. After 24 words the rest is a number.
pub fn listed<'w>(words: impl Iterator<Item = &'w str>) -> String {
    let mut words: Vec<String> = words.map(|word| format!("{word:?}")).collect();
    let more = words.len().saturating_sub(MAX_LISTED);
    words.truncate(MAX_LISTED);
    match words.as_slice() {
        [] => "none".to_owned(),
        [one] => one.clone(),
        all if more > 0 => format!("{} and {more} more", all.join(", ")),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}
