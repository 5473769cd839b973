//! Applications: outside of the machine, failing, panicking, and the check of their merge.

use super::*;

fn remote() -> Rig<Jitterbug<Remote>> {
    let app = Remote { initial: b"first".to_vec(), framed: false };
    let mut rig = Rig::new(Jitterbug::new(&config(), app, [7; 32]).unwrap());
    rig.start();
    rig.advance(1200 * MILLI);
    rig
}

fn computed(data: &[u8]) -> Option<Next> {
    Some(Next { data: data.to_vec(), fence: Some(1), keep: None })
}

#[test]
fn ja_49_a_node_answers_while_its_application_is_slow() {
    let mut rig = remote();
    assert!(has(&rig, "ComputeAsked { ask: 1, compute: Next"));
    rig.take_log();
    rig.advance(30 * SECOND);
    assert_eq!(rig.machine.state_name(), StateName::Leader);
    hear(&mut rig, 3, &tr1(3, 1)).unwrap();
    let answer = bytes(&Message::Tr2 { token_id: rig.machine.token_id().held() });
    assert!(has(&rig, &crate::Hex(&answer).to_string()), "no second token is made meanwhile");
    rig.command(Command::Computed { ask: 1, result: computed(b"second") });
    assert_eq!(rig.machine.data(), b"second");
    assert!(has(&rig, "TokenTaken"));
    rig.command(Command::Computed { ask: 1, result: computed(b"third") });
    assert!(has(&rig, "Reply 2 Refused") && rig.machine.data() == b"second", "answered once");
}

#[test]
fn ja_49_an_application_that_never_answers_does_not_stop_the_token() {
    let mut rig = remote();
    hear(&mut rig, 3, &tr1(3, 1)).unwrap();
    rig.advance(60 * SECOND);
    assert!(has(&rig, "ApplicationFailed") && has(&rig, "Open"));
    assert_eq!(rig.machine.data(), b"first");
}

#[test]
fn a_token_that_comes_while_the_next_data_is_computed_is_merged_first() {
    let mut rig = remote();
    give(&mut rig, 1, 2, 77, &[entry(2)], b"other");
    assert!(has(&rig, "ask: 2, compute: Merge"));
    give(&mut rig, 2, 3, 78, &[entry(3)], b"third line");
    rig.command(Command::Computed { ask: 1, result: computed(b"too late") });
    assert!(has(&rig, "Reply 1 Refused"));
    rig.command(Command::Computed { ask: 2, result: computed(b"both") });
    assert_eq!(rig.machine.data(), b"both");
    assert!(has(&rig, "ask: 3, compute: Merge"), "one after the other");
    rig.command(Command::Computed { ask: 3, result: computed(b"all") });
    assert!(has(&rig, "ask: 4, compute: Next"));
    rig.command(Command::Computed { ask: 4, result: computed(b"next of all") });
    assert_eq!(rig.machine.data(), b"next of all");
}

#[test]
fn ja_41a_a_merge_that_fails_keeps_the_own_data() {
    let mut rig = remote();
    rig.command(Command::Computed { ask: 1, result: computed(b"own") });
    give(&mut rig, 1, 2, 77, &[entry(2)], b"other");
    rig.command(Command::Computed { ask: 2, result: None });
    assert_eq!((rig.machine.data(), rig.machine.state_name()), (&b"own"[..], StateName::Leader));
    assert_eq!(rig.machine.token_id(), id(77));
    assert!(has(&rig, "ApplicationFailed { reason: \"it did not merge\" }"));
}

/// An application whose every call panics.
#[derive(Clone, Debug, PartialEq)]
struct Panicking;

impl Application for Panicking {
    type Change = ();

    fn start(&mut self, _: HostId, _: Option<&[u8]>) {}

    fn initial(&mut self) -> Vec<u8> {
        b"calm".to_vec()
    }

    fn accepts(&mut self, _: &[u8]) -> bool {
        true
    }

    fn next(&mut self, _: &TenureInfo, _: &[u8]) -> Answer<Next> {
        panic!("next")
    }

    fn merge(&mut self, _: &[u8], _: &[u8]) -> Answer<Vec<u8>> {
        panic!("merge")
    }

    fn change(&mut self, (): ()) -> Result<u64, &'static str> {
        Ok(1)
    }

    fn last_will(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }
}

#[test]
fn ja_41a_a_panic_of_the_application_does_not_end_the_node() {
    let mut rig = Rig::new(Jitterbug::new(&config(), Panicking, [7; 32]).unwrap());
    rig.start();
    rig.advance(1200 * MILLI);
    give(&mut rig, 1, 2, 77, &[entry(2)], b"other");
    rig.advance(60 * MILLI);
    assert_eq!((rig.machine.data(), rig.machine.state_name()), (&b"calm"[..], StateName::Leader));
    assert_eq!(rig.machine.counted().application_failures, 3, "next, merge, and next of both");
    assert!(has(&rig, "Open"), "the token goes on");
}

fn tenure() -> TenureInfo {
    TenureInfo {
        host_id: host(OWN),
        token_id: id(5),
        restored: None,
        merged: Vec::new(),
        wall: crate::Wall::default(),
    }
}

#[test]
fn ja_41_the_shipped_application_keeps_the_laws_of_merge() {
    let samples = [counts(&[]), counts(&[(1, 4)]), counts(&[(1, 3), (2, 9)]), counts(&[(OWN, 1), (2, 1)])];
    let mut ledger = Ledger::new();
    ledger.start(host(OWN), None);
    assert_eq!(check_merge(&mut ledger, &samples, &tenure()), Ok(()));
}

/// Data of one byte, and a merge to check.
#[derive(Clone, Debug)]
struct Judged(fn(u8, u8) -> u8);

impl Application for Judged {
    type Change = ();

    fn start(&mut self, _: HostId, _: Option<&[u8]>) {}

    fn initial(&mut self) -> Vec<u8> {
        vec![0]
    }

    fn accepts(&mut self, data: &[u8]) -> bool {
        data.len() == 1
    }

    fn next(&mut self, _: &TenureInfo, data: &[u8]) -> Answer<Next> {
        Answer::Now(Next { data: vec![data[0] + 1], ..Next::default() })
    }

    fn merge(&mut self, own: &[u8], received: &[u8]) -> Answer<Vec<u8>> {
        Answer::Now(vec![(self.0)(own[0], received[0])])
    }

    fn change(&mut self, (): ()) -> Result<u64, &'static str> {
        Ok(1)
    }

    fn last_will(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }
}

#[test]
fn ja_41_the_check_finds_a_merge_that_is_no_join() {
    let samples = [vec![1], vec![2], vec![5]];
    let check = |merge| check_merge(&mut Judged(merge), &samples, &tenure());
    assert_eq!(check(u8::max), Ok(()));
    assert!(check(|a, b| a + b).unwrap_err().contains("merge(x, x) = x"));
    assert!(check(|a, _| a).unwrap_err().contains("both sides"));
    assert!(check(u8::min).unwrap_err().contains("merge(x, next(x)) = next(x)"));
    assert!(check(|a, b| if a == b { a } else { a + b }).is_err());
}
