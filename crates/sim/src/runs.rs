//! Many runs over all cores, reported in the order of their seeds.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;

use crate::scenario::{Lines, Report, Scenario, run};

/// Runs `count` seeds from `first` on, on `threads` threads. `report` gets each result, in the order of the seeds and
/// as soon as that order allows.
pub fn run_many<S: Scenario>(
    scenario: &S,
    first: u64,
    count: u64,
    threads: usize,
    report: impl FnMut(Report),
) {
    run_seeds(first, count, threads, |seed| run(scenario, seed, Lines::default()), report);
}

/// The same for anything that is done with a seed.
pub fn run_seeds<T: Send>(
    first: u64,
    count: u64,
    threads: usize,
    run: impl Fn(u64) -> T + Sync,
    mut report: impl FnMut(T),
) {
    let next = AtomicU64::new(0);
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            let (sender, next, run) = (sender.clone(), &next, &run);
            scope.spawn(move || {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count {
                        break;
                    }
                    let done = run(first.wrapping_add(index));
                    if sender.send((index, done)).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        let (mut early, mut due) = (BTreeMap::new(), 0);
        for (index, done) in receiver {
            early.insert(index, done);
            while let Some(done) = early.remove(&due) {
                report(done);
                due += 1;
            }
        }
    });
}
