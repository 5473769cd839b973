//! Every behaviour that a document asks for has a test that names it.
//!
//! `docs/spec/*.md` restate the documents clause by clause (`docs/spec/README.md` has the format); the test that
//! proves clause J-67 is called `j_67_…`. A clause without a test is listed here and fails, unless the document gives
//! a reason. See the table with `cargo test --test spec_coverage -- --nocapture`.

mod source;

#[path = "spec_coverage/coverage.rs"]
mod coverage;
#[path = "spec_coverage/document.rs"]
mod document;

use coverage::Coverage;
use document::Document;

#[test]
fn every_behaviour_has_a_test() {
    let files = source::files(&source::root());
    let documents: Vec<Document> = files
        .iter()
        .filter(|file| file.path.starts_with("docs/spec/") && file.path.ends_with(".md"))
        .filter(|file| !file.path.ends_with("/README.md"))
        .map(|file| Document::parse(&file.path, &file.text))
        .collect();
    assert!(!documents.is_empty(), "docs/spec has no document");
    let tests = test_names(&files);
    let coverage = Coverage::new(&documents, &tests);
    println!("{}", coverage.table());
    let problems = coverage.problems();
    assert!(problems.is_empty(), "\n{}\n{}", coverage.table(), problems.join("\n"));
}

/// The names of all tests that run. One that is ignored proves nothing.
fn test_names(files: &[source::SourceFile]) -> Vec<String> {
    files
        .iter()
        .filter(|file| file.is_rust())
        .flat_map(|file| source::functions(&source::mask(&file.text)))
        .filter(|function| function.is_test && !function.is_ignored)
        .map(|function| function.name)
        .collect()
}

#[test]
fn tests_are_collected_from_every_crate() {
    let names = test_names(&source::files(&source::root()));
    for name in ["p_1_an_id_is_128_bits_written_as_32_hex_digits", "text_round_trips", "the_tree_is_tidy"] {
        assert!(names.iter().any(|found| found == name), "{name} was not found");
    }
    let ignored = source::SourceFile::new("a.rs", "#[test]\n#[ignore = \"slow\"]\nfn j_1_a() {}");
    assert_eq!(test_names(&[ignored]), [""; 0]);
}
