//! The first message of a client to its guard: the deadline, and the variables of the command.

use std::io::{self, Read};
use std::time::Duration;

use annulus::core::turns::keeping::Keeping;
use annulus::core::{Instant, micros};

/// The most bytes of the variables: names, a fence, an id and an address.
const ENV_BYTES_MAX: usize = 64 << 10;
/// Four times and a length.
const HEAD_BYTES: usize = 40;

/// Start the command.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::cli) struct Start {
    /// The time of the request for the turn.
    asked: Instant,
    /// The time that was left then.
    left: Duration,
    /// The times of TERM and KILL at the limit of a weak turn.
    limit: Option<(Instant, Instant)>,
    /// `NAME=VALUE`, each with a zero byte behind it.
    env: String,
}

impl Start {
    pub(in crate::cli) fn new(
        asked: Instant,
        left: Duration,
        limit: Option<(Instant, Instant)>,
        env: &[(&str, String)],
    ) -> Self {
        let env = env.iter().map(|(name, value)| format!("{name}={value}\0")).collect();
        Self { asked, left, limit, env }
    }

    /// As it travels: big-endian, zeros without a limit.
    pub(in crate::cli) fn to_bytes(&self) -> Vec<u8> {
        let (term, kill) = self.limit.map_or((0, 0), |(term, kill)| (term.as_micros(), kill.as_micros()));
        let numbers = [self.asked.as_micros(), micros(self.left), term, kill, self.env.len() as u64];
        let head = numbers.into_iter().flat_map(u64::to_be_bytes);
        head.chain(self.env.bytes()).collect()
    }

    /// Waits for it.
    ///
    /// # Errors
    /// If the client ends before, or sends something else.
    pub(super) fn read(from: &mut impl Read) -> io::Result<Self> {
        let mut head = [0; HEAD_BYTES];
        from.read_exact(&mut head)?;
        let number = |index: usize| {
            let bytes = head[8 * index..][..8].try_into().expect("it has eight bytes");
            u64::from_be_bytes(bytes)
        };
        let length = usize::try_from(number(4)).unwrap_or(usize::MAX);
        if length > ENV_BYTES_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut env = vec![0; length];
        from.read_exact(&mut env)?;
        let limit =
            (number(2) != 0).then(|| (Instant::from_micros(number(2)), Instant::from_micros(number(3))));
        Ok(Self {
            asked: Instant::from_micros(number(0)),
            left: Duration::from_micros(number(1)),
            limit,
            env: String::from_utf8(env).map_err(|_| io::ErrorKind::InvalidData)?,
        })
    }

    pub(super) fn keeping(&self) -> Keeping {
        match self.limit {
            Some(limit) => Keeping::weak(self.asked, self.left, limit),
            None => Keeping::new(self.asked, self.left),
        }
    }

    pub(super) fn env(&self) -> impl Iterator<Item = (&str, &str)> {
        self.env.split_terminator('\0').filter_map(|variable| variable.split_once('='))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_arrives_as_it_was_sent_and_a_part_of_one_starts_nothing() {
        let at = Instant::from_micros;
        let env = [("ANNULUS_FENCE", "7".to_owned()), ("ANNULUS_TURN", "a=b".to_owned())];
        for limit in [None, Some((at(5), at(6)))] {
            let start = Start::new(at(3), Duration::from_micros(4), limit, &env);
            let bytes = start.to_bytes();
            let read = Start::read(&mut bytes.as_slice()).unwrap();
            assert_eq!(read, start);
            let env: Vec<_> = read.env().collect();
            assert_eq!(env, [("ANNULUS_FENCE", "7"), ("ANNULUS_TURN", "a=b")]);
            for length in 0..bytes.len() {
                assert!(Start::read(&mut &bytes[..length]).is_err(), "{length} bytes of it");
            }
        }
    }

    #[test]
    fn a_start_with_too_many_bytes_is_refused() {
        let mut bytes = Start::new(Instant::ZERO, Duration::ZERO, None, &[]).to_bytes();
        bytes[32..].copy_from_slice(&u64::MAX.to_be_bytes());
        assert!(Start::read(&mut bytes.as_slice()).is_err());
    }
}
