//! The rules of deadlines.

use super::super::keeping::{GRACE, Keeping, Signal, interval, validity};
use super::*;

fn at(ms: u64) -> Instant {
    Instant::from_micros(ms * 1000)
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[test]
fn tu_33_term_comes_at_three_eighths_and_kill_at_one_eighth_before_the_end() {
    let lease = Duration::from_secs(10);
    assert_eq!((validity(lease), interval(lease)), (ms(8000), lease / 6));
    let mut keeping = Keeping::new(at(0), validity(lease));
    assert_eq!(keeping.signal(at(4999)), None);
    assert_eq!(keeping.signal(at(5000)), Some(Signal::Term));
    assert_eq!(keeping.signal(at(6999)), None, "it is said once");
    assert_eq!(keeping.next(), Some(at(7000)));
    assert_eq!(keeping.signal(at(7000)), Some(Signal::Kill));
    assert_eq!((keeping.signal(at(9000)), keeping.next()), (None, None));
}

#[test]
fn tu_33_the_margins_are_those_of_the_longest_validity() {
    let mut keeping = Keeping::new(at(0), ms(1600));
    assert_eq!((keeping.term_at(), keeping.kill_at()), (at(1000), at(1400)));
    keeping.extend(at(100), ms(8000));
    assert_eq!((keeping.term_at(), keeping.kill_at()), (at(5100), at(7100)));
    keeping.extend(at(2000), ms(6100));
    assert_eq!(keeping.term_at(), at(5100), "the agent could not renew: the end is the same");
}

#[test]
fn tu_34_an_answer_counts_from_its_question_and_never_shortens_a_turn() {
    let mut keeping = Keeping::new(at(0), ms(8000));
    // The answer was read at 30 s, after a stop; the question was sent at 1 s.
    keeping.extend(at(1000), ms(8000));
    assert_eq!(keeping.ends(), at(9000));
    keeping.extend(at(1000), ms(10));
    assert_eq!(keeping.ends(), at(9000));
}

#[test]
fn tu_34_a_lost_turn_gets_term_at_once_and_kill_after_a_second() {
    let mut keeping = Keeping::new(at(0), ms(8000));
    keeping.end(at(100));
    assert!(!keeping.is_valid(at(100)));
    assert_eq!(keeping.signal(at(100)), Some(Signal::Term));
    assert_eq!(keeping.next(), Some(at(100) + GRACE));
    let mut late = Keeping::new(at(0), ms(8000));
    late.end(at(6500));
    assert_eq!(late.kill_at(), at(7000), "but not after the deadline");
    late.extend(at(6600), ms(8000));
    assert_eq!(late.kill_at(), at(7000), "nothing brings it back");
}

#[test]
fn tu_42_a_weak_turn_gets_term_at_half_of_the_grace_and_kill_at_four_fifths() {
    let limit = (at(55_000), at(59_000));
    let mut keeping = Keeping::weak(at(0), ms(5000), limit);
    assert_eq!((keeping.term_at(), keeping.kill_at()), (at(2500), at(4000)));
    keeping.extend(at(1000), ms(5000));
    assert_eq!((keeping.term_at(), keeping.kill_at()), (at(3500), at(5000)));
    keeping.extend(at(54_000), ms(5000));
    assert_eq!((keeping.term_at(), keeping.kill_at()), (at(55_000), at(58_000)), "the limit comes first");
    keeping.extend(at(58_500), ms(5000));
    assert_eq!(keeping.kill_at(), at(59_000));
    let mut gone = Keeping::weak(at(0), ms(1000), limit);
    gone.end(at(100));
    assert_eq!((gone.term_at(), gone.kill_at()), (at(100), at(350)), "before the agent lets the token go on");
}
