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
    // Of a known limit none is sent that the server refuses; of an unknown one only some of the first
    // ten, which go at once.
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

#[cfg(target_os = "linux")]
mod fleet {
    use std::process::{Command, Stdio};

    use testkit::{needs, servers::Server};

    /// The requests of each worker that the third party took.
    fn shares(printed: &str) -> Vec<usize> {
        let lines = printed.lines().filter(|line| line.starts_with("worker "));
        let shares = lines.map(|line| {
            let (_, counts) = line.split_once(": ").unwrap();
            assert!(counts.ends_with(", 0 times 429"), "{printed}");
            counts.split(' ').next().unwrap().parse().unwrap()
        });
        shares.collect()
    }

    fn fleet(redis: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_client_fleet"));
        command.env("REDIS_URL", redis);
        command
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn eight_processes_are_never_refused() {
        needs!(redis);
        let server = Server::start().await;
        let url = server.url();
        let printed = tokio::task::spawn_blocking(move || super::printed(&mut fleet(&url)));
        let printed = printed.await.unwrap();
        // How even they are is a matter of what else the machine does.
        assert_eq!(shares(&printed).len(), 8, "{printed}");
        // The limit's key expires soon after the last request.
        let told: String = server.ask(["INFO", "commandstats"]).await.unwrap();
        assert!(told.contains("cmdstat_evalsha:"), "{told}");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn nor_are_they_when_redis_is_killed() {
        needs!(redis);
        let mut server = Server::start().await;
        let running = fleet(&server.url()).stdout(Stdio::piped()).spawn().unwrap();
        // The fleet has begun when its limit is there.
        testkit::programs::eventually("a fleet that counts", async || {
            let keys: Vec<String> = server.ask(["KEYS", "*"]).await.ok()?;
            (!keys.is_empty()).then_some(())
        })
        .await;
        server.kill9();
        let output = tokio::task::spawn_blocking(move || running.wait_with_output());
        let output = output.await.unwrap().unwrap();
        assert!(output.status.success());
        let printed = String::from_utf8(output.stdout).unwrap();
        print!("{printed}");
        assert_eq!(shares(&printed).len(), 8, "{printed}");
    }
}
