//! The contrast of the page's colours, measured as WCAG 2.1 defines it, in both colour schemes.

use std::collections::BTreeMap;

const CSS: &str = include_str!("assets/page.css");

/// Pairs of text and background; text needs 4.5 to 1 (AA).
const TEXTS: &[(&str, &str)] = &[
    ("ink", "paper"),
    ("ink", "panel"),
    ("ink", "soft"),
    ("muted", "paper"),
    ("muted", "panel"),
    ("muted", "soft"),
    ("on-accent", "accent"),
    ("alive", "panel"),
    ("suspect", "panel"),
    ("dead", "panel"),
    ("dead", "paper"),
    ("left", "panel"),
    ("still", "panel"),
    ("alive", "soft"),
    ("suspect", "soft"),
    ("dead", "soft"),
    ("route", "panel"),
    ("mesh", "panel"),
    ("token-ink", "panel"),
    ("panel", "route"),
];

/// Pairs of a shape that means something and its background; it needs 3 to 1.
const SHAPES: &[(&str, &str)] =
    &[("token", "panel"), ("accent", "panel"), ("focus", "panel"), ("focus", "paper"), ("mesh", "panel")];

/// The colours of a block of the style sheet.
fn colours(block: &str) -> BTreeMap<&str, [f64; 3]> {
    let lines =
        block.lines().filter_map(|line| line.trim().strip_prefix("--")?.strip_suffix(';')?.split_once(": #"));
    let channel = |hex: &str, at: usize| f64::from(u8::from_str_radix(&hex[at..at + 2], 16).unwrap()) / 255.0;
    lines.map(|(name, hex)| (name, [channel(hex, 0), channel(hex, 2), channel(hex, 4)])).collect()
}

fn luminance(colour: [f64; 3]) -> f64 {
    let linear = colour.map(|c| if c <= 0.040_45 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) });
    0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
}

fn contrast(one: [f64; 3], other: [f64; 3]) -> f64 {
    let (a, b) = (luminance(one), luminance(other));
    (a.max(b) + 0.05) / (a.min(b) + 0.05)
}

#[test]
fn text_and_shapes_pass_wcag_aa_in_both_schemes() {
    let block = |start: &str| {
        let from = CSS.find(start).unwrap_or_else(|| panic!("there is no {start}"));
        let length = CSS[from..].find('}').expect("a block ends");
        colours(&CSS[from..from + length])
    };
    let (light, dark) = (block(":root {"), block(":root[data-theme=\"dark\"] {"));
    let system = block(":root:not([data-theme=\"light\"]) {");
    assert_eq!(dark, system, "dark is the same by choice and by the system");
    assert_eq!(light.keys().collect::<Vec<_>>(), dark.keys().collect::<Vec<_>>());
    assert!(contrast([0.0; 3], [1.0; 3]) > 20.9, "black on white is 21 to 1");
    for (scheme, colours) in [("light", light), ("dark", dark)] {
        let texts = TEXTS.iter().map(|pair| (pair, 4.5));
        for ((front, back), least) in texts.chain(SHAPES.iter().map(|pair| (pair, 3.0))) {
            let ratio = contrast(colours[front], colours[back]);
            assert!(ratio >= least, "{scheme}: {front} on {back} is {ratio:.2} to 1");
        }
    }
}
