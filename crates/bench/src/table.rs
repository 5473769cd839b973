//! Results, for people and for programs.

use serde::Serialize;

/// The result of a bench.
#[derive(Debug, Serialize)]
pub(crate) struct Table {
    /// The bench.
    pub(crate) bench: &'static str,
    /// The setup, in one line.
    pub(crate) setup: String,
    /// Names of the columns.
    pub(crate) columns: Vec<&'static str>,
    /// One value for each column.
    pub(crate) rows: Vec<Vec<String>>,
}

impl Table {
    /// Writes it to the standard output: Markdown, or one JSON object.
    #[expect(clippy::print_stdout, reason = "this is what the program is for")]
    pub(crate) fn print(&self, json: bool) -> anyhow::Result<()> {
        if json {
            println!("{}", serde_json::to_string(self)?);
            return Ok(());
        }
        println!("{}: {}\n", self.bench, self.setup);
        let width = |at: usize| {
            let cells = self.rows.iter().map(|row| row[at].len());
            cells.chain([self.columns[at].len()]).max().unwrap_or(0)
        };
        let line = |cells: &mut dyn Iterator<Item = &str>| {
            let cells = cells.enumerate().map(|(at, cell)| format!(" {cell:>width$} |", width = width(at)));
            println!("|{}", cells.collect::<String>());
        };
        line(&mut self.columns.iter().copied());
        println!(
            "|{}",
            (0..self.columns.len()).map(|at| format!("{}:|", "-".repeat(width(at) + 1))).collect::<String>()
        );
        for row in &self.rows {
            line(&mut row.iter().map(String::as_str));
        }
        Ok(())
    }
}
