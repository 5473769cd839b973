//! The promises of [`annulus_core::StoreOp`] on a disk that loses power at any moment.

use std::collections::BTreeMap;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use annulus_core::{OpId, Rng, Space, SpaceId, StoreFault};
use tokio::sync::mpsc::unbounded_channel;

use super::database::Database;
use super::medium::Medium;
use super::memory::Memory;
use super::{Outcome, Request, Store, Work, worker};

const SPACES: [Space; 2] =
    [Space { id: SpaceId::new(0), name: "first" }, Space { id: SpaceId::new(1), name: "second" }];

type State = BTreeMap<(u16, Vec<u8>), Vec<u8>>;

/// A write of a few changes. Each writes its own number too, so that no two states are alike.
fn random_write(rng: &mut Rng, number: u64) -> Work {
    let mut changes = vec![(SPACES[0].id, b"number".to_vec(), Some(number.to_be_bytes().to_vec().into()))];
    for _ in 0..rng.below(4) {
        let space = SPACES[rng.index(2)].id;
        let key = vec![b'k', rng.below(20) as u8];
        let bytes = [0, 200, 4096, 20_000, 70_000][rng.index(5)];
        let value = (rng.below(4) > 0).then(|| vec![number as u8; bytes].into());
        changes.push((space, key, value));
    }
    Work::Write { changes, durable: rng.below(3) == 0 }
}

fn apply(state: &State, work: &Work) -> State {
    let mut state = state.clone();
    if let Work::Write { changes, .. } = work {
        for (space, key, value) in changes {
            match value {
                Some(value) => drop(state.insert((space.local(), key.clone()), value.to_vec())),
                None => drop(state.remove(&(space.local(), key.clone()))),
            }
        }
    }
    state
}

/// Everything in the database.
fn dump(database: &mut Database) -> State {
    let mut state = State::new();
    for space in SPACES {
        let mut from = Vec::new();
        loop {
            let page = Work::Page { space: space.id, from, until: Vec::new(), entries_max: 7 };
            let [Outcome::Page { entries, more }] = &database.run([page].iter())[..] else {
                panic!("the database does not answer")
            };
            let Some((last, _)) = entries.last().filter(|_| *more) else {
                state.extend(entries.iter().map(|(k, v)| ((space.id.local(), k.clone()), v.clone())));
                break;
            };
            from = last.clone();
            from.push(0);
            state.extend(entries.iter().map(|(k, v)| ((space.id.local(), k.clone()), v.clone())));
        }
    }
    state
}

/// The history of one run of the database: all its states, and the earliest that may survive.
struct Life {
    states: Vec<State>,
    safe: usize,
    /// A process that is killed closes nothing, so this is kept until the power is gone.
    database: Option<Database>,
}

/// Writes in groups until the power goes or there is nothing more to write. If there is power, it goes now.
fn live(rng: &mut Rng, medium: &Medium, state: State) -> Life {
    let mut life = Life { states: vec![state], safe: 0, database: None };
    let Ok(mut database) = Database::open(&medium.store(), &SPACES) else { return life };
    for round in 0..rng.below(12) + 1 {
        let group: Vec<_> = (0..rng.below(5) + 1).map(|n| random_write(rng, round * 10 + n)).collect();
        let outcomes = database.run(group.iter());
        assert_eq!(outcomes.len(), group.len());
        for (work, outcome) in group.iter().zip(&outcomes) {
            let next = apply(&life.states[life.states.len() - 1], work);
            life.states.push(next);
            if matches!((work, outcome), (Work::Write { durable: true, .. }, Outcome::Written)) {
                life.safe = life.states.len() - 1;
            }
        }
        if outcomes.iter().any(|outcome| matches!(outcome, Outcome::Failed(_))) {
            // No later write may succeed.
            let after = random_write(rng, 999);
            assert!(matches!(database.run([after].iter())[..], [Outcome::Failed(_)]));
            break;
        }
    }
    life.database = Some(database);
    life
}

/// Runs the store several times with a loss of power in between; returns whether each run left an allowed state.
fn survives(seed: u64, lies: bool) -> bool {
    let mut rng = Rng::from_number(seed, 0);
    let (mut medium, mut state) = (Medium::default(), State::new());
    // A file is made under another name, so a loss of power never meets one that is half made.
    drop(Database::open(&medium.store(), &SPACES).unwrap());
    for _ in 0..3 {
        if lies {
            medium.lie();
        }
        if rng.below(4) > 0 {
            medium.burn_after(rng.below(300) as u32);
        }
        let life = live(&mut rng, &medium, state);
        medium = medium.after_power_loss(&mut rng);
        drop(life.database);
        // Looked at through a copy: the next life has to repair it for itself, and may lose power over that too.
        let Ok(mut database) = Database::open(&medium.copy().store(), &SPACES) else { return false };
        state = dump(&mut database);
        // All of a write or nothing, none without those before it, and no safe one lost.
        if !life.states[life.safe..].contains(&state) {
            return false;
        }
    }
    true
}

#[test]
fn a_loss_of_power_loses_no_safe_write_tears_none_and_keeps_the_order() {
    for seed in 0..300 {
        assert!(survives(seed, false), "seed {seed}");
    }
}

/// The test above can fail: a disk that lies about its syncs is caught.
#[test]
fn a_disk_that_lies_is_caught() {
    assert!((0..40).any(|seed| !survives(seed, true)));
}

#[test]
fn a_full_disk_is_reported_and_writes_work_again_with_room() {
    let medium = Medium::default();
    let mut database = Database::open(&medium.store(), &SPACES).unwrap();
    let large = |n: u8, durable| Work::Write {
        changes: vec![(SPACES[0].id, vec![n], Some(vec![n; 1_000_000].into()))],
        durable,
    };
    assert_eq!(database.run([large(0, true)].iter()), [Outcome::Written]);
    medium.limit(Some(medium.len() + 500_000));
    let mut written = 1;
    let fault = loop {
        match database.run([large(written, true)].iter()).remove(0) {
            Outcome::Written => written += 1,
            Outcome::Failed(fault) => break fault,
            other => panic!("{other:?}"),
        }
        assert!(written < 100, "the disk never got full");
    };
    assert_eq!(fault, StoreFault::Full);
    medium.limit(None);
    assert_eq!(database.run([large(200, true)].iter()), [Outcome::Written], "opened again");
    let kept: Vec<_> = dump(&mut database).into_keys().map(|(_, key)| key[0]).collect();
    assert_eq!(
        kept,
        (0..written).chain([200]).collect::<Vec<_>>(),
        "and nothing of the failed write is there"
    );
}

/// A write that was answered but not synced when the disk became full is neither lost nor reordered. Reads find it in
/// memory until there is room, and then it is written again.
#[test]
fn unsynced_writes_survive_a_full_disk() {
    let put = |space: usize, key: &[u8], value: Option<Vec<u8>>, durable| Work::Write {
        changes: vec![(SPACES[space].id, key.to_vec(), value.map(Into::into))],
        durable,
    };
    for seed in 0..20 {
        let mut rng = Rng::from_number(seed, 1);
        let medium = Medium::default();
        let mut database = Database::open(&medium.store(), &SPACES).unwrap();
        let mut state = State::new();
        let mut fate = |database: &mut Database, rng: &mut Rng, number: u64| {
            let work = match random_write(rng, number) {
                Work::Write { changes, .. } => Work::Write { changes, durable: false },
                other => other,
            };
            let outcome = database.run([&work].into_iter()).remove(0);
            if outcome == Outcome::Written {
                state = apply(&state, &work);
            }
            assert_eq!(dump(database), state, "seed {seed}: reads go on, whatever becomes of writes");
            outcome
        };
        (0..rng.below(20)).for_each(|n| assert_eq!(fate(&mut database, &mut rng, n), Outcome::Written));
        medium.limit(Some(medium.len()));
        let refused =
            (100..400).find(|n| fate(&mut database, &mut rng, *n) == Outcome::Failed(StoreFault::Full));
        assert!(refused.is_some(), "seed {seed}: the disk never got full");
        let small = put(1, b"small", Some(vec![1; 100]), true);
        if let Outcome::Failed(fault) = database.run([&small].into_iter()).remove(0) {
            assert_eq!(fault, StoreFault::Full);
        } else {
            assert_eq!(database.run([&put(1, b"small", None, true)].into_iter()), [Outcome::Written]);
        }
        medium.limit(None);
        database.sync();
        assert!(database.is_synced(), "seed {seed}: there is room again");
        assert_eq!(fate(&mut database, &mut rng, 999), Outcome::Written);
        database.sync();
        drop(database);
        let mut again = Database::open(&medium.after_power_loss(&mut rng).store(), &SPACES).unwrap();
        assert_eq!(dump(&mut again), state, "seed {seed}: and all of it is safe");
    }
}

/// Values that come and go do not make the file grow: their places are used again.
#[test]
fn the_place_of_a_large_value_is_used_again() {
    let medium = Medium::default();
    let mut database = Database::open(&medium.store(), &SPACES).unwrap();
    let mut most = 0;
    for n in 0..200u8 {
        let key = |n: u8| vec![n];
        let changes = vec![
            (SPACES[0].id, key(n), Some(vec![n; 500_000].into())),
            (SPACES[0].id, key(n.wrapping_sub(4)), None),
        ];
        assert_eq!(database.run([Work::Write { changes, durable: n % 8 == 0 }].iter()), [Outcome::Written]);
        most = most.max(medium.len());
    }
    assert_eq!(dump(&mut database).len(), 4);
    assert!(most < 20_000_000, "{most} bytes for four values of 500 000");
}

#[test]
fn after_losing_an_answered_write_it_stays_broken() {
    let medium = Medium::default();
    let mut database = Database::open(&medium.store(), &SPACES).unwrap();
    let put = |durable| Work::Write { changes: vec![(SPACES[0].id, vec![1], Some(vec![1].into()))], durable };
    assert_eq!(database.run([put(false)].iter()), [Outcome::Written]);
    medium.burn_after(0);
    assert_eq!(database.run([put(true)].iter()), [Outcome::Failed(StoreFault::Broken)]);
    assert_eq!(database.run([put(false)].iter()), [Outcome::Failed(StoreFault::Broken)]);
}

/// A loss of power during the creation leaves an incomplete file, but under a temporary name.
#[test]
fn a_file_that_was_never_finished_is_made_anew() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.redb");
    let unfinished = directory.path().join("store.redb.new");
    std::fs::write(&unfinished, vec![0; 1_056_768]).unwrap();
    let mut database = Database::open(&Store::File(path.clone()), &SPACES).unwrap();
    assert_eq!(dump(&mut database), State::new());
    assert!(path.exists() && !unfinished.exists());
}

#[test]
fn a_page_is_bounded_by_bytes_and_an_empty_range_is_empty() {
    let mut database = Database::open(&Medium::default().store(), &SPACES).unwrap();
    let changes = (0..5).map(|n| (SPACES[1].id, vec![n], Some(vec![n; 600_000].into()))).collect();
    assert_eq!(database.run([Work::Write { changes, durable: false }].iter()), [Outcome::Written]);
    let mut page = |from: &[u8], until: &[u8]| {
        let (from, until) = (from.to_vec(), until.to_vec());
        let page = Work::Page { space: SPACES[1].id, from, until, entries_max: 100 };
        match database.run([page].iter()).remove(0) {
            Outcome::Page { entries, more } => (entries.into_iter().map(|(key, _)| key[0]).collect(), more),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(page(&[], &[]), (vec![0, 1], true));
    assert_eq!(page(&[3], &[]), (vec![3, 4], false));
    assert_eq!(page(&[3], &[4]), (vec![3], false));
    assert_eq!(page(&[4], &[3]), (vec![], false));
    assert_eq!(page(&[3], &[3]), (vec![], false));
}

/// A build without a disk answers as the database does.
#[test]
fn a_store_in_memory_answers_as_the_database_does() {
    for seed in 0..30 {
        let mut rng = Rng::from_number(seed, 2);
        let mut database = Database::open(&Store::Memory, &SPACES).unwrap();
        let mut memory = Memory::open(&Store::Memory, &SPACES).unwrap();
        for number in 0..60 {
            let space = [SPACES[0].id, SPACES[1].id, SpaceId::new(7)][rng.index(3)];
            let mut key = || [vec![], vec![b'k', rng.below(20) as u8]][rng.index(2)].clone();
            let (from, until) = (key(), key());
            let work = match rng.below(4) {
                0 => Work::Get { space, key: from },
                1 => Work::Page { space, from, until, entries_max: rng.below(12) as u32 },
                2 => Work::Write { changes: vec![(space, b"key".to_vec(), None)], durable: false },
                _ => random_write(&mut rng, number),
            };
            assert_eq!(
                memory.run([&work].into_iter()),
                database.run([&work].into_iter()),
                "seed {seed}: {work:?}"
            );
        }
    }
}

/// While the disk is busy the next group gathers: many durable writes cost few syncs.
#[test]
fn waiting_writes_share_a_sync() {
    let medium = Medium::default();
    let database = Database::open(&medium.store(), &SPACES).unwrap();
    let before = medium.syncs();
    let (requests, inbox) = sync_channel(1000);
    let (outbox, mut answers) = unbounded_channel();
    for n in 0..200 {
        let work =
            Work::Write { changes: vec![(SPACES[0].id, vec![n], Some(vec![n].into()))], durable: true };
        requests.send(Request { op: OpId::new(u64::from(n)), bytes: 2, work }).unwrap();
    }
    worker::start(database, inbox, outbox).unwrap();
    for n in 0..200 {
        let answer = answers.blocking_recv().unwrap();
        assert_eq!((answer.op, answer.outcome), (OpId::new(n), Outcome::Written));
    }
    assert!(medium.syncs() - before < 10, "{} syncs", medium.syncs() - before);
}

#[test]
fn a_write_that_need_not_be_durable_is_synced_after_a_while() {
    let medium = Medium::default();
    let database = Database::open(&medium.store(), &SPACES).unwrap();
    let (requests, inbox) = sync_channel(10);
    let (outbox, mut answers) = unbounded_channel();
    worker::start(database, inbox, outbox).unwrap();
    let before = medium.syncs();
    let work = Work::Write { changes: vec![(SPACES[0].id, vec![1], Some(vec![1].into()))], durable: false };
    requests.send(Request { op: OpId::new(1), bytes: 2, work }).unwrap();
    assert_eq!(answers.blocking_recv().unwrap().outcome, Outcome::Written);
    let hang = Instant::now() + Duration::from_secs(60);
    while medium.syncs() == before {
        assert!(Instant::now() < hang, "it never became safe");
        std::thread::yield_now();
    }
}
