//! Bars as SVG: a row for each name, a panel for each figure.

use std::fmt::Write as _;

/// A plot.
pub(super) struct Bars {
    pub(super) title: String,
    pub(super) names: Vec<String>,
    pub(super) panels: Vec<Panel>,
}

/// One figure of every row, on a scale of its own.
pub(super) struct Panel {
    pub(super) title: String,
    pub(super) values: Vec<f64>,
}

const ROW: usize = 22;
const LEFT: usize = 220;
const WIDTH: usize = 150;
const TOP: usize = 56;

impl Bars {
    pub(super) fn svg(&self) -> String {
        let (width, height) = (LEFT + self.panels.len() * (WIDTH + 20), TOP + self.names.len() * ROW + 12);
        let mut text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
             <text x=\"8\" y=\"20\" font-size=\"14\" font-weight=\"bold\">{}</text>\n",
            self.title
        );
        for (row, name) in self.names.iter().enumerate() {
            let y = TOP + row * ROW + 14;
            let _ = writeln!(text, "<text x=\"8\" y=\"{y}\">{name}</text>");
        }
        for (number, panel) in self.panels.iter().enumerate() {
            let left = LEFT + number * (WIDTH + 20);
            let most = panel.values.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
            let _ =
                writeln!(text, "<text x=\"{left}\" y=\"{}\" fill=\"#555\">{}</text>", TOP - 12, panel.title);
            for (row, value) in panel.values.iter().enumerate() {
                let (y, long) = (TOP + row * ROW, (value / most * 100.0).max(0.5));
                let _ = writeln!(
                    text,
                    "<rect x=\"{left}\" y=\"{y}\" width=\"{long:.1}\" height=\"16\" fill=\"#4878a8\"/>\
                     <text x=\"{:.1}\" y=\"{}\">{value:.1}</text>",
                    left as f64 + long + 4.0,
                    y + 13
                );
            }
        }
        text + "</svg>\n"
    }
}
