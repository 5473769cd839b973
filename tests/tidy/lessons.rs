//! Every lesson names a test that exists.

use std::collections::BTreeSet;

use crate::Problem;
use crate::source::{SourceFile, functions, mask};

const LESSONS: &str = "docs/lessons.md";

pub(crate) fn check(files: &[SourceFile]) -> Vec<Problem> {
    let rust = files.iter().filter(|file| file.is_rust());
    let tests: BTreeSet<String> = rust
        .flat_map(|file| functions(&mask(&file.text)))
        .filter(|function| function.is_test && !function.is_ignored)
        .map(|function| function.name)
        .collect();
    let lessons = files.iter().filter(|file| file.path == LESSONS);
    lessons.flat_map(|file| problems(file, &tests)).collect()
}

/// A row is `| whose | what went wrong | the test |`; the names of tests in it stand in backticks.
fn problems(file: &SourceFile, tests: &BTreeSet<String>) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (line, row) in (1..).zip(file.text.lines()).filter(|(_, row)| is_lesson(row)) {
        let last = row.trim_end().trim_end_matches('|').rsplit('|').next().unwrap_or_default();
        let names: Vec<&str> = last.split('`').skip(1).step_by(2).collect();
        if names.is_empty() {
            problems.push(Problem::new(&file.path, line, "a lesson without a test"));
        }
        for name in names.into_iter().filter(|name| !tests.contains(*name)) {
            problems.push(Problem::new(&file.path, line, format!("there is no test `{name}`")));
        }
    }
    problems
}

fn is_lesson(row: &str) -> bool {
    row.starts_with('|') && !row.starts_with("|-") && !row.starts_with("| whose ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lesson_names_a_test_that_runs() {
        let found = |row: &str| {
            let code = "#[test]\nfn one() {}\n#[test]\n#[ignore = \"slow\"]\nfn two() {}\nfn three() {}\n";
            let text = format!("| whose | what | the test |\n|---|---|---|\n{row}\n");
            check(&[SourceFile::new("a.rs", code), SourceFile::new(LESSONS, &text)]).len()
        };
        assert_eq!(found("| them | `x` broke | `one` |"), 0);
        assert_eq!(found("| them | it broke | `one`, `two` |"), 1);
        assert_eq!(found("| them | it broke | `three` |"), 1);
        assert_eq!(found("| them | it broke | none yet |"), 1);
    }
}
