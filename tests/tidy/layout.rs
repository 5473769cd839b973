//! One layout for all protocols, so that a reader of one finds everything in the others; and tables of files that are true.

use std::collections::BTreeSet;

use crate::Problem;
use crate::source::SourceFile;

/// The files of every protocol's folder, beside its own nouns.
const PROTOCOL_FILES: [&str; 5] = ["mod.rs", "machine.rs", "config.rs", "message.rs", "wire.rs"];

/// Where protocols live.
const PROTOCOLS: &str = "crates/core/src/";

pub(crate) fn check(files: &[SourceFile]) -> Vec<Problem> {
    let paths: BTreeSet<&str> = files.iter().map(|file| file.path.as_str()).collect();
    let mut problems = Vec::new();
    for folder in paths.iter().filter_map(|path| protocol_of(path)) {
        for file in PROTOCOL_FILES {
            if !paths.contains(format!("{PROTOCOLS}{folder}/{file}").as_str()) {
                let what = format!("the protocol has no {file}: every protocol has the same file names");
                problems.push(Problem::new(&format!("{PROTOCOLS}{folder}"), 1, what));
            }
        }
    }
    for file in files.iter().filter(|file| file.is_rust()) {
        problems.extend(tables(file, &paths));
    }
    problems
}

/// The rows `//! | `a.rs`, `b/` | …` of a module's documentation name files and folders that exist beside it.
fn tables(file: &SourceFile, paths: &BTreeSet<&str>) -> Vec<Problem> {
    let (folder, name) = file.path.rsplit_once('/').unwrap_or(("", &file.path));
    let inside = format!("{folder}/{}", name.trim_end_matches(".rs"));
    let exists = |named: &str| {
        [folder, &inside].iter().any(|folder| {
            let path = format!("{folder}/{named}");
            paths.contains(path.as_str())
                || (path.ends_with('/') && paths.iter().any(|one| one.starts_with(&path)))
        })
    };
    let mut problems = Vec::new();
    for (line, text) in (1..).zip(file.text.lines()) {
        let Some(cell) = text.trim_start().strip_prefix("//! | ").and_then(|row| row.split(" | ").next())
        else {
            continue;
        };
        let named = cell.split('`').skip(1).step_by(2);
        for named in named.filter(|name| is_path(name) && !exists(name)) {
            problems.push(Problem::new(
                &file.path,
                line,
                format!("the table names {named}, which is not there"),
            ));
        }
    }
    problems
}

/// Whether a word of a table is the name of a file or a folder.
fn is_path(name: &str) -> bool {
    let stem = name.strip_suffix(".rs").or_else(|| name.strip_suffix('/'));
    stem.is_some_and(|stem| {
        !stem.is_empty()
            && stem.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '_' | '/'))
    })
}

/// The folder of a protocol, if this is the path of its machine. A composition of machines has no wire format of its
/// own: it is a machine, but no protocol.
fn protocol_of(path: &str) -> Option<&str> {
    let folder = path.strip_prefix(PROTOCOLS)?.strip_suffix("/machine.rs")?;
    (!folder.contains('/') && folder != "node").then_some(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(paths: &[&str]) -> Vec<String> {
        let files: Vec<_> = paths.iter().map(|path| SourceFile::new(path, "")).collect();
        check(&files).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_protocol_has_every_file() {
        let mut paths: Vec<String> =
            PROTOCOL_FILES.iter().map(|file| format!("crates/core/src/ping/{file}")).collect();
        paths.push("crates/core/src/machine.rs".to_owned());
        paths.push("crates/sim/src/world/machine.rs".to_owned());
        let all: Vec<&str> = paths.iter().map(String::as_str).collect();
        assert_eq!(problems(&all), [""; 0]);
        let without: Vec<&str> = all.iter().copied().filter(|path| !path.ends_with("ping/wire.rs")).collect();
        assert_eq!(problems(&without).len(), 1);
        assert!(problems(&without)[0].contains("has no wire.rs"));
    }

    #[test]
    fn a_table_of_files_names_files_that_exist() {
        let table =
            "//! | file | subject |\n//! | `ring.rs`, `links/` | connections |\n//! | `shelf.rs` | gone |";
        let files = [
            SourceFile::new("a/mod.rs", table),
            SourceFile::new("a/ring.rs", ""),
            SourceFile::new("a/links/mod.rs", ""),
        ];
        let problems = check(&files);
        assert_eq!(problems.len(), 1);
        assert!(problems[0].to_string().contains("shelf.rs"), "{}", problems[0]);
    }
}
