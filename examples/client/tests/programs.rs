//! The examples as programs.
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::process::Command;

fn printed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{printed}{errors}");
    print!("{printed}");
    printed
}

#[test]
fn no_caller_of_reqwest_sees_a_refusal() {
    let printed = printed(&mut Command::new(env!("CARGO_BIN_EXE_client_reqwest")));
    // The server refuses none by a known limit; by an unknown one only some of the first ten, which
    // are sent at once.
    for (limit, most) in [("a known limit", 0), ("an unknown limit", 10)] {
        let seen = format!("{limit}: the callers saw 80 times 200 and 0 times anything else");
        let line = printed.lines().find(|line| line.starts_with(&seen));
        let counted = line.and_then(|line| line.split_once("the server answered "));
        let counted = counted.and_then(|(_, counted)| counted.strip_suffix(" times 429"));
        let refused: usize = counted.expect(&printed).parse().unwrap();
        assert!(refused <= most, "{printed}");
    }
}

#[test]
fn no_caller_of_tonic_sees_a_refusal() {
    let printed = printed(&mut Command::new(env!("CARGO_BIN_EXE_client_tonic")));
    assert_eq!(printed.matches(": Ok after ").count(), 8, "{printed}");
}

#[test]
fn a_client_learns_a_limit_of_tokens() {
    let printed = printed(&mut Command::new(env!("CARGO_BIN_EXE_client_tokens")));
    let (took, refused) = printed.split_once(" ms, and ").unwrap();
    assert_eq!(refused, "0 were refused\n");
    let took: u64 = took.rsplit(' ').next().unwrap().parse().unwrap();
    // 19,000 tokens at 1,000 a second, and the margin.
    assert!((19_000..=19_300).contains(&took), "{printed}");
}

#[cfg(target_os = "linux")]
mod fleet {
    use std::{
        io::{BufRead, BufReader, Lines},
        process::{ChildStdout, Command, Stdio},
    };

    use testkit::{needs, servers::Server};

    const WORKERS: usize = 8;

    /// A worker's eighth of eighty requests a second.
    const SHARE: usize = 10;

    /// The lines of a fleet: how many requests of each worker the third party took in each second.
    struct Seconds(Lines<BufReader<ChildStdout>>);

    impl Iterator for Seconds {
        type Item = [usize; WORKERS];

        fn next(&mut self) -> Option<Self::Item> {
            let line = self.0.find_map(|line| {
                let line = line.unwrap();
                println!("{line}");
                assert!(line.contains(", 0 times 429"), "{line}");
                line.starts_with("second ").then_some(line)
            })?;
            let (_, counts) = line.split_once(": ").unwrap();
            let (counts, _) = counts.split_once(" times 200").unwrap();
            let counts: Vec<_> = counts
                .split(' ')
                .map(|count| count.parse().unwrap())
                .collect();
            Some(counts.try_into().unwrap())
        }
    }

    impl Seconds {
        /// Waits for two seconds in a row in which each worker has half to twice its share. Not every
        /// two have to be such, since that is also a matter of what else the machine does.
        fn until_even(&mut self) {
            let mut before: Option<[usize; WORKERS]> = None;
            for counts in self {
                let is_even = before.is_some_and(|before| {
                    let mut of_both = counts.iter().zip(before).map(|(one, other)| one + other);
                    of_both.all(|taken| (SHARE..=4 * SHARE).contains(&taken))
                });
                if is_even {
                    return;
                }
                before = Some(counts);
            }
            panic!("the shares were never even");
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn eight_processes_share_a_limit_also_when_redis_is_killed() {
        needs!(redis);
        let mut server = Server::start().await;
        let mut fleet = Command::new(env!("CARGO_BIN_EXE_client_fleet"))
            .env("REDIS_URL", server.url())
            .env("SECONDS", "16")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut seconds = Seconds(BufReader::new(fleet.stdout.take().unwrap()).lines());
        tokio::task::block_in_place(|| seconds.until_even());
        // It was Redis that shared it.
        let reported: String = server.send(["INFO", "commandstats"]).await.unwrap();
        assert!(reported.contains("cmdstat_evalsha:"), "{reported}");
        server.kill9();
        tokio::task::block_in_place(|| {
            // In this second Redis was killed.
            seconds.next();
            seconds.until_even();
            // None is refused until the end.
            for _ in seconds {}
        });
        assert!(fleet.wait().unwrap().success());
    }
}
