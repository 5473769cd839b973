//! Words and sentences: the terms of the papers instead of our own, and sentences that are read once.
//!
//! `prose.txt` has old words and areas, each with a ceiling. A ceiling may only fall.
//! 1. An old word stands in no more lines than its ceiling says. Words that a document uses stay in `docs/spec`.
//! 2. A sentence of a comment or a page has at most 32 words.
//! 3. No sentence begins with Who, Whoever, What or Of; a question may.

use std::collections::BTreeMap;

use crate::Problem;
use crate::source::SourceFile;

const TABLE: &str = include_str!("prose.txt");
const TABLE_PATH: &str = "tests/tidy/prose.txt";
/// The most words of a sentence. 25 are the aim.
const WORDS_MAX: usize = 32;
const OPENINGS: [&str; 4] = ["Who", "Whoever", "What", "Of"];

/// `word WORD: 3` and `area PATH: long 4 opening 2`.
#[derive(Debug, Default)]
struct Table<'a> {
    words: Vec<(&'a str, usize)>,
    areas: BTreeMap<&'a str, (usize, usize)>,
}

pub(crate) fn check(files: &[SourceFile]) -> Vec<Problem> {
    let table = match parse(TABLE) {
        Ok(table) => table,
        Err(problem) => return vec![problem],
    };
    let mut problems = old_words(files, &table.words);
    problems.extend(sentences_of(files, &table.areas));
    problems
}

fn parse(text: &str) -> Result<Table<'_>, Problem> {
    let mut table = Table::default();
    for (number, line) in
        (1..).zip(text.lines()).filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
    {
        let wrong = || {
            Problem::new(
                TABLE_PATH,
                number,
                format!("neither `word W: N` nor `area P: long N opening N`: {line}"),
            )
        };
        let (head, rest) = line.rsplit_once(':').ok_or_else(wrong)?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        if let (Some(word), [most]) = (head.strip_prefix("word "), &fields[..]) {
            table.words.push((word, most.parse().map_err(|_| wrong())?));
        } else if let (Some(area), ["long", long, "opening", opening]) =
            (head.strip_prefix("area "), &fields[..])
        {
            let most = (long.parse().map_err(|_| wrong())?, opening.parse().map_err(|_| wrong())?);
            table.areas.insert(area, most);
        } else {
            return Err(wrong());
        }
    }
    Ok(table)
}

/// Where words count: the program, its tests and its pages; the documents' own words stay where they are quoted.
fn is_ours(path: &str) -> bool {
    let is_text = path.ends_with(".rs") || path.ends_with(".md");
    is_text && !path.starts_with("tests/") && !path.starts_with("docs/spec/") && path != "CHANGELOG.md"
}

fn old_words(files: &[SourceFile], words: &[(&str, usize)]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (word, most) in words {
        let mut lines = Vec::new();
        for file in files.iter().filter(|file| is_ours(&file.path)) {
            let found = (1..).zip(file.text.lines()).filter(|(_, text)| has_word(text, word));
            lines.extend(found.map(|(line, _)| (file.path.as_str(), line)));
        }
        if lines.len() > *most {
            let what = format!(
                "{word:?} is an old word: it stands in {} lines, {most} are the ceiling",
                lines.len()
            );
            let (path, line) = lines.last().copied().unwrap_or((TABLE_PATH, 1));
            problems.push(Problem::new(path, line, what));
        }
    }
    problems
}

/// Whether a line has the word, as a word or as a part of a name: `held_off` and `is_held_off`, not `upheld_offer`.
fn has_word(text: &str, word: &str) -> bool {
    let is_letter = |c: Option<char>| c.is_some_and(char::is_alphabetic);
    text.match_indices(word).any(|(at, _)| {
        let begins_upper = word.starts_with(char::is_uppercase);
        let before = text[..at].chars().next_back();
        let is_start =
            if begins_upper { !before.is_some_and(char::is_uppercase) } else { !is_letter(before) };
        let after = text[at + word.len()..].chars().next();
        is_start && !after.is_some_and(char::is_lowercase)
    })
}

fn sentences_of(files: &[SourceFile], areas: &BTreeMap<&str, (usize, usize)>) -> Vec<Problem> {
    let mut found: BTreeMap<&str, (Vec<Problem>, Vec<Problem>)> = BTreeMap::new();
    for file in files.iter().filter(|file| is_ours(&file.path) || file.path.starts_with("docs/spec/")) {
        let area = areas.keys().filter(|area| file.path.starts_with(**area)).max_by_key(|area| area.len());
        let (long, opening) = found.entry(area.copied().unwrap_or_default()).or_default();
        for (line, text) in paragraphs(file) {
            for sentence in sentences(&text) {
                let words = sentence.split_whitespace().count();
                if words > WORDS_MAX {
                    let what = format!(
                        "a sentence of {words} words, {WORDS_MAX} are the ceiling: {}",
                        shown(sentence)
                    );
                    long.push(Problem::new(&file.path, line, what));
                }
                let first = sentence.split_whitespace().next().unwrap_or_default();
                if OPENINGS.contains(&first) && !sentence.ends_with('?') {
                    let what = format!(
                        "a sentence begins with {first}: name its subject first: {}",
                        shown(sentence)
                    );
                    opening.push(Problem::new(&file.path, line, what));
                }
            }
        }
    }
    let mut problems = Vec::new();
    for (area, (long, opening)) in found {
        let (long_max, opening_max) = areas.get(area).copied().unwrap_or_default();
        for (found, most) in [(long, long_max), (opening, opening_max)] {
            if found.len() > most {
                problems.extend(found);
            }
        }
    }
    problems
}

fn shown(sentence: &str) -> String {
    sentence.split_whitespace().take(8).collect::<Vec<_>>().join(" ") + " …"
}

/// The counts of every area, in the form of the table.
pub(crate) fn counts(files: &[SourceFile]) -> String {
    let table = parse(TABLE).unwrap_or_default();
    let mut lines = Vec::new();
    for (word, most) in table.words {
        let ours = files.iter().filter(|file| is_ours(&file.path));
        let count = ours.flat_map(|file| file.text.lines()).filter(|text| has_word(text, word)).count();
        lines.push(format!("word {word}: {}", count.min(most)));
    }
    let zero = table.areas.keys().map(|area| (*area, (0, 0))).collect();
    let all = sentences_of(files, &zero);
    for area in table.areas.keys() {
        let longest = |problem: &Problem| {
            let inside = table.areas.keys().filter(|area| problem.path.starts_with(**area));
            inside.max_by_key(|area| area.len()) == Some(area)
        };
        let own: Vec<&Problem> = all.iter().filter(|problem| longest(problem)).collect();
        let long = own.iter().filter(|problem| problem.what.starts_with("a sentence of")).count();
        lines.push(format!("area {area}: long {long} opening {}", own.len() - long));
    }
    lines.join("\n")
}

/// The paragraphs of a page, or of the comments of a source file, with their first lines.
fn paragraphs(file: &SourceFile) -> Vec<(usize, String)> {
    let is_rust = file.is_rust();
    let mut found: Vec<(usize, String)> = Vec::new();
    let (mut is_open, mut in_code) = (false, false);
    for (line, text) in (1..).zip(file.text.lines()) {
        let prose = if is_rust { comment(text) } else { Some(text.trim()) };
        let Some(prose) = prose else {
            (is_open, in_code) = (false, false);
            continue;
        };
        if prose.starts_with("```") {
            in_code = !in_code;
            is_open = false;
            continue;
        }
        if in_code || prose.is_empty() || prose.starts_with("#") || prose.starts_with('<') {
            is_open = false;
            continue;
        }
        if prose.starts_with('|') {
            is_open = false;
            found.extend(prose.split(" | ").map(|cell| (line, cell.trim_matches(['|', ' ']).to_owned())));
            continue;
        }
        let item = prose.trim_start_matches(|c: char| c.is_ascii_digit());
        let is_item = prose.starts_with("- ")
            || prose.starts_with("* ")
            || item.starts_with(". ")
            || prose.starts_with("> ");
        match found.last_mut() {
            Some((_, paragraph)) if is_open && !is_item => {
                paragraph.push(' ');
                paragraph.push_str(prose);
            }
            _ => found.push((line, prose.trim_start_matches(['-', '*', '>', ' ']).to_owned())),
        }
        is_open = true;
    }
    found
}

/// The text of a line that is nothing but a comment.
fn comment(line: &str) -> Option<&str> {
    let text = line.trim_start().strip_prefix("//")?;
    Some(text.trim_start_matches(['/', '!']).trim())
}

/// The sentences of a paragraph.
fn sentences(paragraph: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut start = 0;
    for (at, end) in paragraph.match_indices(['.', '!', '?']) {
        let after = at + end.len();
        let rest = &paragraph[after..];
        let is_abbreviation = paragraph[..at].ends_with(['g', 'e']) && rest.starts_with("g.");
        if (rest.is_empty() || rest.starts_with(' ')) && !is_abbreviation {
            found.push(paragraph[start..after].trim());
            start = after;
        }
    }
    found.push(paragraph[start..].trim());
    found.retain(|sentence| !sentence.is_empty());
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(path: &str, text: &str) -> usize {
        let table = parse("word doorstep: 0\nword Alarm: 0\narea src/a: long 0 opening 0\n").unwrap();
        let files = [SourceFile::new(path, text)];
        old_words(&files, &table.words).len() + sentences_of(&files, &table.areas).len()
    }

    #[test]
    fn old_words_are_found_as_words_and_in_names() {
        for text in
            ["the doorstep", "let my_doorstep = 1;", "struct Alarms", "AlarmClock", "fn doorstep() {}"]
        {
            assert_eq!(problems("src/a.rs", text), usize::from(text != "struct Alarms"), "{text}");
        }
        assert_eq!(problems("src/a.rs", "doorsteps and alarms") + problems("docs/spec/a.md", "doorstep"), 0);
        let table = parse("word doorstep: 1\n").unwrap();
        let files = [SourceFile::new("src/a.rs", "doorstep\n")];
        assert_eq!(old_words(&files, &table.words).len(), 0, "up to the ceiling");
    }

    #[test]
    fn long_sentences_are_found() {
        let sentence = |words: usize| format!("/// {}.\n", vec!["word"; words].join(" "));
        assert_eq!(problems("src/a.rs", &sentence(32)), 0);
        assert_eq!(problems("src/a.rs", &sentence(33)), 1);
        assert_eq!(problems("src/a.rs", &format!("/// {}\n/// {}.\n", "x ".repeat(20), "y ".repeat(20))), 1);
        assert_eq!(problems("src/a.rs", &format!("/// {}.\n/// {}.\n", "x ".repeat(20), "y ".repeat(20))), 0);
        assert_eq!(
            problems("src/a.rs", &format!("// {}\nlet x = 1;\n// {}.\n", "x ".repeat(20), "y ".repeat(20))),
            0
        );
        assert_eq!(problems("a.md", &format!("```\n{}\n```\n", "x ".repeat(99))), 0);
        assert_eq!(problems("a.md", &format!("| {} | {} |\n", "x ".repeat(30), "y ".repeat(30))), 0);
    }

    #[test]
    fn sentences_name_their_subject_first() {
        assert_eq!(problems("src/a.rs", "/// Done. Whoever acknowledges answers for it.\n"), 1);
        assert_eq!(problems("src/a.rs", "//! What is sent is kept.\n"), 1);
        assert_eq!(problems("a.md", "- Of those the first counts.\n"), 1);
        assert_eq!(problems("a.md", "Who is alive? Often nobody. The one of What.\n"), 0);
    }

    #[test]
    fn the_table_is_read() {
        assert!(parse("word x: many\n").is_err() && parse("area a: 3\n").is_err() && parse("x\n").is_err());
    }
}
