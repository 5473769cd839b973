//! The screen of the demo: a table that is drawn over itself on a terminal, and printed once elsewhere.

use std::io::IsTerminal as _;
use std::time::Duration;

use super::cluster::{Cluster, Row};
use crate::cli::output::{BAD, DIM, GOOD, Output, table};

const HEADINGS: [&str; 7] = ["NODE", "STATE", "SEES", "RTT", "ANSWERED", "MISSED", "COUNT"];

/// Where the table is drawn.
pub(super) struct Screen<'a> {
    output: &'a Output,
    is_terminal: bool,
    drawn: usize,
}

impl<'a> Screen<'a> {
    pub(super) fn new(output: &'a Output) -> Self {
        Self { output, is_terminal: std::io::stdout().is_terminal() && !output.json, drawn: 0 }
    }

    /// Draws the table over the last one.
    pub(super) fn draw(&mut self, cluster: &Cluster, elapsed: Duration) {
        if !self.is_terminal {
            return;
        }
        let mut lines = lines(cluster);
        lines.push(format!("{DIM}{} s; Ctrl-C ends it{DIM:#}", elapsed.as_secs()));
        let up = if self.drawn > 0 { format!("\x1b[{}A", self.drawn) } else { String::new() };
        let body: String = lines.iter().map(|line| format!("\x1b[2K{line}\n")).collect();
        // A shorter table leaves lines of the longer one below it.
        self.output.line(format!("{up}{body}\x1b[0J").trim_end_matches('\n'));
        self.drawn = lines.len() + 1;
    }

    /// The last word: where nothing was drawn, the table.
    pub(super) fn close(&mut self, cluster: &Cluster) {
        if !self.is_terminal && !self.output.json {
            lines(cluster).iter().for_each(|line| self.output.line(line));
        }
    }
}

fn lines(cluster: &Cluster) -> Vec<String> {
    let rows: Vec<Vec<String>> = cluster.rows().iter().map(cells).collect();
    let mut lines = table(&HEADINGS, &rows);
    lines.push(String::new());
    lines.extend(cluster.news().map(|line| format!("{DIM}{line}{DIM:#}")));
    lines
}

fn cells(row: &Row) -> Vec<String> {
    let (style, state) = if row.alive { (GOOD, "up") } else { (BAD, "down") };
    vec![
        row.addr.to_string(),
        format!("{style}{state}{style:#}"),
        format!("{}/{}", row.present, row.peers),
        row.rtt_ms.map_or_else(|| "-".into(), |rtt| format!("{rtt:.3} ms")),
        row.answered.to_string(),
        row.missed.to_string(),
        row.count.to_string(),
    ]
}
