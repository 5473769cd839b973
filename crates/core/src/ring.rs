//! Arithmetic on a circle: the only place that defines its directions.
//!
//! *Clockwise* is increasing, and the greatest number is next to 0 (P-2). The functions work on any unsigned width.
//! [`crate::Id`] uses them on 128 bits; the tests prove them on every triple of an 8-bit circle, with the same code.

/// A number on a circle of `2^bits` numbers.
pub trait Point: Copy + Ord {
    /// Zero, where the circle begins.
    const ZERO: Self;
    /// Half of the circle: the number opposite to zero.
    const HALF: Self;

    /// `self − other`, wrapping.
    #[must_use]
    fn minus(self, other: Self) -> Self;
}

impl Point for u128 {
    const ZERO: Self = 0;
    const HALF: Self = 1 << 127;

    fn minus(self, other: Self) -> Self {
        self.wrapping_sub(other)
    }
}

impl Point for u8 {
    const ZERO: Self = 0;
    const HALF: Self = 1 << 7;

    fn minus(self, other: Self) -> Self {
        self.wrapping_sub(other)
    }
}

/// The direction of the shorter arc.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// Towards greater numbers: a successor.
    Clockwise,
    /// Towards lesser numbers: a predecessor.
    CounterClockwise,
}

/// The clockwise distance from `from` to `to`.
#[must_use]
pub fn clockwise<P: Point>(from: P, to: P) -> P {
    to.minus(from)
}

/// The shorter distance between `a` and `b`.
#[must_use]
pub fn distance<P: Point>(a: P, b: P) -> P {
    clockwise(a, b).min(clockwise(b, a))
}

/// The side of `of` on which `point` lies. The opposite point counts as clockwise (PA-3); a point has no side of
/// itself.
#[must_use]
pub fn side<P: Point>(of: P, point: P) -> Option<Side> {
    let offset = clockwise(of, point);
    if offset == P::ZERO {
        None
    } else if offset <= P::HALF {
        Some(Side::Clockwise)
    } else {
        Some(Side::CounterClockwise)
    }
}

/// Whether `point` lies on the arc that leads clockwise from `from` to `to`, both ends included (PA-11). If the
/// ends are equal the arc is that one point.
#[must_use]
pub fn between<P: Point>(from: P, point: P, to: P) -> bool {
    clockwise(from, point) <= clockwise(from, to)
}

/// Whether `a` is closer to `key` than `b`. At equal distance the one that lies counter-clockwise of the key
/// wins (PA-2), so that every observer names the same one.
#[must_use]
pub fn closer<P: Point>(key: P, a: P, b: P) -> bool {
    rank(key, a) < rank(key, b)
}

/// The one of `points` that is closest to `key`, by the rule of [`closer`].
#[must_use]
pub fn closest<P: Point>(key: P, points: impl IntoIterator<Item = P>) -> Option<P> {
    points.into_iter().min_by_key(|&point| rank(key, point))
}

/// Orders points by closeness to `key`. Two points of equal rank are one point. At a distance below half there is one
/// point on each side, and the flag distinguishes them; at half there is only one.
fn rank<P: Point>(key: P, point: P) -> (P, bool) {
    (distance(key, point), side(key, point) == Some(Side::Clockwise))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> impl Iterator<Item = u8> + Clone {
        0..=u8::MAX
    }

    fn pairs() -> impl Iterator<Item = (u8, u8)> {
        all().flat_map(|a| all().map(move |b| (a, b)))
    }

    /// Walks step by step, so that nothing of the arithmetic under test is used.
    fn steps(from: u8, to: u8) -> u32 {
        let mut at = from;
        let mut steps = 0;
        while at != to {
            at = if at == u8::MAX { 0 } else { at + 1 };
            steps += 1;
        }
        steps
    }

    #[test]
    fn p_2_distances_agree_with_walking_step_by_step() {
        for (a, b) in pairs() {
            let (there, back) = (steps(a, b), steps(b, a));
            assert_eq!(u32::from(clockwise(a, b)), there);
            assert_eq!(u32::from(distance(a, b)), there.min(back));
            let expected = match (there, back) {
                (0, _) => None,
                (there, back) if there <= back => Some(Side::Clockwise),
                _ => Some(Side::CounterClockwise),
            };
            assert_eq!(side(a, b), expected, "{a} {b}");
        }
    }

    #[test]
    fn between_is_the_inclusive_arc() {
        for (from, to) in pairs() {
            let mut inside = [false; 256];
            let mut at = from;
            loop {
                inside[usize::from(at)] = true;
                if at == to {
                    break;
                }
                at = if at == u8::MAX { 0 } else { at + 1 };
            }
            for point in all() {
                assert_eq!(between(from, point, to), inside[usize::from(point)], "{from} {point} {to}");
            }
        }
    }

    #[test]
    fn closer_is_a_strict_total_order_with_the_tie_rule() {
        for key in all() {
            for (a, b) in pairs() {
                let (near, far) = (u32::from(distance(key, a)), u32::from(distance(key, b)));
                let expected = if near == far && a != b {
                    // PA-2: of two at equal distance, the one counter-clockwise of the key.
                    key.wrapping_sub(a) == distance(key, a)
                } else {
                    near < far
                };
                assert_eq!(closer(key, a, b), expected, "{key}: {a} {b}");
                assert_eq!(closer(key, a, b) || closer(key, b, a), a != b);
            }
        }
    }

    #[test]
    fn every_observer_names_the_same_closest() {
        // For any known subset of the ring, a step to the closest node never skips the true closest if that is known.
        // The order of listing does not matter.
        let nodes = [0u8, 1, 7, 64, 127, 128, 129, 200, 254];
        for key in all() {
            let root = closest(key, nodes);
            for skip in 0..nodes.len() {
                let mut seen: Vec<u8> = nodes.to_vec();
                seen.rotate_left(skip);
                assert_eq!(closest(key, seen.iter().copied()), root);
                seen.reverse();
                assert_eq!(closest(key, seen), root);
            }
            assert!(nodes.iter().all(|&n| Some(n) == root || closer(key, root.unwrap(), n)));
        }
        assert_eq!(closest(5u8, []), None);
    }
}
