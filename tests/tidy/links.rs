//! Links in the documents lead somewhere.

use crate::Problem;
use crate::source::SourceFile;

/// Checks that every link of a Markdown file to a local file names one; `exists` gets paths from the root.
pub(crate) fn check(file: &SourceFile, exists: impl Fn(&str) -> bool) -> Vec<Problem> {
    if !file.path.ends_with(".md") {
        return Vec::new();
    }
    let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let broken = |target: &str| match resolve(folder, target) {
        Some(path) => !exists(&path),
        None => true,
    };
    links(&file.text)
        .into_iter()
        .filter(|(_, target)| is_local(target) && broken(target))
        .map(|(line, target)| Problem::new(&file.path, line, format!("the link to `{target}` leads nowhere")))
        .collect()
}

fn is_local(target: &str) -> bool {
    !target.starts_with('#') && !target.starts_with("mailto:") && !target.contains("://")
}

/// The path from the root that `target` names in `folder`; `None` if it leaves the repository.
fn resolve(folder: &str, target: &str) -> Option<String> {
    let target = target.split(['#', '?']).next().unwrap_or(target);
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// Lines and targets of all links, those in code aside.
fn links(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut in_code = false;
    for (line, text) in (1..).zip(text.lines()) {
        if text.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        if in_code {
            continue;
        }
        if let Some((label, target)) = text.trim().strip_prefix('[').and_then(|rest| rest.split_once("]: "))
            && !label.contains(']')
        {
            found.push((line, target.trim()));
        }
        found.extend(inline_targets(text).into_iter().map(|target| (line, target)));
    }
    found
}

/// The targets of `[label](target)` in one line.
fn inline_targets(line: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for (at, opening) in line.match_indices("](") {
        let in_code = line[..at].matches('`').count() % 2 == 1;
        let rest = &line[at + opening.len()..];
        if let (false, Some((target, _))) = (in_code, rest.split_once(')')) {
            found.push(target.split(' ').next().unwrap_or(target));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(path: &str, text: &str) -> Vec<String> {
        let exists = |path: &str| ["README.md", "docs/spec/ping.md", "docs"].contains(&path);
        check(&SourceFile::new(path, text), exists).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn links_resolve_from_their_own_folder() {
        assert_eq!(broken("docs/a.md", "[a](spec/ping.md#pi-1), [b](../README.md), [c](.)"), [""; 0]);
        assert_eq!(
            broken("docs/a.md", "one\n[a](ping.md)"),
            ["docs/a.md:2: the link to `ping.md` leads nowhere"]
        );
        assert_eq!(broken("README.md", "[a](../elsewhere.md)").len(), 1);
        assert_eq!(broken("README.md", "[`a`]: docs/none.md").len(), 1);
    }

    #[test]
    fn other_peoples_pages_and_code_are_not_followed() {
        assert_eq!(broken("README.md", "[a](https://example.org/x.md) [b](#below)"), [""; 0]);
        assert_eq!(broken("README.md", "```\n[a](none.md)\n```\n`[a](none.md)`"), [""; 0]);
        assert_eq!(broken("src/a.rs", "[a](none.md)"), [""; 0]);
    }
}
