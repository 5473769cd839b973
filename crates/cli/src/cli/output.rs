//! Output for people and programs: tables, JSON, one-line errors, colours on terminals only.

use std::borrow::Cow;

use anstyle::{AnsiColor, Style};
use serde_json::Value;

/// How the output of this run looks.
pub(crate) struct Output {
    /// Whether programs read it.
    pub(crate) json: bool,
}

/// Something went well.
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
/// Something went wrong.
pub(crate) const BAD: Style = AnsiColor::Red.on_default();
/// Something less important.
pub(crate) const DIM: Style = Style::new().dimmed();
/// A heading.
pub(crate) const BOLD: Style = Style::new().bold();

impl Output {
    pub(crate) fn new(json: bool) -> Self {
        Self { json }
    }

    /// Prints a line. Without a terminal, or with `NO_COLOR`, it prints no colours. A closed pipe ends the program,
    /// as it would end `cat`.
    pub(crate) fn line(&self, text: impl AsRef<str>) {
        use std::io::Write as _;
        if writeln!(anstream::stdout(), "{}", text.as_ref()).is_err() {
            std::process::exit(0);
        }
    }

    /// Prints a JSON value on one line.
    pub(crate) fn json(&self, value: &Value) {
        self.json_text(&value.to_string());
    }

    /// Prints JSON that another program wrote.
    pub(crate) fn json_text(&self, text: &str) {
        self.line(plain_json(text));
    }

    /// Prints the result: the agent's answer with `--json`, else a sentence.
    pub(crate) fn done(&self, answer: &Value, sentence: &str) {
        if self.json {
            self.json(answer);
        } else {
            self.line(sentence);
        }
    }

    /// One line, the chain of causes behind colons, never a backtrace.
    pub(crate) fn error(&self, error: &anyhow::Error) {
        use std::io::Write as _;
        // A closed standard error is ignored.
        let _ = writeln!(anstream::stderr(), "{BAD}annulus:{BAD:#} {}", plain(&format!("{error:#}")));
    }

    /// One line for people beside the output proper.
    pub(crate) fn note(&self, text: &str) {
        use std::io::Write as _;
        // A closed standard error is ignored.
        let _ = writeln!(anstream::stderr(), "{DIM}annulus: {}{DIM:#}", plain(text));
    }

    /// Prints a table: headings, then rows, columns as wide as they need to be.
    pub(crate) fn table(&self, headings: &[&str], rows: &[Vec<String>]) {
        for line in table(headings, rows) {
            self.line(line);
        }
    }
}

/// A foreign text that is safe on a terminal: control characters, escape sequences and characters that turn the direction
/// of writing are escaped.
pub(crate) fn plain(text: &str) -> Cow<'_, str> {
    if !text.contains(harms) {
        return Cow::Borrowed(text);
    }
    let shown = |c: char| if harms(c) { c.escape_default().to_string() } else { c.to_string() };
    Cow::Owned(text.chars().map(shown).collect())
}

/// JSON that is safe on a terminal: such characters stand only in strings, and are written as escapes of JSON. A line feed
/// stands only between the lines of an indented value.
fn plain_json(text: &str) -> Cow<'_, str> {
    let harms = |c: char| c != '\n' && harms(c);
    if !text.contains(harms) {
        return Cow::Borrowed(text);
    }
    let shown = |c: char| if harms(c) { format!("\\u{:04x}", u32::from(c)) } else { c.to_string() };
    Cow::Owned(text.chars().map(shown).collect())
}

/// Whether a character can change other output of a terminal.
fn harms(c: char) -> bool {
    let turns =
        matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || turns || matches!(c, '\u{2028}' | '\u{2029}')
}

/// The lines of a table.
pub(crate) fn table(headings: &[&str], rows: &[Vec<String>]) -> Vec<String> {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| visible(&row[column]));
        cells.chain([headings[column].len()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..headings.len()).map(width).collect();
    let line = |cells: &[String]| {
        let padded = cells.iter().zip(&widths).map(|(cell, width)| {
            let missing = width.saturating_sub(visible(cell));
            format!("{cell}{}", " ".repeat(missing))
        });
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let headings: Vec<String> = headings.iter().map(|heading| format!("{BOLD}{heading}{BOLD:#}")).collect();
    std::iter::once(line(&headings)).chain(rows.iter().map(|row| line(row))).collect()
}

/// How many characters of a cell one sees: escape sequences take no room.
fn visible(cell: &str) -> usize {
    anstream::adapter::strip_str(cell).to_string().chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_text_cannot_control_the_terminal() {
        assert_eq!(plain("grün db-1"), "grün db-1");
        assert_eq!(plain("\u{1b}[2Jroot\r\n"), "\\u{1b}[2Jroot\\r\\n");
        assert_eq!(plain("\u{9b}31m\u{202e}"), "\\u{9b}31m\\u{202e}");
        let value = serde_json::json!({ "name": "\u{202e}a\u{9b}\u{1b}" });
        let shown = plain_json(&value.to_string()).into_owned();
        assert_eq!(shown, r#"{"name":"\u202ea\u009b\u001b"}"#);
        assert_eq!(serde_json::from_str::<Value>(&shown).ok(), Some(value.clone()), "programs read the same");
        let indented = plain_json(&format!("{value:#}")).into_owned();
        assert_eq!(indented, "{\n  \"name\": \"\\u202ea\\u009b\\u001b\"\n}");
    }

    #[test]
    fn columns_line_up_whatever_colours_they_have() {
        let rows = vec![vec![format!("{GOOD}up{GOOD:#}"), "1".into()], vec!["vanished".into(), "22".into()]];
        let lines = table(&["STATE", "N"], &rows);
        let plain: Vec<String> =
            lines.iter().map(|line| anstream::adapter::strip_str(line).to_string()).collect();
        assert_eq!(plain, ["STATE     N", "up        1", "vanished  22"]);
    }
}
