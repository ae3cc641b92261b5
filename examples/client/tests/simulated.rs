//! Many clients: the figures of the page on clients.

use std::{collections::BTreeMap, fs, path::Path, process::Command, time::Duration};

use example_client::{Again, Arrival, LIMIT, convergence, fairness, herd};

#[test]
fn clients_that_know_nothing_share_what_there_is() {
    let arrivals = convergence();
    let (from, to) = (Duration::from_secs(30), Duration::from_secs(60));
    let late = arrivals
        .iter()
        .filter(|arrival| (from..to).contains(&arrival.at));
    let (taken, refused) = late.partition::<Vec<&Arrival>, _>(|arrival| arrival.taken);
    let most = LIMIT as f64 * 30.0;
    assert!(
        taken.len() as f64 >= 0.8 * most,
        "{} of {most}",
        taken.len()
    );
    let all = taken.len() + refused.len();
    assert!(refused.len() * 20 <= all, "{} of {all}", refused.len());
    let fairness = fairness(&arrivals, from);
    assert!(fairness >= 0.9, "{fairness}");
}

/// Attempts in all, and the most in 10 ms after the first ones.
fn crowd(arrivals: &[Arrival]) -> (usize, u32) {
    let mut in_time = BTreeMap::<u128, u32>::new();
    for arrival in &arrivals[1_000..] {
        *in_time.entry(arrival.at.as_millis() / 10).or_default() += 1;
    }
    (
        arrivals.len(),
        in_time.into_values().max().unwrap_or_default(),
    )
}

#[test]
fn a_herd_is_thinned_by_full_jitter_most() {
    let ways = [Again::FullJitter, Again::TenPercent, Again::Exactly];
    let herds = ways.map(|again| {
        let arrivals = herd(again);
        let taken = arrivals.iter().filter(|arrival| arrival.taken).count();
        assert_eq!(taken, 1_000, "{again:?}");
        crowd(&arrivals)
    });
    assert!(
        herds.is_sorted_by(|one, other| one.0 < other.0 && one.1 < other.1),
        "{herds:?}"
    );
    // A client comes five times at most on average, and never do half as many come at once.
    assert!(herds[0].0 <= 5_000, "{herds:?}");
    assert!(herds[0].1 * 2 <= herds[1].1, "{herds:?}");
}

fn files(folder: &Path) -> BTreeMap<String, String> {
    let entries = fs::read_dir(folder).expect("a folder");
    let file = |entry: std::io::Result<fs::DirEntry>| {
        let entry = entry.expect("an entry");
        let name = entry.file_name().into_string().expect("a name");
        (name, fs::read_to_string(entry.path()).expect("a text"))
    };
    entries.map(file).collect()
}

#[test]
fn the_committed_plots_are_what_the_example_draws() {
    let folder = tempfile::tempdir().expect("a folder");
    let drawing = Command::new(env!("CARGO_BIN_EXE_client_plots"))
        .arg(folder.path())
        .output()
        .expect("the example");
    assert!(drawing.status.success(), "{drawing:?}");
    let committed =
        files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/client/docs/plots"));
    // Not `assert_eq!`: a picture is no help in a terminal.
    assert!(
        files(folder.path()) == committed,
        "crates/client/docs/plots is not what is drawn: run `cargo run -p example-client --bin client_plots`, and \
         look at it"
    );
}
