//! `docs/promises.md` against the code: a promise has a checker, an excuse is a constant, a ceiling has an excuse.

#![expect(clippy::unwrap_used, reason = "a helper of a test fails like a test")]

use std::path::{Path, PathBuf};

/// One row of the table.
struct Row {
    promise: String,
    checker: String,
    excuses: String,
}

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn rows(text: &str) -> Vec<Row> {
    let cells = |line: &str| {
        line.trim_matches('|').split('|').map(|cell| cell.trim().to_string()).collect::<Vec<_>>()
    };
    let first = text.split("\n## ").next().unwrap_or_default();
    let table = first.lines().filter(|line| line.starts_with('|')).skip(2).map(cells);
    table
        .map(|cells| {
            let [promise, _, checker, excuses, _] =
                <[String; 5]>::try_from(cells).expect("a row has five cells");
            Row { promise, checker, excuses }
        })
        .collect()
}

/// All code of a scenario, or of all with an empty name.
fn scenario(name: &str) -> String {
    fn collect(path: &Path, into: &mut String) {
        if path.is_dir() {
            let mut entries: Vec<PathBuf> =
                std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect();
            entries.sort();
            entries.iter().for_each(|entry| collect(entry, into));
        } else {
            into.push_str(&std::fs::read_to_string(path).unwrap_or_default());
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/scenarios");
    let mut code = String::new();
    collect(&root.join(name), &mut code);
    collect(&root.join(format!("{name}.rs")), &mut code);
    code
}

/// Whether a scenario uses an excuse, and some scenario defines it.
fn is_excuse_of(excuse: &str, code: &str, all: &str) -> bool {
    code.contains(&format!("&{excuse},")) && all.contains(&format!("{excuse}: Excuse = "))
}

/// The problems of a row.
fn complaints(row: &Row, scenario: impl Fn(&str) -> String) -> Vec<String> {
    let Some((name, checker)) = row.checker.trim_matches('`').split_once("::") else {
        return vec![format!("{}: no checker of the form `scenario::Checker`", row.promise)];
    };
    if name.ends_with(".rs") {
        let is_there = read(&format!("../../{name}")).contains(&format!("fn {checker}("));
        return if is_there { Vec::new() } else { vec![format!("{}: no test {checker}", row.promise)] };
    }
    let code = scenario(name);
    let mut complaints = Vec::new();
    if !code.contains(&format!("for {checker} {{")) {
        complaints.push(format!("{}: there is no {name}::{checker}", row.promise));
    }
    if !code.contains(&format!("type Checker = {checker};")) {
        complaints.push(format!("{}: the scenario {name} does not run {checker}", row.promise));
    }
    for excuse in row.excuses.split(", ").filter(|excuse| *excuse != "none") {
        if !is_excuse_of(excuse, &code, &scenario("")) {
            complaints.push(format!("{}: {excuse} is no excuse of {name}", row.promise));
        }
    }
    complaints
}

#[test]
fn fa_24_every_promise_has_a_checker_that_its_scenario_runs() {
    let rows = rows(&read("../../docs/promises.md"));
    assert!(rows.len() >= 10);
    let complaints: Vec<String> = rows.iter().flat_map(|row| complaints(row, scenario)).collect();
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[test]
fn fa_24_a_promise_without_a_checker_or_with_an_unknown_excuse_is_noticed() {
    let code = |_: &str| {
        String::from("impl Checker<M> for Real {\ntype Checker = Real;\nconst OK: Excuse = x; excuse(&OK, 1)")
    };
    let row = |checker: &str, excuses: &str| Row {
        promise: "p".into(),
        checker: checker.into(),
        excuses: excuses.into(),
    };
    assert!(complaints(&row("`x::Real`", "OK"), code).is_empty());
    assert_eq!(complaints(&row("`x::Other`", "none"), code).len(), 2);
    assert_eq!(complaints(&row("`x::Real`", "NONE_SUCH"), code).len(), 1);
    assert_eq!(complaints(&row("nobody", "none"), code).len(), 1);
    assert_eq!(complaints(&row("`crates/sim/tests/promises.rs::no_such_test`", "none"), code).len(), 1);
}

#[test]
fn fa_25_every_ceiling_is_for_an_excuse_that_there_is() {
    for line in read("excuses.txt").lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [name, excuse, share] = words[..] else { panic!("not scenario, excuse and share: {line}") };
        assert!(is_excuse_of(excuse, &scenario(name), &scenario("")), "{line}");
        assert!(share.parse::<f64>().is_ok_and(|share| (0.0..=1.0).contains(&share)), "{line}");
    }
}

/// The words of a promise. `at once` and `once more` are none.
fn is_strong(sentence: &str) -> bool {
    let text = sentence.to_lowercase().replace("at once", "").replace("once more", "");
    let words: Vec<&str> = text.split(|c: char| !c.is_alphanumeric()).collect();
    words.iter().any(|word| ["never", "once", "always"].contains(word))
        || words.windows(2).any(|two| two == ["at", "most"])
}

/// The sentences and cells of a page that promise something by their words.
fn strong_sentences(page: &str) -> Vec<String> {
    let prose: String = page.split("```").step_by(2).collect();
    let mut sentences = Vec::new();
    for block in prose.split("\n\n") {
        let text = block.replace('\n', " ");
        let ends = |c: char| matches!(c, '.' | '!' | '?' | ';' | '|');
        let mut rest = text.as_str();
        while let Some(at) = rest.find(ends) {
            let (sentence, behind) = rest.split_at(at + 1);
            // A full stop inside of a name or a number ends nothing.
            if behind.is_empty() || behind.starts_with(' ') || sentence.ends_with('|') {
                sentences.push(sentence.trim().to_owned());
                rest = behind;
            } else {
                let Some(next) = behind.find(ends) else { break };
                let (longer, behind) = rest.split_at(at + 1 + next + 1);
                sentences.push(longer.trim().to_owned());
                rest = behind;
            }
        }
        sentences.push(rest.trim().to_owned());
    }
    sentences.retain(|sentence| is_strong(sentence));
    sentences
}

/// The rows of the second table: page, words, held by.
fn quotes(text: &str) -> Vec<[String; 3]> {
    let second = text.split("\n## ").nth(1).unwrap_or_default();
    let rows = second.lines().filter(|line| line.starts_with('|')).skip(2);
    rows.map(|line| {
        let cells: Vec<String> =
            line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
        cells.try_into().unwrap_or_else(|_| panic!("three cells: {line}"))
    })
    .collect()
}

#[test]
fn fa_24_every_sentence_that_says_never_or_once_has_a_row() {
    let table = read("../../docs/promises.md");
    let (quotes, mut missing) = (quotes(&table), Vec::new());
    for page in ["members.md", "route.md", "token.md", "mesh.md"] {
        let text = read(&format!("../../docs/{page}")).replace('\n', " ");
        for [_, words, _] in quotes.iter().filter(|quote| quote[0] == page && !text.contains(&quote[1])) {
            missing.push(format!("docs/promises.md quotes of docs/{page} what is not there: {words}"));
        }
        for sentence in strong_sentences(&read(&format!("../../docs/{page}"))) {
            let is_quoted = |quote: &&[String; 3]| quote[0] == page && sentence.contains(&quote[1]);
            if quotes.iter().find(is_quoted).is_none() {
                missing.push(format!("docs/{page}: no row of docs/promises.md quotes: {sentence}"));
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn fa_24_the_checker_of_every_sentence_exists() {
    fn sources(folder: &Path, into: &mut String) {
        for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() && !entry.ends_with("target") {
                sources(&entry, into);
            } else if entry.extension().is_some_and(|extension| extension == "rs") {
                into.push_str(&std::fs::read_to_string(&entry).unwrap());
            }
        }
    }
    let mut code = String::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join(".."), &mut code);
    for [page, words, held_by] in quotes(&read("../../docs/promises.md")) {
        let name = held_by.trim_matches('`');
        let exists = match name.split_once("::") {
            Some((service, checker)) => scenario(service).contains(&format!("for {checker} {{")),
            None => name.starts_with("no promise: ") || code.contains(&format!("fn {name}(")),
        };
        assert!(exists, "{page}: {words}: there is no {held_by}");
    }
}

#[test]
fn fa_24_strong_words_are_found_and_weak_ones_are_not() {
    let page =
        "It starts at once. It never ends.\n\n| a | at most 3 |\n| b | once more |\n\n```\nnever\n```\n";
    assert_eq!(strong_sentences(page), ["It never ends.", "at most 3 |"]);
}

#[test]
fn fa_26_every_bound_is_a_number_or_at_once() {
    let table = read("../../docs/promises.md");
    let first = table.split("\n## ").next().unwrap_or_default();
    for line in first.lines().filter(|line| line.starts_with('|')).skip(2) {
        let bound = line.trim_matches('|').split('|').next_back().unwrap_or_default();
        let is_stated = bound.contains("at once") || bound.contains(|c: char| c.is_ascii_digit());
        assert!(is_stated || bound.contains("third"), "no bound: {line}");
    }
}
