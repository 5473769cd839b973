//! The circle in characters: id 0 at the top, ids grow clockwise.

use annulus::core::Id;

/// A character is about twice as high as wide, so the circle is twice as wide as high.
const WIDTH: usize = 57;
const HEIGHT: usize = 27;

/// The mark at a place of the circle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dot {
    /// This node.
    Own,
    /// One of its leaves.
    Leaf,
    /// Another node it knows.
    Known,
}

impl Dot {
    const fn sign(self) -> char {
        match self {
            Self::Own => '@',
            Self::Leaf => 'o',
            Self::Known => '+',
        }
    }
}

/// The lines of the picture; later dots cover earlier ones.
pub(super) fn picture(dots: &[(Id, Dot)]) -> Vec<String> {
    let mut cells = vec![[' '; WIDTH]; HEIGHT];
    let steps = 4 * WIDTH;
    for step in 0..steps {
        let (column, row) = place(step as f64 / steps as f64);
        cells[row][column] = '·';
    }
    for (id, dot) in dots {
        let (column, row) = place(turn(*id));
        cells[row][column] = dot.sign();
    }
    for (label, row, column) in [
        ("0", 2, WIDTH / 2),
        ("4", HEIGHT / 2, WIDTH - 5),
        ("8", HEIGHT - 3, WIDTH / 2),
        ("c", HEIGHT / 2, 4),
    ] {
        cells[row][column] = label.chars().next().unwrap_or(' ');
    }
    cells.iter().map(|line| line.iter().collect::<String>().trim_end().to_owned()).collect()
}

/// How far around an id is, from 0 to 1.
fn turn(id: Id) -> f64 {
    (id.number() >> 64) as f64 / 2f64.powi(64)
}

/// The column and the row of a place on the circle.
fn place(turn: f64) -> (usize, usize) {
    let (sin, cos) = (turn * std::f64::consts::TAU).sin_cos();
    let scaled = |value: f64, size: usize| ((value + 1.0) / 2.0 * (size - 1) as f64).round() as usize;
    (scaled(sin, WIDTH), scaled(-cos, HEIGHT))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(quarter: u128) -> Id {
        Id::new(quarter << 126)
    }

    #[test]
    fn ids_grow_clockwise_from_the_top() {
        assert_eq!(place(turn(at(0))), (WIDTH / 2, 0));
        assert_eq!(place(turn(at(1))), (WIDTH - 1, HEIGHT / 2));
        assert_eq!(place(turn(at(2))), (WIDTH / 2, HEIGHT - 1));
        assert_eq!(place(turn(at(3))), (0, HEIGHT / 2));
        assert_eq!(place(turn(Id::MAX)), (WIDTH / 2, 0));
    }

    #[test]
    fn every_node_is_drawn_and_the_own_place_covers_others() {
        let text = picture(&[(at(1), Dot::Known), (at(2), Dot::Leaf), (at(3), Dot::Leaf), (at(3), Dot::Own)]);
        let count = |sign: char| text.iter().flat_map(|line| line.chars()).filter(|c| *c == sign).count();
        assert_eq!((count('@'), count('o'), count('+')), (1, 1, 1));
        assert_eq!(text.len(), HEIGHT);
    }
}
