//! Words that may not appear in any text of the project: it has no traces of the machine it was written on.

use crate::Problem;
use crate::source::SourceFile;

/// Prefixes of paths on one machine, and words about how the text came about.
const FORBIDDEN: [&str; 9] = [
    "../shared",
    "/work/",
    "/home/",
    "/root/",
    "/users/",
    "helper agent",
    "subagent",
    "sub-agent",
    "ai assistant",
];

/// The only place that dependencies come from.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// This file names them all.
const EXEMPT: &str = "tests/tidy/words.rs";

pub(crate) fn check(file: &SourceFile) -> Vec<Problem> {
    if file.path == EXEMPT {
        return Vec::new();
    }
    let mut problems = Vec::new();
    for (line, text) in (1..).zip(file.text.lines()) {
        let lower = text.to_lowercase();
        for word in FORBIDDEN.iter().filter(|word| lower.contains(**word)) {
            problems.push(Problem::new(&file.path, line, format!("{word:?} means nothing to a reader")));
        }
        if file.path == "Cargo.lock" && text.starts_with("source = ") && !text.contains(REGISTRY) {
            problems.push(Problem::new(&file.path, line, "a dependency that is not from crates.io"));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(path: &str, text: &str) -> usize {
        check(&SourceFile::new(path, text)).len()
    }

    #[test]
    fn paths_of_one_machine_are_found() {
        assert_eq!(count("README.md", "see ../shared/DESIGN.md\n\nand /work/x\n"), 2);
        assert_eq!(count("src/a.rs", "// /home/me/annulus, /Users/me\n"), 2);
        assert_eq!(count(".ci/run", "cd \"$(dirname \"$0\")/..\"\nnetworks/workers"), 0);
    }

    #[test]
    fn talk_of_how_the_text_came_about_is_found() {
        assert_eq!(count("HACKING.md", "written by a Subagent"), 1);
        assert_eq!(count("HACKING.md", "a helper function, an agent"), 0);
    }

    #[test]
    fn dependencies_come_from_one_registry() {
        assert_eq!(count("Cargo.lock", &format!("source = \"{REGISTRY}\"")), 0);
        assert_eq!(count("Cargo.lock", "source = \"git+https://example.org/fork\""), 1);
    }
}
