//! Finds functions, their attributes, and the regions that are compiled for tests only.

use std::ops::RangeInclusive;

/// A function with a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) name: String,
    /// From the line of its `fn` to that of its closing brace, counted from 1.
    pub(crate) lines: RangeInclusive<usize>,
    /// Whether a test runner calls it: an attribute whose path ends in `test`.
    pub(crate) is_test: bool,
    /// Whether the runner passes it over.
    pub(crate) is_ignored: bool,
}

impl Function {
    pub(crate) fn length(&self) -> usize {
        self.lines.end() + 1 - self.lines.start()
    }
}

/// Every function with a body in masked source.
pub(crate) fn functions(masked: &str) -> Vec<Function> {
    let mut found = Vec::new();
    for at in words(masked, "fn") {
        let name: String =
            masked[at + 2..].trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        let Some((_, end)) = body(masked, at).filter(|_| !name.is_empty()) else { continue };
        let attributes = attributes(head(masked, at));
        found.push(Function {
            name,
            lines: line_of(masked, at)..=line_of(masked, end),
            is_test: attributes.iter().any(|path| path == "test" || path.ends_with("::test")),
            is_ignored: attributes.iter().any(|path| path == "ignore"),
        });
    }
    found
}

/// The lines under `#[cfg(test)]`, whatever stands behind it.
pub(crate) fn test_regions(masked: &str) -> Vec<RangeInclusive<usize>> {
    masked
        .match_indices("#[cfg(test)]")
        .filter_map(|(at, attribute)| {
            let (_, end) = body(masked, at + attribute.len())?;
            Some(line_of(masked, at)..=line_of(masked, end))
        })
        .collect()
}

/// The places of `word` as a whole word.
fn words<'a>(masked: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let is_name = |byte: Option<&u8>| byte.is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_');
    let bytes = masked.as_bytes();
    masked.match_indices(word).map(|(at, _)| at).filter(move |&at| {
        let before = at.checked_sub(1).and_then(|at| bytes.get(at));
        !is_name(before) && !is_name(bytes.get(at + word.len()))
    })
}

/// The braces of the item that begins at `from`, as offsets; `None` if a semicolon ends it first.
fn body(masked: &str, from: usize) -> Option<(usize, usize)> {
    let mut open = None;
    let (mut braces, mut others) = (0, 0);
    for (at, byte) in masked.bytes().enumerate().skip(from) {
        match byte {
            b'(' | b'[' => others += 1,
            b')' | b']' => others -= 1,
            b';' if braces == 0 && others == 0 => return None,
            b'{' if braces > 0 || others == 0 => {
                open.get_or_insert(at);
                braces += 1;
            }
            b'}' if braces > 0 => {
                braces -= 1;
                if braces == 0 {
                    return open.map(|open| (open, at));
                }
            }
            _ => {}
        }
        if others < 0 {
            return None;
        }
    }
    None
}

/// The text between the end of the item before and `at`: attributes, visibility, `async`.
fn head(masked: &str, at: usize) -> &str {
    let mut brackets = 0;
    for (back, byte) in masked[..at].bytes().enumerate().rev() {
        match byte {
            b']' | b')' => brackets += 1,
            b'[' | b'(' => brackets -= 1,
            b';' | b'{' | b'}' if brackets == 0 => return &masked[back + 1..at],
            _ => {}
        }
    }
    &masked[..at]
}

/// The paths of the attributes in a head: `#[tokio::test(start_paused = true)]` gives `tokio::test`.
fn attributes(head: &str) -> Vec<String> {
    let path = |rest: &str| rest.chars().take_while(|c| c.is_alphanumeric() || "_:".contains(*c)).collect();
    head.split("#[").skip(1).map(path).collect()
}

fn line_of(text: &str, at: usize) -> usize {
    text[..at].bytes().filter(|&byte| byte == b'\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::mask;

    fn found(source: &str) -> Vec<Function> {
        functions(&mask(source))
    }

    #[test]
    fn a_function_reaches_from_its_name_to_its_brace() {
        let source = "#[must_use]\npub fn f(\n    a: [u8; { 2 }],\n) -> u8 {\n    if a { 1 } else { 2 }\n}\n";
        let all = found(source);
        assert_eq!(all.len(), 1);
        assert_eq!((all[0].name.as_str(), all[0].lines.clone(), all[0].length()), ("f", 2..=6, 5));
        assert!(!all[0].is_test);
    }

    #[test]
    fn a_signature_without_a_body_is_no_function() {
        assert_eq!(found("trait T { fn f(&self) -> [u8; 4]; }\nstruct S { run: fn(&[u8]) }"), []);
        assert_eq!(found("// fn f() {}\nconst S: &str = \"fn f() {}\";"), []);
    }

    #[test]
    fn tests_are_known_by_their_attribute() {
        let source = "
            #[test] fn a() {}
            #[tokio::test(flavor = \"current_thread\")] async fn b() {}
            proptest! { #![proptest_config(c())] #[test] fn c(x: u8) { f(x) } }
            #[test]
            #[should_panic(expected = \"; }\")]
            fn d() {}
            #[cfg(test)] fn e() {}
            #[test] #[ignore = \"slow\"] fn g() {}";
        let tests: Vec<_> = found(source).into_iter().filter(|f| f.is_test).collect();
        assert_eq!(tests.iter().map(|f| f.name.as_str()).collect::<Vec<_>>(), ["a", "b", "c", "d", "g"]);
        assert_eq!(tests.iter().filter(|f| f.is_ignored).count(), 1);
    }

    #[test]
    fn a_test_region_ends_with_its_module() {
        let source = "fn f() {}\n#[cfg(test)]\nmod tests {\n    fn g() {}\n}\nfn h() {}\n";
        assert_eq!(test_regions(source), [2..=5]);
        assert_eq!(test_regions("#[cfg(test)]\n#[path = \"\"]\nmod tests;\nfn f() {}\n"), []);
    }
}
