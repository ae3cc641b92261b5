//! Tests with a simulated server that runs one call after another, at some distance.

use super::*;

const MS: Duration = Duration::from_millis(1);
const DEADLINE: Duration = Duration::from_millis(50);

/// A server that runs one call after another, each in `cost`, at some distance.
struct Server {
    window: Arc<InFlightWindow>,
    cost: Duration,
    distance: Duration,
    free_at: Instant,
    under_way: VecDeque<(Instant, CallPlace)>,
}

impl Server {
    fn new(cost: Duration, distance: Duration, now: Instant) -> Self {
        Self {
            window: Arc::new(InFlightWindow::new(DEADLINE)),
            cost,
            distance,
            free_at: now,
            under_way: VecDeque::new(),
        }
    }

    fn send(&mut self, now: Instant) -> Result<Duration, Full> {
        let mut place = self.window.enter(CallSize::ONE, now, DEADLINE)?;
        place.send(1, 2 * self.distance, now, Some(DEADLINE))?;
        self.free_at = self.free_at.max(now) + self.cost;
        let answer = self.free_at + self.distance;
        self.under_way.push_back((answer, place));
        Ok(answer - now)
    }

    /// Delivers all responses until then; late ones count as abandoned.
    fn run(&mut self, until: Instant) {
        while self.under_way.front().is_some_and(|(at, _)| *at <= until) {
            let (at, place) = self.under_way.pop_front().expect("the first");
            place.answered(at);
        }
    }

    /// Sends a steady stream. Returns how many calls were sent in a second, and the longest
    /// response time.
    fn steady(&mut self, every: Duration, start: Instant) -> (u32, Duration) {
        let (mut sent, mut longest) = (0, Duration::ZERO);
        let mut now = start;
        while now < start + 1_000 * MS {
            self.run(now);
            if let Ok(took) = self.send(now) {
                sent += 1;
                longest = longest.max(took);
            }
            now += every;
        }
        (sent, longest)
    }
}

#[test]
fn of_a_burst_the_calls_with_an_answer_in_time_are_sent_and_no_more() {
    for (cost, distance) in [(50, 0), (50, 20), (120, 20), (50, 40), (20, 5)] {
        let (cost, distance) = (Duration::from_micros(cost), distance * MS);
        let start = Instant::now();
        let mut server = Server::new(cost, distance, start);
        // The window learns the cost of a call in two herds.
        for round in 0..2 {
            let now = start + round * 1_000 * MS;
            server.run(now);
            while server.send(now).is_ok() {}
        }
        let now = start + 2_000 * MS;
        server.run(now);
        let mut sent = 0_u32;
        let mut longest = Duration::ZERO;
        while let Ok(took) = server.send(now) {
            sent += 1;
            longest = longest.max(took);
        }
        let fits = (DEADLINE - distance).as_nanos() / cost.as_nanos();
        let what = format!("{cost:?} each, {distance:?} away: {sent} of {fits}");
        assert!(u128::from(sent) * 5 >= fits * 4, "{what}");
        assert!(longest <= DEADLINE * 11 / 10, "{what}, {longest:?}");
    }
}

#[test]
fn a_steady_stream_within_the_servers_capacity_is_sent_completely() {
    for distance in [0, 1, 20, 40] {
        let start = Instant::now();
        let cost = Duration::from_micros(50);
        let mut server = Server::new(cost, distance * MS, start);
        let (sent, longest) = server.steady(Duration::from_micros(100), start);
        assert_eq!(sent, 10_000, "{distance} ms away");
        assert!(longest < DEADLINE);
    }
}

#[test]
fn a_stream_beyond_the_servers_capacity_is_sent_up_to_that_capacity() {
    let start = Instant::now();
    let mut server = Server::new(MS, 10 * MS, start);
    server.steady(MS / 4, start);
    let (sent, longest) = server.steady(MS / 4, start + 1_000 * MS);
    assert!((900..=1_100).contains(&sent), "{sent} in a second");
    assert!(longest <= DEADLINE * 12 / 10, "{longest:?}");
}

#[test]
fn a_server_that_became_faster_is_detected() {
    let start = Instant::now();
    let mut server = Server::new(5 * MS, 40 * MS, start);
    server.steady(MS, start);
    server.run(start + 5_000 * MS);
    (server.cost, server.distance) = (MS / 20, MS);
    server.free_at = start;
    server.steady(MS / 10, start + 5_000 * MS);
    let (sent, _) = server.steady(MS / 10, start + 6_000 * MS);
    assert_eq!(sent, 10_000);
}

/// A herd keeps this process from reading: responses arrive together after a long gap. The gap does
/// not count for the first of them alone.
#[test]
fn answers_read_late_do_not_raise_the_estimated_cost() {
    let now = Instant::now();
    let window = Arc::new(InFlightWindow::new(DEADLINE));
    let sent = (0..400).map(|_| {
        let mut place = window.enter(CallSize::ONE, now, DEADLINE).expect("room");
        place.send(1, MS / 10, now, None).expect("room");
        place
    });
    for place in sent.collect::<Vec<_>>() {
        place.answered(now + 20 * MS);
        let cost = window.lock().time_of(u64::from(CALL));
        assert!(cost <= MS / 5, "a call is taken for {cost:?}");
    }
}

#[test]
fn abandoned_calls_end_with_the_next_answer() {
    let now = Instant::now();
    let window = Arc::new(InFlightWindow::new(DEADLINE));
    let enter = |at| {
        let mut place = window.enter(CallSize::ONE, at, DEADLINE).expect("room");
        place.send(1, MS, at, None).expect("room");
        place
    };
    for _ in 0..100 {
        drop(enter(now));
    }
    assert_eq!(window.lock().calls.len(), 100);
    let last = enter(now + 2 * DEADLINE);
    last.answered(now + 2 * DEADLINE + MS);
    let state = window.lock();
    assert_eq!((state.calls.len(), state.weight), (0, 0));
}

/// The runtime of the waiting callers is not driven any more.
#[test]
fn a_call_whose_task_is_not_driven_is_abandoned_soon_after_its_deadline() {
    let now = Instant::now();
    let window = Arc::new(InFlightWindow::new(DEADLINE));
    let enter = |at| {
        let mut place = window.enter(CallSize::ONE, at, DEADLINE)?;
        place.send(1, MS, at, None).map(|()| place)
    };
    enter(now).expect("room").answered(now + MS);
    let lost: Vec<_> = (0..3).map(|_| enter(now + 2 * MS).expect("room")).collect();
    let later = now + DEADLINE + 2 * MS;
    assert_eq!(enter(later).err(), Some(Full), "an answer is overdue");
    let soon_after = later + DEADLINE / 4;
    let next = enter(soon_after).expect("room");
    next.answered(soon_after + MS);
    // The responses had arrived long before.
    for place in lost {
        place.answered(soon_after + 1_000 * MS);
    }
    assert!(window.expected(soon_after + 1_001 * MS) <= 2 * MS);
    let state = window.lock();
    assert_eq!((state.calls.len(), state.awaited, state.weight), (0, 0, 0));
}
