//! Other programs that tests start, on Linux: servers, proxies. What a test starts dies with it.

use std::{
    env,
    fs::{self, File},
    io::Write as _,
    net::{Ipv4Addr, TcpListener},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, kill_process_group, waitpid};

/// How long a machine under load may need, where milliseconds are usual.
const PATIENCE: Duration = Duration::from_secs(150);

/// Where a program is: the environment's `variable` if it is set, else found on the search path and
/// where system programs are.
pub fn find(program: &str, variable: Option<&str>) -> Option<PathBuf> {
    if let Some(path) = variable.and_then(env::var_os) {
        return Some(PathBuf::from(path));
    }
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        // Not in everybody's search path, and nginx and haproxy live there.
        .chain(["/usr/sbin".into(), "/usr/local/sbin".into()])
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

/// Whether a test has to be left out because something that it needs is not `there`. It then prints
/// what to install, past the capture of output: a test that was left out counts as passed.
///
/// # Panics
///
/// When it is not there, where nothing is left out: in CI, in `scripts/test.sh`, which sets
/// `TEST_SERVERS`, and under nextest, which shows nothing of the output of a passed test.
pub fn missing(there: bool, what: &str, install: &str) -> bool {
    let variables = ["CI", "NEXTEST", "TEST_SERVERS"];
    let required = variables.iter().any(|name| env::var_os(name).is_some());
    let reason = left_out(there, required, what, install);
    if let Some(reason) = &reason {
        let _ = writeln!(std::io::stderr(), "LEFT OUT: {reason}");
    }
    reason.is_some()
}

/// Why a test is left out, in an environment in which all programs are `required` or not.
pub fn left_out(there: bool, required: bool, what: &str, install: &str) -> Option<String> {
    if there {
        return None;
    }
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    let reason = format!("{test} needs {what}, which is missing: {install}");
    assert!(!required, "{reason}");
    Some(reason)
}

/// A port of 127.0.0.1 on which nobody listens, never given out twice by this process.
///
/// # Panics
///
/// If there is none.
pub fn free_port() -> u16 {
    // Below the ports that the system gives to outgoing connections, which would otherwise take the
    // port of a server that is being restarted. Processes that run side by side start apart.
    const FIRST: u32 = 10_000;
    const COUNT: u32 = 22_000;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let start = std::process::id().wrapping_mul(37);
    (0..COUNT)
        .map(|_| start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % COUNT + FIRST)
        .filter_map(|port| u16::try_from(port).ok())
        .find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
        .expect("a free port")
}

/// Calls `check` every 10 milliseconds until it returns something.
///
/// # Panics
///
/// With `what` was waited for, after 150 seconds: a sentinel whose machine was too busy does nothing for 30.
pub async fn eventually<T>(what: &str, mut check: impl AsyncFnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(answer) = check().await {
            return answer;
        }
        assert!(start.elapsed() < PATIENCE, "in vain waited for: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A program that runs until this is dropped, with all that it has started: workers outlive a master that is killed.
#[derive(Debug)]
pub struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts it. What it prints is appended to the file `log`.
    ///
    /// # Panics
    ///
    /// If it cannot be started.
    pub fn start(command: &mut Command, log: &Path) -> Self {
        let file = File::options()
            .create(true)
            .append(true)
            .open(log)
            .expect("a file for the log");
        let child = command
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(file.try_clone().expect("a second handle"))
            .stderr(file)
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        Self {
            child,
            log: log.to_owned(),
        }
    }

    /// The text that it printed.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits until it has printed this, and returns all that it printed: a service has a thread for its log, whose lines may
    /// come later than its responses.
    ///
    /// # Panics
    ///
    /// If it does not print it.
    pub async fn logs(&self, text: &str) -> String {
        self.logs_times(text, 1).await
    }

    /// Waits until it has printed this so many times or more often.
    ///
    /// # Panics
    ///
    /// If it does not.
    pub async fn logs_times(&self, text: &str, times: usize) -> String {
        eventually(text, async || {
            let log = self.log();
            (log.matches(text).count() >= times).then_some(log)
        })
        .await
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        self.child
            .try_wait()
            .expect("the state of a child")
            .is_some()
    }

    /// Stops it as a hung process: its connections stay open, new ones are taken by the system, and
    /// nothing is answered until [`resume`](Self::resume).
    pub fn pause(&self) {
        self.signal(Signal::STOP);
        // The signal is delivered a moment later; until then it would still answer.
        waitpid(Some(self.pid()), WaitOptions::UNTRACED).expect("it stops");
    }

    /// Resumes it.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Signals it to end, as an orchestrator does.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Hangs up, on which services read their files again.
    pub fn hang_up(&self) {
        self.signal(Signal::HUP);
    }

    /// Interrupts it, which makes some servers end at once and others clean up.
    pub fn interrupt(&self) {
        self.signal(Signal::INT);
    }

    /// Makes a server of Postgres end at once, without cleaning up, and all of its processes.
    pub fn abort(&self) {
        self.signal(Signal::QUIT);
    }

    fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("a running process");
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = kill_process_group(self.pid(), Signal::KILL);
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_a_program_has_started_ends_with_it() {
        let log = tempfile::NamedTempFile::new().unwrap();
        let process = Process::start(
            Command::new("sh").args(["-c", "sleep 600 & echo \"worker $!.\"; wait"]),
            log.path(),
        );
        let text = process.logs(".").await;
        let worker = text.trim_start_matches("worker ").trim_end_matches(".\n");
        let folder = Path::new("/proc").join(worker);
        assert!(folder.exists(), "{text}");
        drop(process);
        eventually("the worker has ended", async || {
            // Nobody waits for an orphan in some containers.
            let state = fs::read_to_string(folder.join("stat")).unwrap_or_default();
            (state.is_empty() || state.contains(") Z ")).then_some(())
        })
        .await;
    }
}
