//! Many ledgers on one model, with calls lost, late, executed twice and without a reply.

use siphasher::sip::SipHasher13;

use super::{
    store_model::{Meter, Model},
    *,
};
use tower_ratelimit_core::hash::keyed_hash;

const NODES: usize = 5;

/// The most calls under way. Further requests are not sent.
const MOST_FLIGHTS: usize = 12;

/// Numbers that are the same for the same seed.
struct Dice(SipHasher13, u64);

impl Dice {
    fn below(&mut self, most: u64) -> u64 {
        self.1 += 1;
        self.0.hash(&self.1.to_ne_bytes()) % most
    }
}

/// A call, from when it leaves until it has no more effect.
struct Flight {
    node: usize,
    /// The ledger at that time: a node that was killed has another.
    life: u64,
    sent: Option<Sent>,
    cost: u64,
    /// The reply, once the call was executed.
    answer: Option<(bool, Option<NodeReply>)>,
    /// Whether the node has stopped waiting.
    is_late: bool,
}

struct World {
    dice: Dice,
    start: Instant,
    now: u64,
    model: Model,
    /// The admitted units, counted by the limit alone.
    passed: Meter,
    nodes: Vec<(Ledger, u64)>,
    lives: u64,
    flights: Vec<Flight>,
    admitted: u64,
    local: u64,
}

impl World {
    fn new(seed: u64, meter: Meter) -> Self {
        let mut world = Self {
            dice: Dice(keyed_hash(Some(seed)), 0),
            start: Instant::now(),
            now: 1_000_000_000,
            model: Model::new(meter.clone()),
            passed: meter,
            nodes: Vec::new(),
            lives: seed << 16,
            flights: Vec::new(),
            admitted: 0,
            local: 0,
        };
        for _ in 0..NODES {
            let node = world.node();
            world.nodes.push(node);
        }
        world
    }

    fn node(&mut self) -> (Ledger, u64) {
        self.lives += 1;
        (ledger(self.lives), self.lives)
    }

    fn instant(&self) -> Instant {
        self.start + Duration::from_micros(self.now - 1_000_000_000)
    }

    /// Admits units: never more than the limit allows at any time.
    fn admit(&mut self, units: u64) {
        let left = self.passed.available(self.now);
        assert!(units <= left, "{} too many pass", units - left);
        self.passed.charge(units, self.now);
        self.admitted += units;
    }

    fn step(&mut self) {
        match self.dice.below(20) {
            0..6 => self.request(),
            6..11 => self.execute(),
            11..16 => self.answer(),
            16 if self.dice.below(3) == 0 => self.give_up(),
            17 => self.keep(),
            18 if self.dice.below(40) == 0 => {
                let at = self.dice.below(NODES as u64) as usize;
                self.nodes[at] = self.node();
            }
            _ => {
                let most = [200, 20_000, 300_000][self.dice.below(3) as usize];
                self.now += self.dice.below(most);
            }
        }
    }

    fn request(&mut self) {
        let node = self.dice.below(NODES as u64) as usize;
        let cost = 1 + self.dice.below(3);
        for _ in 0..1 + self.dice.below(6) {
            let answer = acquire(&self.nodes[node].0, cost, self.instant());
            match answer {
                Some(decision) if decision.is_allowed() => {
                    self.local += cost;
                    self.admit(cost);
                }
                Some(_) => {}
                None => self.send(node, cost),
            }
        }
    }

    fn send(&mut self, node: usize, cost: u64) {
        if self.flights.len() >= MOST_FLIGHTS {
            return;
        }
        let (ledger, life) = &self.nodes[node];
        let sent = message(ledger, self.instant());
        self.flights.push(Flight {
            node,
            life: *life,
            sent,
            cost,
            answer: None,
            is_late: false,
        });
    }

    fn keep(&mut self) {
        let node = self.dice.below(NODES as u64) as usize;
        if !self.nodes[node].0.due(self.instant()).is_empty() {
            self.send(node, 0);
        }
    }

    fn any_flight(&mut self) -> Option<usize> {
        let count = self.flights.len() as u64;
        (count > 0).then(|| self.dice.below(count) as usize)
    }

    /// A call arrives: for the first time, or once more.
    fn execute(&mut self) {
        let Some(at) = self.any_flight() else { return };
        let Flight { sent, cost, .. } = self.flights[at];
        let message = sent.as_ref().map(|sent| &sent.message);
        let answer = self.model.call(message, cost, self.now);
        let flight = &mut self.flights[at];
        if flight.answer.is_some() {
            return;
        }
        flight.answer = Some(answer);
        if answer.0 && cost > 0 {
            self.admit(cost);
        }
    }

    fn answer(&mut self) {
        let answered = self
            .flights
            .iter()
            .position(|flight| flight.answer.is_some());
        let any = self
            .any_flight()
            .filter(|at| self.flights[*at].answer.is_some());
        let Some(at) = any.or(answered) else { return };
        let Some((fits, reply)) = self.flights[at].answer else {
            return;
        };
        let flight = self.flights.swap_remove(at);
        let (ledger, life) = &self.nodes[flight.node];
        if flight.is_late || *life != flight.life {
            return;
        }
        if let (Some(sent), Some(reply)) = (&flight.sent, &reply) {
            let now = self.instant();
            ledger.reply(sent, reply, Some(&status(500)), now);
            if !fits {
                let wait = Duration::from_millis(5);
                let mut denial = denied_bucket(wait, Duration::from_secs(3_600));
                let op = (&Op::Acquire(flight.cost), &mut denial);
                hold(ledger, (sent, reply), op);
            }
        }
    }

    /// A node stops waiting; the call may still be executed, however late.
    fn give_up(&mut self) {
        let Some(at) = self.any_flight() else { return };
        let now = self.instant();
        if self.dice.below(2) == 0 {
            self.flights[at].is_late = true;
        }
        let flight = &self.flights[at];
        let (ledger, life) = &self.nodes[flight.node];
        if let Some(sent) = flight.sent.as_ref().filter(|_| *life == flight.life) {
            ledger.lose_sent(sent, now);
        }
        if !self.flights[at].is_late {
            self.flights.swap_remove(at);
        }
    }
}

fn seeds() -> u64 {
    let seeds = std::env::var("LEDGER_SEEDS").ok();
    seeds.and_then(|seeds| seeds.parse().ok()).unwrap_or(200)
}

fn run(meter: &Meter) {
    let (mut admitted, mut local, mut granted) = (0, 0, 0);
    for seed in 0..seeds() {
        let mut world = World::new(seed, meter.clone());
        for _ in 0..2_000 {
            world.step();
        }
        admitted += world.admitted;
        local += world.local;
        let stats = world.nodes.iter().map(|(ledger, _)| ledger.stats().granted);
        granted += stats.sum::<u64>();
    }
    // The runs are worth something.
    assert!(
        local * 10 > admitted && granted > local / 4,
        "{local} of {admitted}"
    );
}

#[test]
fn no_bucket_gives_too_much_whatever_happens_to_calls() {
    run(&Meter::Bucket {
        tat: 0,
        unit: 500,
        most: 300,
    });
}

#[test]
fn no_window_gives_too_much_whatever_happens_to_calls() {
    run(&Meter::Window {
        count: (0, 0),
        period: 400_000,
        most: 300,
    });
}
