//! The repository as text: its files, and Rust source read just well enough to count lines and find tests.
//!
//! No parser and no dependency: the source is formatted by rustfmt, so masking comments and literals and matching
//! braces is enough.

#![allow(dead_code, unused_imports, reason = "two tests share this, and each uses its part")]

mod functions;
mod lexer;

use std::fs;
use std::path::{Path, PathBuf};

pub(crate) use functions::{functions, test_regions};
pub(crate) use lexer::mask;

/// A text file of the repository.
#[derive(Clone, Debug)]
pub(crate) struct SourceFile {
    /// From the root, with `/` between the parts.
    pub(crate) path: String,
    pub(crate) text: String,
}

impl SourceFile {
    pub(crate) fn new(path: &str, text: &str) -> Self {
        Self { path: path.to_owned(), text: text.to_owned() }
    }

    pub(crate) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Whether the whole file is compiled for tests only.
    pub(crate) fn is_test(&self) -> bool {
        let is_test_folder = |part: &str| part == "tests" || part == "benches";
        self.path.ends_with("tests.rs") || self.path.split('/').any(is_test_folder)
    }
}

/// The root of the repository, wherever the tests are run from.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the root is two folders up")
}

/// Every text file under `root`, by path.
pub(crate) fn files(root: &Path) -> Vec<SourceFile> {
    let mut found = Vec::new();
    walk(root, root, &mut found);
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

fn walk(root: &Path, folder: &Path, found: &mut Vec<SourceFile>) {
    for entry in fs::read_dir(folder).expect("a folder of the repository can be listed") {
        let path = entry.expect("its entries too").path();
        let name = relative(root, &path);
        if path.is_dir() {
            if !is_foreign(&name) {
                walk(root, &path, found);
            }
        } else if is_text(&name) {
            let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
            found.push(SourceFile { path: name, text });
        }
    }
}

fn relative(root: &Path, path: &Path) -> String {
    let below = path.strip_prefix(root).expect("everything found is below the root");
    below.components().map(|part| part.as_os_str().to_string_lossy()).collect::<Vec<_>>().join("/")
}

/// Folders outside of the project: those of git and cargo, and the output of the fuzzer.
fn is_foreign(folder: &str) -> bool {
    let last = folder.rsplit('/').next().unwrap_or(folder);
    (last.starts_with('.') && last != ".ci") || last == "target" || folder.starts_with("fuzz/artifacts")
}

fn is_text(path: &str) -> bool {
    const ENDINGS: [&str; 7] = [".rs", ".md", ".toml", ".sh", ".yml", ".lock", ".txt"];
    ENDINGS.iter().any(|ending| path.ends_with(ending)) || path == ".ci/run" || path == "fuzz/run"
}
