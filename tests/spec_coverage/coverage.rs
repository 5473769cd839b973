//! Compares the clauses of the documents with the names of the tests.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use crate::document::{Document, Kind, Number};

pub(crate) struct Coverage<'a> {
    documents: &'a [Document],
    tested: BTreeMap<Number, &'a str>,
}

impl<'a> Coverage<'a> {
    pub(crate) fn new(documents: &'a [Document], tests: &'a [String]) -> Self {
        let tested = tests.iter().filter_map(|name| Some((Number::of_test(name)?, name.as_str()))).collect();
        Self { documents, tested }
    }

    /// A line per document.
    pub(crate) fn table(&self) -> String {
        let mut table =
            String::from("document                 behaviour  tested  excused  open  shape  statement\n");
        for document in self.documents {
            let of = |kind| document.clauses.iter().filter(move |clause| clause.kind == kind);
            let tested =
                of(Kind::Behaviour).filter(|clause| self.tested.contains_key(&clause.number)).count();
            let (all, excused) = (of(Kind::Behaviour).count(), document.untested.len());
            let open = self.uncovered(document).len();
            let (shape, statement) = (of(Kind::Shape).count(), of(Kind::Statement).count());
            let path = &document.path;
            writeln!(
                table,
                "{path:<24} {all:>9} {tested:>7} {excused:>8} {open:>5} {shape:>6} {statement:>10}"
            )
            .expect("a string takes everything");
        }
        table
    }

    /// Everything that is wrong, one line each.
    pub(crate) fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut seen: BTreeMap<&Number, &str> = BTreeMap::new();
        for document in self.documents {
            problems.extend(document.errors.iter().cloned());
            for clause in &document.clauses {
                if let Some(before) = seen.insert(&clause.number, &document.path) {
                    problems.push(format!("{}: {} stands in {before} already", document.path, clause.number));
                }
            }
            for number in self.uncovered(document) {
                let name = number.test_prefix();
                problems
                    .push(format!("{}: {number} has no test: write `{name}…`, or a reason", document.path));
            }
            problems.extend(self.exceptions(document));
            problems.extend(gaps(document));
        }
        let series: BTreeSet<&str> = seen.keys().map(|number| number.series.as_str()).collect();
        for (number, test) in &self.tested {
            if series.contains(number.series.as_str()) && !seen.contains_key(number) {
                problems.push(format!("the test `{test}` names {number}, which no document has"));
            }
        }
        problems
    }

    /// Behaviours with neither a test nor an excuse.
    fn uncovered<'d>(&self, document: &'d Document) -> Vec<&'d Number> {
        let behaviours = document.clauses.iter().filter(|clause| clause.kind == Kind::Behaviour);
        behaviours
            .map(|clause| &clause.number)
            .filter(|number| !self.tested.contains_key(number) && !document.untested.contains(number))
            .collect()
    }

    /// Excuses that excuse nothing.
    fn exceptions(&self, document: &Document) -> Vec<String> {
        let path = &document.path;
        let mut problems = Vec::new();
        for number in &document.untested {
            match document.clauses.iter().find(|clause| clause.number == *number) {
                None => problems.push(format!("{path}: not tested is {number}, which it does not have")),
                Some(clause) if clause.kind != Kind::Behaviour => {
                    problems.push(format!("{path}: not tested is {number}, which is no behaviour"));
                }
                Some(_) => {}
            }
            if let Some(test) = self.tested.get(number) {
                problems.push(format!("{path}: {number} is listed as not tested, but there is `{test}`"));
            }
        }
        problems
    }
}

/// Numbers that are missing between others, and used numbers that are listed as unused.
fn gaps(document: &Document) -> Vec<String> {
    let path = &document.path;
    let mut problems = Vec::new();
    let mut series: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
    for clause in &document.clauses {
        series.entry(&clause.number.series).or_default().insert(clause.number.digits);
        if document.unused.contains(&clause.number) {
            problems.push(format!("{path}: {} is listed as not used, but it is", clause.number));
        }
    }
    for (series, numbers) in series {
        let last = numbers.last().copied().unwrap_or(0);
        for digits in (1..last).filter(|digits| !numbers.contains(digits)) {
            let missing = Number { series: series.to_owned(), digits, suffix: String::new() };
            if !document.unused.contains(&missing) {
                problems.push(format!("{path}: {missing} is missing: restate it, or list it as not used"));
            }
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    const THREE: &str = "- **J-1** behaviour. One.\n- **J-2** shape. Two.\n- **J-3** behaviour. Three.\n";

    fn problems(documents: &[&str], tests: &[&str]) -> Vec<String> {
        let documents: Vec<Document> = documents.iter().map(|text| Document::parse("d.md", text)).collect();
        let tests: Vec<String> = tests.iter().map(|&name| name.to_owned()).collect();
        Coverage::new(&documents, &tests).problems()
    }

    #[track_caller]
    fn assert_one(documents: &[&str], tests: &[&str], expected: &str) {
        let found = problems(documents, tests);
        assert!(found.len() == 1 && found[0].contains(expected), "{found:#?}");
    }

    #[test]
    fn a_behaviour_needs_a_test_of_its_name() {
        assert_eq!(problems(&[THREE], &["j_1_a", "j_3_b", "other"]), [""; 0]);
        assert_one(&[THREE], &["j_1_a"], "J-3 has no test: write `j_3_…`");
        assert_one(&[THREE], &["j_1_a", "j_3"], "J-3 has no test");
    }

    #[test]
    fn a_reason_excuses_until_there_is_a_test() {
        let excused = format!("{THREE}## Not tested, with reason\n- **J-3** it takes a decade\n");
        assert_eq!(problems(&[&excused], &["j_1_a"]), [""; 0]);
        assert_one(&[&excused], &["j_1_a", "j_3_b"], "listed as not tested, but there is `j_3_b`");
    }

    #[test]
    fn an_excuse_names_a_behaviour_of_its_document() {
        let tests = ["j_1_a", "j_3_b"];
        let unknown = format!("{THREE}## Not tested, with reason\n- **J-9** whatever\n");
        assert_one(&[&unknown], &tests, "J-9, which it does not have");
        let shape = format!("{THREE}## Not tested, with reason\n- **J-2** whatever\n");
        assert_one(&[&shape], &tests, "J-2, which is no behaviour");
    }

    #[test]
    fn a_number_stands_once() {
        assert_one(&[THREE, "- **J-1** shape. Again.\n"], &["j_1_a", "j_3_b"], "J-1 stands in d.md already");
    }

    #[test]
    fn a_test_names_a_clause_that_exists() {
        assert_one(&[THREE], &["j_1_a", "j_3_b", "j_4_c"], "`j_4_c` names J-4");
        assert_eq!(
            problems(&[THREE], &["j_1_a", "j_3_b", "p_9_digits"]),
            [""; 0],
            "no document has the series P"
        );
    }

    #[test]
    fn a_gap_is_noted_or_closed() {
        let gap = "- **J-1** shape. One.\n- **J-3** shape. Three.\n- **J-3a** shape. Between.\n";
        assert_one(&[gap], &[], "J-2 is missing");
        let noted = format!("{gap}## Numbers not used\n- **J-2** withdrawn\n");
        assert_eq!(problems(&[&noted], &[]), [""; 0]);
        let wrong = format!("{THREE}## Numbers not used\n- **J-2** withdrawn\n");
        assert_one(&[&wrong], &["j_1_a", "j_3_b"], "J-2 is listed as not used, but it is");
    }

    #[test]
    fn the_table_counts_by_kind() {
        let documents = [Document::parse("docs/spec/j.md", THREE)];
        let tests = ["j_1_a".to_owned()];
        let table = Coverage::new(&documents, &tests).table();
        let line: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(line, ["docs/spec/j.md", "2", "1", "0", "1", "1", "0"]);
    }
}
