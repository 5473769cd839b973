//! Rules for `Cargo.toml`: one set of lints, and one place for the versions of dependencies.

use crate::Problem;
use crate::source::SourceFile;

pub(crate) fn check(file: &SourceFile) -> Vec<Problem> {
    if !file.path.ends_with("/Cargo.toml") {
        return Vec::new();
    }
    let entries = entries(&file.text);
    let mut problems = Vec::new();
    let has_lints =
        entries.iter().any(|e| e.section == "lints" && e.text.replace(' ', "") == "workspace=true");
    // The only crate with `unsafe`, which the lints of the workspace forbid; it has lints of its own.
    if !has_lints && file.path != "crates/sys/Cargo.toml" {
        problems.push(Problem::new(&file.path, 1, "no `[lints] workspace = true`"));
    }
    // The benches compare with peers and may name them for themselves.
    if file.path != "crates/bench/Cargo.toml" {
        for entry in entries.iter().filter(|entry| entry.is_dependency() && !entry.is_inherited()) {
            let what = "a dependency with a version of its own: name it in `[workspace.dependencies]`";
            problems.push(Problem::new(&file.path, entry.line, what));
        }
    }
    problems
}

/// A key with its value, and the section it stands in.
struct Entry<'a> {
    line: usize,
    section: &'a str,
    text: &'a str,
}

impl Entry<'_> {
    fn is_dependency(&self) -> bool {
        self.section.split('.').any(|part| part.ends_with("dependencies"))
    }

    fn is_inherited(&self) -> bool {
        self.text.replace(' ', "").contains("workspace=true")
    }
}

/// The first line of each key; an array that goes on below it is passed over.
fn entries(text: &str) -> Vec<Entry<'_>> {
    let mut entries = Vec::new();
    let (mut section, mut depth) = ("", 0i32);
    for (line, text) in (1..).zip(text.lines().map(str::trim)) {
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        if depth == 0 && text.starts_with('[') {
            section = text.trim_matches(['[', ']']);
            continue;
        }
        if depth == 0 {
            entries.push(Entry { line, section, text });
        }
        let count = |open: char| i32::try_from(text.matches(open).count()).unwrap_or(0);
        depth += count('[') - count(']');
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINTS: &str = "[lints]\nworkspace = true\n";

    fn problems(path: &str, text: &str) -> Vec<String> {
        check(&SourceFile::new(path, text)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn every_crate_takes_the_lints() {
        assert_eq!(problems("crates/a/Cargo.toml", LINTS), [""; 0]);
        assert_eq!(problems("crates/a/Cargo.toml", "[package]\nname = \"a\"\n").len(), 1);
        assert_eq!(problems("Cargo.toml", "[workspace]\n"), [""; 0]);
    }

    #[test]
    fn versions_stand_in_one_place() {
        let inherited =
            "[dependencies]\na.workspace = true\nb = { workspace = true, features = [\n  \"c\",\n] }\n";
        assert_eq!(problems("fuzz/Cargo.toml", &format!("{inherited}{LINTS}")), [""; 0]);
        for own in
            ["[dependencies]\na = \"1\"\n", "[target.'cfg(unix)'.dependencies]\na = { version = \"1\" }\n"]
        {
            let text = format!("{LINTS}{own}");
            assert_eq!(problems("crates/a/Cargo.toml", &text).len(), 1, "{text}");
            assert!(problems("crates/a/Cargo.toml", &text)[0].starts_with("crates/a/Cargo.toml:4:"));
            assert_eq!(problems("crates/bench/Cargo.toml", &text), [""; 0]);
        }
        assert_eq!(
            problems("crates/a/Cargo.toml", &format!("{LINTS}[dev-dependencies.a]\npath = \"x\"\n")).len(),
            1
        );
    }
}
