//! The habits of the house that a machine can check: ceilings of files and functions, words that may not appear,
//! one layout for all protocols. Each rule is tested below on input that breaks it.

mod source;

#[path = "tidy/code.rs"]
mod code;
#[path = "tidy/layout.rs"]
mod layout;
#[path = "tidy/lessons.rs"]
mod lessons;
#[path = "tidy/links.rs"]
mod links;
#[path = "tidy/manifests.rs"]
mod manifests;
#[path = "tidy/prose.rs"]
mod prose;
#[path = "tidy/walls.rs"]
mod walls;
#[path = "tidy/words.rs"]
mod words;

use std::fmt;

/// A rule that a line breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Problem {
    path: String,
    line: usize,
    what: String,
}

impl Problem {
    fn new(path: &str, line: usize, what: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, what: what.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}

#[test]
fn the_tree_is_tidy() {
    let root = source::root();
    let files = source::files(&root);
    assert!(
        files.iter().any(|file| file.path == "tests/tidy.rs"),
        "{} is not the repository",
        root.display()
    );
    let mut problems = Vec::new();
    for file in &files {
        problems.extend(code::check(file));
        problems.extend(words::check(file));
        problems.extend(manifests::check(file));
        problems.extend(links::check(file, |path| root.join(path).exists()));
    }
    problems.extend(layout::check(&files));
    problems.extend(lessons::check(&files));
    problems.extend(walls::check(&files));
    problems.extend(prose::check(&files));
    let list: Vec<String> = problems.iter().map(ToString::to_string).collect();
    assert!(problems.is_empty(), "{} to tidy up:\n{}", list.len(), list.join("\n"));
}

/// Prints the table of machines and the counts of words and sentences: `cargo test --test tidy -- --nocapture counts`.
#[test]
#[allow(clippy::print_stdout, reason = "the table is for people")]
fn counts_of_walls_and_prose() {
    let files = source::files(&source::root());
    let (walls, prose) = (walls::report(&files), prose::counts(&files));
    assert!(walls.lines().count() > 2 && prose.contains("word "), "there is something to count");
    println!("{walls}\n\n{prose}");
}
