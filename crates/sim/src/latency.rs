//! How long a datagram is under way: six models of distance.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use annulus_core::{Rng, micros};

/// Where the latency between two hosts comes from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Latency {
    /// Always the same.
    Constant(Duration),
    /// Uniform between the two, drawn for each datagram.
    Uniform(Duration, Duration),
    /// Log-normal, drawn for each datagram: half of them take longer than `median`, a few take very long.
    LogNormal {
        /// The middle of the distribution.
        median: Duration,
        /// Standard deviation of the logarithm; 0.3 is mild, 1 is wild.
        sigma: f64,
    },
    /// Hosts are points in the square `[0, 1000]²`, as in the Pastry paper; the latency is the Euclidean distance
    /// times `per_unit`.
    Plane {
        /// Latency of one unit of distance.
        per_unit: Duration,
    },
    /// Hosts are in clusters: every pair within one is `near`, every pair of two clusters `far`.
    Clusters {
        /// The number of clusters.
        count: u8,
        /// Latency within a cluster.
        near: Duration,
        /// Latency between clusters.
        far: Duration,
    },
    /// Hosts are points on a sphere; the latency is the length of the shortest way over its surface, `antipode`
    /// for two opposite points.
    Sphere {
        /// Latency to the other side of the world.
        antipode: Duration,
    },
}

impl Latency {
    /// Whether hosts need a place in this model.
    pub(crate) const fn has_places(&self) -> bool {
        matches!(self, Self::Plane { .. } | Self::Clusters { .. } | Self::Sphere { .. })
    }

    /// A place for another host.
    pub(crate) fn place(&self, rng: &mut Rng) -> Place {
        match self {
            Self::Plane { .. } => [rng.unit() * 1000.0, rng.unit() * 1000.0, 0.0],
            Self::Clusters { count, .. } => [rng.below(u64::from(*count)) as f64, 0.0, 0.0],
            Self::Sphere { .. } => {
                // Uniform on a sphere: the height is uniform, and so is the angle around the axis.
                let height = rng.unit() * 2.0 - 1.0;
                let angle = rng.unit() * 2.0 * core::f64::consts::PI;
                let radius = libm::sqrt(1.0 - height * height);
                [radius * libm::cos(angle), radius * libm::sin(angle), height]
            }
            _ => [0.0; 3],
        }
    }

    /// Microseconds from one place to another, before jitter.
    pub(crate) fn micros(&self, from: Place, to: Place, rng: &mut Rng) -> u64 {
        match *self {
            Self::Constant(latency) => micros(latency),
            Self::Uniform(low, high) => rng.between(micros(low), micros(high)),
            Self::LogNormal { median, sigma } => {
                let drawn = libm::exp(sigma * normal(rng)) * micros(median) as f64;
                drawn as u64
            }
            Self::Plane { .. } | Self::Clusters { .. } | Self::Sphere { .. } => self.distance(from, to),
        }
    }

    /// Microseconds between two places, for the models that have places; the typical latency for the others.
    pub(crate) fn distance(&self, from: Place, to: Place) -> u64 {
        match *self {
            Self::Constant(latency) => micros(latency),
            Self::Uniform(low, high) => micros(low).midpoint(micros(high)),
            Self::LogNormal { median, .. } => micros(median),
            Self::Plane { per_unit } => {
                let (x, y) = (from[0] - to[0], from[1] - to[1]);
                (libm::sqrt(x * x + y * y) * nanos(per_unit) / 1000.0) as u64
            }
            Self::Clusters { near, far, .. } => micros(if from[0] == to[0] { near } else { far }),
            Self::Sphere { antipode } => {
                let dot = from[0] * to[0] + from[1] * to[1] + from[2] * to[2];
                let angle = libm::acos(dot.clamp(-1.0, 1.0));
                (angle / core::f64::consts::PI * nanos(antipode) / 1000.0) as u64
            }
        }
    }
}

/// Coordinates of a host, as the model of the latency reads them.
pub(crate) type Place = [f64; 3];

fn nanos(duration: Duration) -> f64 {
    duration.as_nanos() as f64
}

/// A draw from the standard normal distribution (Box–Muller, one of the two).
pub(crate) fn normal(rng: &mut Rng) -> f64 {
    let (radius, angle) = (1.0 - rng.unit(), rng.unit());
    libm::sqrt(-2.0 * libm::log(radius)) * libm::cos(2.0 * core::f64::consts::PI * angle)
}

impl fmt::Display for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Constant(latency) => write!(f, "constant:{}", micros(latency)),
            Self::Uniform(low, high) => write!(f, "uniform:{}:{}", micros(low), micros(high)),
            Self::LogNormal { median, sigma } => write!(f, "lognormal:{}:{sigma}", micros(median)),
            Self::Plane { per_unit } => write!(f, "plane:{}", micros(per_unit)),
            Self::Clusters { count, near, far } => {
                write!(f, "clusters:{count}:{}:{}", micros(near), micros(far))
            }
            Self::Sphere { antipode } => write!(f, "sphere:{}", micros(antipode)),
        }
    }
}

/// An hour. Sums of latencies stay far from what a number can hold.
const MICROS_MAX: u64 = 3_600_000_000;

impl FromStr for Latency {
    type Err = String;

    /// `constant:1000`, `uniform:500:2000`, `lognormal:1000:0.5`, `plane:50`, `clusters:4:500:40000`, `sphere:100000`:
    /// microseconds.
    fn from_str(text: &str) -> Result<Self, String> {
        let usage = || {
            format!(
                "no latency model `{text}`: write constant:MICROS, uniform:LOW:HIGH, lognormal:MEDIAN:SIGMA, \
                 plane:PER_UNIT, clusters:COUNT:NEAR:FAR or sphere:ANTIPODE"
            )
        };
        let parts: Vec<&str> = text.split(':').collect();
        let time = |part: &str| match part.parse().map_err(|_| usage())? {
            micros if micros <= MICROS_MAX => Ok(Duration::from_micros(micros)),
            _ => {
                Err(format!("no network takes longer than an hour: write at most {MICROS_MAX} microseconds"))
            }
        };
        Ok(match parts[..] {
            ["constant", latency] => Self::Constant(time(latency)?),
            ["uniform", low, high] => match (time(low)?, time(high)?) {
                (low, high) if low <= high => Self::Uniform(low, high),
                _ => return Err(String::from("write the lower bound first: uniform:LOW:HIGH")),
            },
            ["lognormal", median, sigma] => {
                let sigma: f64 = sigma.parse().map_err(|_| usage())?;
                if !(0.0..=5.0).contains(&sigma) {
                    return Err(format!("a sigma of {sigma} is no latency: write one from 0 to 5"));
                }
                Self::LogNormal { median: time(median)?, sigma }
            }
            ["plane", per_unit] => Self::Plane { per_unit: time(per_unit)? },
            ["clusters", count, near, far] => {
                let count: u8 = count.parse().map_err(|_| usage())?;
                let (near, far) = (time(near)?, time(far)?);
                if count < 2 || near >= far {
                    return Err(String::from("write at least 2 clusters, nearer within than between them"));
                }
                Self::Clusters { count, near, far }
            }
            ["sphere", antipode] => Self::Sphere { antipode: time(antipode)? },
            _ => return Err(usage()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draws(latency: Latency, count: usize) -> Vec<u64> {
        let mut rng = Rng::from_number(1, 0);
        let mut drawn: Vec<u64> = (0..count)
            .map(|_| {
                let (from, to) = (latency.place(&mut rng), latency.place(&mut rng));
                latency.micros(from, to, &mut rng)
            })
            .collect();
        drawn.sort_unstable();
        drawn
    }

    #[test]
    fn constant_is_constant() {
        assert_eq!(draws(Latency::Constant(Duration::from_millis(3)), 3), [3000, 3000, 3000]);
    }

    #[test]
    fn uniform_fills_its_range() {
        let drawn = draws(Latency::Uniform(Duration::from_micros(100), Duration::from_micros(200)), 10_000);
        assert_eq!((drawn[0], drawn[9_999]), (100, 200));
        assert!((145..=155).contains(&drawn[5_000]), "{}", drawn[5_000]);
    }

    #[test]
    fn log_normal_has_its_median_and_a_long_tail() {
        let drawn = draws(Latency::LogNormal { median: Duration::from_millis(10), sigma: 0.5 }, 10_000);
        assert!((9_700..10_300).contains(&drawn[5_000]), "{}", drawn[5_000]);
        // One standard deviation up is e^0.5 = 1.65 medians, and 84 % lie below.
        assert!((15_900..17_100).contains(&drawn[8_413]), "{}", drawn[8_413]);
    }

    #[test]
    fn the_plane_has_the_mean_distance_of_random_points() {
        // The mean distance of two points in a unit square is 0.5214.
        let drawn = draws(Latency::Plane { per_unit: Duration::from_micros(100) }, 20_000);
        let mean = drawn.iter().sum::<u64>() / 20_000;
        assert!((51_500..52_800).contains(&mean), "{mean}");
        assert!(drawn[19_999] <= 141_422);
    }

    #[test]
    fn the_sphere_is_symmetric_about_a_quarter_turn() {
        let drawn = draws(Latency::Sphere { antipode: Duration::from_millis(100) }, 20_000);
        assert!((49_000..51_000).contains(&drawn[10_000]), "{}", drawn[10_000]);
        assert!(drawn[19_999] <= 100_000 && drawn[19_999] > 98_000);
    }

    #[test]
    fn clusters_are_near_within_and_far_between() {
        let (near, far) = (Duration::from_micros(5), Duration::from_micros(900));
        let drawn = draws(Latency::Clusters { count: 4, near, far }, 10_000);
        let within = drawn.iter().filter(|micros| **micros == 5).count();
        assert!((2_300..2_700).contains(&within), "a quarter of all pairs: {within}");
        assert_eq!(drawn.iter().filter(|micros| **micros == 900).count(), 10_000 - within);
    }

    #[test]
    fn a_model_parses_its_own_output() {
        for text in [
            "constant:1000",
            "uniform:5:20",
            "lognormal:1000:0.5",
            "plane:50",
            "clusters:4:500:40000",
            "sphere:1",
        ] {
            assert_eq!(text.parse::<Latency>().unwrap().to_string(), text);
        }
        for bad in [
            "",
            "constant",
            "constant:x",
            "uniform:1",
            "lognormal:1:9",
            "clusters:1:5:9",
            "clusters:3:9:5",
            "moon:3",
        ] {
            assert!(bad.parse::<Latency>().is_err(), "{bad}");
        }
    }
}
