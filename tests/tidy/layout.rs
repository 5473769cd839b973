//! One layout for all protocols: who knows one finds everything in the others.

use std::collections::BTreeSet;

use crate::Problem;
use crate::source::SourceFile;

/// What every protocol's folder has, beside its own nouns.
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
    problems
}

/// The folder of a protocol, if this is the path of its machine. A composition of machines speaks no bytes of its
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
}
