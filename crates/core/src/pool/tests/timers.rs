//! The timers of connections: whatever happens, none is late.

use super::*;
use crate::rng::Rng;

impl Driver {
    fn one_of_all(&self, rng: &mut Rng) -> Option<StreamId> {
        let streams: Vec<_> = self.pool.connections.iter().map(Connection::stream).collect();
        streams.get(rng.below(streams.len().max(1) as u64) as usize).copied()
    }

    fn random_step(&mut self, rng: &mut Rng) {
        let to = 2 + rng.below(3) as u8;
        let Some(stream) = self.one_of_all(rng) else {
            let _ = self.ask(to, b"first");
            return;
        };
        match rng.below(12) {
            0 => drop(self.send(to, &vec![7; rng.below(40_000) as usize + 1])),
            1 | 2 => drop(self.ask(to, b"question")),
            3 => self.pool.connected(self.now, stream, &mut self.queue.outbox()),
            4 => self.sent(stream, rng.below(80_000) as usize),
            5 => drop(self.receive(stream, &frame(b"answer"))),
            6 => drop(self.receive(stream, &probe(1, self.pool.nonce))),
            7 => drop(self.closed(stream, CloseReason::Refused)),
            8 => self.pool.suspect(self.now, addr(to), &mut self.queue.outbox()),
            9 => drop(self.pool.finished(self.now, stream, &mut self.queue.outbox())),
            10 => drop(self.accept_from(rng.next_u32().into(), to)),
            _ => self.greeted(stream, rng.below(2) as u32, to),
        }
    }
}

#[test]
fn no_timer_is_later_than_the_next_action_of_its_connection() {
    for seed in 0..200 {
        let (mut driver, mut rng) = (Driver::new(config()), Rng::from_number(15, seed));
        for step in 0..200 {
            driver.random_step(&mut rng);
            driver.did();
            let (connections, now) = (&driver.pool.connections, driver.now);
            let due = |at: &Connection<u32>| at.clone().due(now, connections.config()).err().unwrap_or(now);
            let first = connections.iter().map(due).min();
            assert!(driver.pool.deadline().is_some() == first.is_some(), "seed {seed}, step {step}");
            assert!(driver.pool.deadline() <= first, "seed {seed}, step {step}");
            driver.pass(SECOND / 50 * rng.below(9) as u32 * rng.below(9).pow(3) as u32);
            // A timer is a lower bound: it may expire once more before it is exact.
            driver.pass(Duration::ZERO);
            driver.did();
            assert!(driver.pool.deadline().is_none_or(|at| at > driver.now), "seed {seed}, step {step}");
        }
    }
}

#[test]
fn a_message_after_long_idleness_does_not_delay_the_end_of_a_connection_that_is_not_read() {
    let mut driver = Driver::new(config());
    driver.connect(2);
    let second = driver.connect(3);
    driver.pass(50 * SECOND);
    driver.send(3, b"not read").unwrap();
    assert!(driver.pass(59 * SECOND).is_empty());
    assert_eq!(driver.pass(SECOND).iter().map(|lost| lost.stream).collect::<Vec<_>>(), [second]);
}
