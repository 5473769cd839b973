//! Replays the corpus, and does a short slice of fuzzing.

use std::collections::BTreeMap;
use std::fs;
use std::panic::catch_unwind;
use std::path::Path;

use annulus_core::Hex;
use annulus_fuzz::{Mutator, TARGETS, Target};

/// Mutations tried on every target in every test run.
const MUTATIONS: u32 = 10_000;

/// Fixed, so that a failure repeats everywhere.
const SEED: u64 = 1;

/// The files of every folder in the corpus, by the folder's name.
fn corpus() -> BTreeMap<String, BTreeMap<String, Vec<u8>>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    names(&root).into_iter().map(|name| (name.clone(), files(&root.join(name)))).collect()
}

fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let read = |name: &str| fs::read(folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    names(folder).into_iter().map(|name| (name.clone(), read(&name))).collect()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    entries.map(|entry| entry.expect("it can be listed").file_name().to_string_lossy().into_owned()).collect()
}

/// Runs a target; if it panics, prints the bytes and how to keep them.
fn feed(target: Target, name: &str, bytes: &[u8]) {
    if catch_unwind(|| (target.run)(bytes)).is_err() {
        let (target, hex) = (target.name, Hex(bytes));
        panic!(
            "{target} broke on {name}; keep it: echo {hex} | xxd -r -p > fuzz/corpus/{target}/SAY-WHAT-IT-IS"
        );
    }
}

#[test]
fn every_target_has_a_corpus_and_every_corpus_a_target() {
    let corpus = corpus();
    let targets: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
    assert!(targets.is_sorted(), "the targets are listed by name");
    let folders: Vec<&str> = corpus.keys().map(String::as_str).collect();
    assert_eq!(folders, targets, "a folder in fuzz/corpus for each target, and no other");
    for (folder, files) in &corpus {
        assert!(
            !files.is_empty(),
            "fuzz/corpus/{folder} is empty: run fuzz/run {folder}, then --minimise it"
        );
    }
}

#[test]
fn every_file_of_the_corpus_passes_every_target() {
    for (folder, files) in &corpus() {
        for (name, bytes) in files {
            for &target in TARGETS {
                feed(target, &format!("fuzz/corpus/{folder}/{name}"), bytes);
            }
        }
    }
}

#[test]
fn a_slice_of_mutations_passes() {
    let corpus = corpus();
    for &target in TARGETS {
        let inputs: Vec<Vec<u8>> = corpus[target.name].values().cloned().collect();
        let mut mutator = Mutator::new(&inputs, SEED);
        // A life of the mesh takes ten times as long as others: it has eight spaces in its store, and much to compare.
        let count = if target.name == "mesh_life" { MUTATIONS / 10 } else { MUTATIONS };
        for number in 0..count {
            feed(target, &format!("mutation {number}"), &mutator.input());
        }
    }
}

#[test]
fn a_target_that_breaks_is_noticed() {
    let broken = Target { name: "broken", run: |bytes| assert!(bytes != [7], "seven") };
    feed(broken, "six", &[6]);
    let message = *catch_unwind(|| feed(broken, "seven", &[7])).unwrap_err().downcast::<String>().unwrap();
    assert!(message.starts_with("broken broke on seven; keep it: echo 07 |"), "{message}");
}

#[test]
fn the_same_seed_gives_the_same_mutations() {
    let corpus = [b"abcdef".to_vec(), b"012345".to_vec()];
    let inputs = |seed| {
        let mut mutator = Mutator::new(&corpus, seed);
        (0..100).map(|_| mutator.input()).collect::<Vec<_>>()
    };
    assert_eq!(inputs(1), inputs(1));
    assert_ne!(inputs(1), inputs(2));
    assert!(inputs(1).iter().any(|input| !corpus.contains(input)));
}
