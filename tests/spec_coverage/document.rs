//! Reads one document of `docs/spec`.

use std::fmt;

/// The number of a clause: `J-67`, `S-R10`, `J-9a`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Number {
    /// The text before the digits: `J-`, `S-R`.
    pub(crate) series: String,
    pub(crate) digits: u32,
    /// A letter behind them, for a clause that was put between two others.
    pub(crate) suffix: String,
}

impl Number {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (prefix, rest) = text.split_once('-')?;
        let digits_at = rest.find(|c: char| c.is_ascii_digit())?;
        let (letters, rest) = rest.split_at(digits_at);
        let digits_end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (digits, suffix) = rest.split_at(digits_end);
        let is_upper = |text: &str| text.chars().all(|c| c.is_ascii_uppercase());
        let is_suffix = suffix.len() <= 1 && suffix.chars().all(|c| c.is_ascii_lowercase());
        let valid = !prefix.is_empty() && is_upper(prefix) && is_upper(letters) && is_suffix;
        valid.then_some(())?;
        Some(Self {
            series: format!("{prefix}-{letters}"),
            digits: digits.parse().ok()?,
            suffix: suffix.to_owned(),
        })
    }

    /// The number that a test's name begins with: `s_r10_…` is S-R10.
    pub(crate) fn of_test(name: &str) -> Option<Self> {
        let (prefix, rest) = name.split_once('_')?;
        let (number, _) = rest.split_once('_')?;
        let digits_at = number.find(|c: char| c.is_ascii_digit())?;
        let (letters, rest) = number.split_at(digits_at);
        Self::parse(&format!("{}-{}{rest}", prefix.to_uppercase(), letters.to_uppercase()))
    }

    /// The prefix of the name of its test.
    pub(crate) fn test_prefix(&self) -> String {
        format!("{}_", self.to_string().to_lowercase().replace('-', "_"))
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}{}", self.series, self.digits, self.suffix)
    }
}

/// The kind of a clause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Something a node does: a test shows it.
    Behaviour,
    /// An API or a layout: vectors and the compiler hold it.
    Shape,
    /// Nothing to test.
    Statement,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Clause {
    pub(crate) number: Number,
    pub(crate) kind: Kind,
}

/// One document: its clauses, and its lists of untested and unused numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Document {
    pub(crate) path: String,
    pub(crate) clauses: Vec<Clause>,
    /// Behaviours that it lists as untested.
    pub(crate) untested: Vec<Number>,
    /// Numbers that it lists as not used.
    pub(crate) unused: Vec<Number>,
    /// Lines that look like clauses and are not.
    pub(crate) errors: Vec<String>,
}

/// The headings of the two lists that are not clauses.
const UNTESTED: &str = "## Not tested, with reason";
const UNUSED: &str = "## Numbers not used";

impl Document {
    pub(crate) fn parse(path: &str, text: &str) -> Self {
        let mut document = Self { path: path.to_owned(), ..Self::default() };
        let mut section = "";
        for (line, text) in (1..).zip(text.lines()) {
            if text.starts_with("## ") {
                section = text.trim_end();
            } else if let Some(item) = text.strip_prefix("- **")
                && let Err(what) = document.item(section, item)
            {
                document.errors.push(format!("{path}:{line}: {what}"));
            }
        }
        document
    }

    fn item(&mut self, section: &str, item: &str) -> Result<(), String> {
        let (number, rest) = item.split_once("**").ok_or("a number in bold does not end")?;
        let number =
            Number::parse(number).ok_or_else(|| format!("{number:?} is not a clause number such as J-67"))?;
        let rest = rest.trim();
        match section {
            UNTESTED | UNUSED if rest.is_empty() => {
                return Err(format!("{number} is listed without a reason"));
            }
            UNTESTED => self.untested.push(number),
            UNUSED => self.unused.push(number),
            _ => {
                let (kind, words) = rest.split_once('.').unwrap_or((rest, ""));
                let kind = match kind {
                    "behaviour" => Kind::Behaviour,
                    "shape" => Kind::Shape,
                    "statement" => Kind::Statement,
                    _ => {
                        return Err(format!(
                            "{number} is neither `behaviour.` nor `shape.` nor `statement.`"
                        ));
                    }
                };
                if words.trim().is_empty() {
                    return Err(format!("{number} says nothing"));
                }
                self.clauses.push(Clause { number, kind });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_of_tests_belong_together() {
        for (number, prefix) in [("J-67", "j_67_"), ("S-R10", "s_r10_"), ("PI-1", "pi_1_"), ("J-9a", "j_9a_")]
        {
            let parsed = Number::parse(number).unwrap();
            assert_eq!(parsed.to_string(), number);
            assert_eq!(parsed.test_prefix(), prefix);
            assert_eq!(Number::of_test(&format!("{prefix}equal_ids")), Some(parsed));
        }
        for text in ["J67", "J-", "j-6", "J-6ab", "-6", "J-6.1"] {
            assert_eq!(Number::parse(text), None, "{text}");
        }
        for name in ["a_reader_stops", "text_round_trips", "j_67", "_1_a", "two_2x2_grids"] {
            assert_eq!(Number::of_test(name), None, "{name}");
        }
    }

    #[test]
    fn a_document_is_clauses_and_two_lists() {
        let text = "# J\n## One\n- **J-1** behaviour. It does.\n- **J-2** shape. It is.\n- **J-3** statement. So.\n\
                    ## Not tested, with reason\n- **J-1** needs a decade\n## Numbers not used\n- **J-4** withdrawn\n";
        let document = Document::parse("docs/spec/j.md", text);
        assert_eq!(document.errors, [""; 0]);
        let kinds: Vec<Kind> = document.clauses.iter().map(|clause| clause.kind).collect();
        assert_eq!(kinds, [Kind::Behaviour, Kind::Shape, Kind::Statement]);
        assert_eq!(document.untested, [Number::parse("J-1").unwrap()]);
        assert_eq!(document.unused, [Number::parse("J-4").unwrap()]);
    }

    #[test]
    fn a_line_that_is_no_clause_is_an_error_with_its_number() {
        for bad in ["- **J-1** behavior. It", "- **J-1** shape.", "- **J1** shape. It", "- **J-1 shape. It"] {
            let document = Document::parse("d.md", &format!("\n{bad}\n"));
            assert_eq!(document.errors.len(), 1, "{bad}");
            assert!(document.errors[0].starts_with("d.md:2: "), "{:?}", document.errors);
        }
        let silent = Document::parse("d.md", "## Not tested, with reason\n- **J-1**\n");
        assert_eq!(silent.errors, ["d.md:2: J-1 is listed without a reason"]);
    }
}
