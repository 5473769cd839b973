//! The ring as a picture for documents: an SVG file without any dependency.

use std::fmt::Write as _;

use annulus::core::Id;

use crate::cli::output::plain;

/// A node of the picture.
pub(super) struct Place {
    pub(super) id: Id,
    pub(super) name: String,
    /// Whether it is the own node, or one of its leaves.
    pub(super) is_own: bool,
    pub(super) is_leaf: bool,
    /// Whether it is known to be dead.
    pub(super) is_dead: bool,
}

const RADIUS: f64 = 200.0;

/// The colours of nodes.
const LEGEND: [(&str, &str); 3] =
    [(OWN, "the node that was asked"), (LEAF, "its leaf set"), (OTHER, "other members")];
const OWN: &str = "#a85d00";
const LEAF: &str = "#1f6f55";
const OTHER: &str = "#7d8a84";

/// The picture: id 0 at the top, ids grow clockwise.
pub(super) fn svg(places: &[Place]) -> String {
    let mut text = String::from(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"-320 -260 640 520\" font-family=\"system-ui, sans-serif\" \
         font-size=\"15\">\n<rect x=\"-320\" y=\"-260\" width=\"640\" height=\"520\" fill=\"#fffefb\"/>\n",
    );
    let _ = writeln!(text, "<circle r=\"{RADIUS}\" fill=\"none\" stroke=\"#b9b6ab\" stroke-width=\"1.5\"/>");
    for digit in 0..16u32 {
        let (x, y) = spot(f64::from(digit) / 16.0, RADIUS - 16.0);
        let _ = writeln!(
            text,
            "<text x=\"{x:.1}\" y=\"{:.1}\" font-size=\"10\" fill=\"#56606a\" text-anchor=\"middle\">{digit:x}</text>",
            y + 3.5
        );
    }
    for place in places {
        let turn = (place.id.number() >> 64) as f64 / 2f64.powi(64);
        let ((x, y), (label_x, label_y)) = (spot(turn, RADIUS), spot(turn, RADIUS + 20.0));
        let (fill, stroke) = match (place.is_dead, place.is_own, place.is_leaf) {
            (true, ..) => ("#fffefb", "#a8322d"),
            (_, true, _) => (OWN, "#fffefb"),
            (_, _, true) => (LEAF, "#fffefb"),
            _ => (OTHER, "#fffefb"),
        };
        let anchor = if label_x.abs() < 30.0 {
            "middle"
        } else if label_x > 0.0 {
            "start"
        } else {
            "end"
        };
        let _ = writeln!(
            text,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"9\" fill=\"{fill}\" stroke=\"{stroke}\" stroke-width=\"3\"/>\n\
             <text x=\"{label_x:.1}\" y=\"{:.1}\" fill=\"#1d2329\" text-anchor=\"{anchor}\">{}</text>",
            label_y + 5.0,
            escaped(&place.name)
        );
    }
    for (at, (fill, word)) in LEGEND.iter().enumerate() {
        let y = 24 * at as i32 - 20;
        let _ = writeln!(
            text,
            "<circle cx=\"-62\" cy=\"{y}\" r=\"7\" fill=\"{fill}\"/>\n<text x=\"-46\" y=\"{}\" font-size=\"13\" fill=\"#56606a\">{word}</text>",
            y + 4
        );
    }
    text.push_str("</svg>\n");
    text
}

fn spot(turn: f64, radius: f64) -> (f64, f64) {
    let (sin, cos) = (turn * std::f64::consts::TAU).sin_cos();
    (radius * sin, -radius * cos)
}

/// A name as the text of an element.
fn escaped(name: &str) -> String {
    plain(name).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_text_and_ids_grow_clockwise_from_the_top() {
        let place = |quarter: u128, name: &str| Place {
            id: Id::new(quarter << 126),
            name: name.into(),
            is_own: false,
            is_leaf: false,
            is_dead: false,
        };
        let text = svg(&[place(0, "<script>"), place(1, "b&c")]);
        assert!(text.contains("&lt;script&gt;") && !text.contains("<script>") && text.contains("b&amp;c"));
        assert!(
            text.contains("cx=\"0.0\" cy=\"-200.0\"") && text.contains("cx=\"200.0\" cy=\"-0.0\""),
            "{text}"
        );
    }
}
