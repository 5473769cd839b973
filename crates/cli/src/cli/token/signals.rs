//! The signals that end a command and this program.

use anyhow::Context as _;
use tokio::signal::unix::{Signal as Caught, SignalKind, signal};

/// The signals that mean: come to an end. Those of the terminal that would stop this program are caught and ignored (TU-36).
pub(super) struct Signals {
    interrupt: Caught,
    terminate: Caught,
    hang_up: Caught,
    _ignored: Vec<Caught>,
}

impl Signals {
    pub(super) fn catch() -> anyhow::Result<Self> {
        let catch = |kind| signal(kind).context("cannot catch signals");
        let ignored =
            [rustix::process::Signal::TSTP, rustix::process::Signal::TTIN, rustix::process::Signal::TTOU];
        let ignored = ignored.map(|signal| catch(SignalKind::from_raw(signal.as_raw())));
        Ok(Self {
            interrupt: catch(SignalKind::interrupt())?,
            terminate: catch(SignalKind::terminate())?,
            hang_up: catch(SignalKind::hangup())?,
            _ignored: ignored.into_iter().collect::<anyhow::Result<_>>()?,
        })
    }

    /// The next signal, and its exit code.
    pub(super) async fn next(&mut self) -> (i32, u8) {
        let kind = tokio::select! {
            _ = self.interrupt.recv() => SignalKind::interrupt(),
            _ = self.terminate.recv() => SignalKind::terminate(),
            _ = self.hang_up.recv() => SignalKind::hangup(),
        };
        let raw = kind.as_raw_value();
        (raw, u8::try_from(128 + raw).unwrap_or(u8::MAX))
    }
}
