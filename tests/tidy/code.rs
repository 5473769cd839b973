//! Rules for Rust source: ceilings, and forbidden leftovers.

use crate::Problem;
use crate::source::{SourceFile, functions, mask, test_regions};

/// The ceiling of a file. About 400 is comfortable.
const FILE_LINES_MAX: usize = 600;

/// The ceiling of a function: one screen.
const FUNCTION_LINES_MAX: usize = 70;

/// Files and functions that are still too long, each with a ceiling of its own that may only fall.
const TOO_LONG: &[(&str, usize, usize)] = &[("crates/annulus/src/node/builder.rs", 600, 76)];

/// Tests whose subject is a kernel that is watched for some time.
const WATCHES_A_KERNEL: [&str; 2] =
    ["crates/net/tests/driver/watched.rs", "crates/net/tests/truths/kernel.rs"];

/// Code that is not finished.
const UNFINISHED: [&str; 3] = ["todo!", "unimplemented!", "dbg!"];

pub(crate) fn check(file: &SourceFile) -> Vec<Problem> {
    if !file.is_rust() {
        return Vec::new();
    }
    let masked = mask(&file.text);
    let mut problems = ceilings(file, &masked);
    let regions = test_regions(&masked);
    for (line, code) in (1..).zip(masked.lines()) {
        let in_test = file.is_test() || regions.iter().any(|region| region.contains(&line));
        let may_sleep =
            !in_test || file.path.ends_with(THE_ONE_SLEEP) || WATCHES_A_KERNEL.contains(&file.path.as_str());
        let found = line_problems(code, in_test, may_sleep).into_iter();
        problems.extend(found.map(|what| Problem::new(&file.path, line, what)));
    }
    problems
}

fn ceilings(file: &SourceFile, masked: &str) -> Vec<Problem> {
    let mut problems = Vec::new();
    let lines = file.text.lines().count();
    let own = TOO_LONG.iter().find(|(path, ..)| *path == file.path);
    let (file_max, function_max) =
        own.map_or((FILE_LINES_MAX, FUNCTION_LINES_MAX), |(_, file, function)| (*file, *function));
    if lines > file_max {
        let what = format!("the file has {lines} lines, {file_max} is the ceiling: give a noun its own file");
        problems.push(Problem::new(&file.path, file_max + 1, what));
    }
    for function in functions(masked).iter().filter(|function| function.length() > function_max) {
        let (name, length) = (&function.name, function.length());
        let what = format!("`{name}` has {length} lines, {function_max} is the ceiling: split it");
        problems.push(Problem::new(&file.path, *function.lines.start(), what));
    }
    problems
}

/// Where tests that run real processes have their pause between two looks; the others call that.
const THE_ONE_SLEEP: &str = "crates/cli/tests/common/mod.rs";

fn line_problems(code: &str, in_test: bool, may_sleep: bool) -> Vec<String> {
    let mut problems = Vec::new();
    for word in UNFINISHED.iter().filter(|word| has_word(code, word)) {
        problems.push(format!("`{word}` is left over"));
    }
    if !in_test && code.contains(".unwrap()") {
        problems.push("`unwrap` outside tests: handle it, or `expect` with a true sentence".to_owned());
    }
    if code.contains("#[ignore]") {
        problems.push("a test is ignored without a reason: write `#[ignore = \"…\"]`".to_owned());
    }
    if !may_sleep && sleeps(code) {
        problems.push("a test sleeps and hopes: wait for what it needs, or use virtual time".to_owned());
    }
    problems
}

/// Whether `sleep` or `sleep_until` is called as a function; a method of that name is something else.
fn sleeps(code: &str) -> bool {
    ["sleep(", "sleep_until("].iter().any(|call| {
        code.match_indices(call).any(|(at, _)| !code[..at].ends_with(|c: char| is_name(c) || c == '.'))
    })
}

fn has_word(code: &str, word: &str) -> bool {
    code.match_indices(word).any(|(at, _)| !code[..at].ends_with(is_name))
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(path: &str, text: &str) -> Vec<String> {
        check(&SourceFile::new(path, text)).iter().map(ToString::to_string).collect()
    }

    #[track_caller]
    fn assert_one(path: &str, text: &str, expected: &str) {
        let found = problems(path, text);
        assert!(found.len() == 1 && found[0].starts_with(expected), "{found:#?}");
    }

    fn function_of(lines: usize) -> String {
        format!("//! Doc.\nfn long() {{\n{}}}\n", "    f(\"{\");\n".repeat(lines - 2))
    }

    #[test]
    fn a_function_of_71_lines_is_too_long() {
        assert_eq!(problems("src/a.rs", &function_of(70)), [""; 0]);
        assert_one("src/a.rs", &function_of(71), "src/a.rs:2: `long` has 71 lines");
        assert_one("tests/a.rs", &function_of(71), "tests/a.rs:2: `long` has 71 lines");
    }

    #[test]
    fn a_file_of_601_lines_is_too_long() {
        assert_eq!(problems("src/a.rs", &"\n".repeat(600)), [""; 0]);
        assert_one("src/a.rs", &"\n".repeat(601), "src/a.rs:601: the file has 601 lines");
        assert_eq!(problems("a.md", &"\n".repeat(601)), [""; 0]);
    }

    #[test]
    fn unwrap_belongs_to_tests() {
        assert_one("src/a.rs", "fn f() {\n    x.unwrap();\n}\n", "src/a.rs:2: `unwrap` outside tests");
        assert_eq!(
            problems("src/a.rs", "#[cfg(test)]\nmod tests {\n    fn f() { x.unwrap() }\n}\n"),
            [""; 0]
        );
        assert_one("src/a.rs", "#[cfg(test)]\nmod tests {\n}\nfn f() { x.unwrap() }\n", "src/a.rs:4:");
        assert_eq!(problems("src/id_tests.rs", "fn f() { x.unwrap() }"), [""; 0]);
        assert_eq!(problems("crates/net/tests/a.rs", "fn f() { x.unwrap() }"), [""; 0]);
        assert_eq!(problems("src/a.rs", "/// x.unwrap()\nfn f() { x.unwrap_or(\".unwrap()\") }"), [""; 0]);
    }

    #[test]
    fn nothing_unfinished_stays() {
        assert_one("src/a.rs", "fn f() { todo!() }", "src/a.rs:1: `todo!`");
        assert_one("src/a.rs", "fn f() { unimplemented!(\"x\") }", "src/a.rs:1: `unimplemented!`");
        assert_one("tests/a.rs", "fn f() { dbg!(x) }", "tests/a.rs:1: `dbg!`");
        assert_eq!(problems("src/a.rs", "// todo!\nfn f() { my_todo!(\"todo!\") }"), [""; 0]);
    }

    #[test]
    fn an_ignored_test_needs_a_reason() {
        assert_one("src/a.rs", "#[test]\n#[ignore]\nfn f() {}", "src/a.rs:2: a test is ignored");
        assert_eq!(problems("src/a.rs", "#[test]\n#[ignore = \"an hour long\"]\nfn f() {}"), [""; 0]);
    }

    #[test]
    fn tests_do_not_sleep() {
        assert_one("tests/a.rs", "fn f() { std::thread::sleep(d) }", "tests/a.rs:1: a test sleeps");
        assert_one("tests/a.rs", "fn f() { tokio::time::sleep(d).await }", "tests/a.rs:1: a test sleeps");
        assert_one("tests/a.rs", "fn f() { sleep_until(t).await }", "tests/a.rs:1: a test sleeps");
        assert_eq!(problems("tests/a.rs", "fn f() { host.sleep(d); let asleep = oversleep(d); }"), [""; 0]);
        assert_eq!(problems("src/a.rs", "fn f() { tokio::time::sleep(d).await }"), [""; 0]);
    }
}
