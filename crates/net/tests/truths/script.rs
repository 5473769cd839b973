//! The steps of a truth and its measures.

use core::fmt;
use std::time::Duration;

use annulus_core::CloseReason;

/// One step of a script. The first puppet opens one stream to the second and writes; the second reads or does not.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Act {
    /// The first puppet opens the stream; the next step comes when it stands.
    Open,
    /// It opens another one, and does not wait.
    OpenAgain,
    /// It has the stream watched.
    Watch { confirm: bool, dead_after_ms: Option<u64> },
    /// It writes so many bytes.
    Write(usize),
    /// The path between the two is cut, both ways and silently.
    Cut,
    /// It is whole again.
    Heal,
    /// The process of the second puppet is stopped.
    Stop,
    /// It goes on.
    Continue,
    /// It is killed.
    Kill,
    /// The host of the second puppet loses power, and is back at once with a new puppet.
    PowerCycle,
    /// Time passes.
    Wait(u64),
    /// Times are measured from here, and bytes are counted from here.
    Mark,
}

/// The quantity that is measured behind the mark.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Measure {
    /// Bytes that the first kernel took.
    Taken,
    /// Bytes that the second kernel acknowledged.
    Confirmed,
    /// The time until the second puppet gets data.
    Arrival,
    /// The time until the second stream of the first puppet stands.
    Connected,
    /// The time until the kernel or the driver gives the stream of the first puppet up.
    GivenUp,
    /// Why it is closed, if it is.
    End,
    /// How the second stream ended.
    SecondEnd,
}

/// A measurement.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Outcome {
    Bytes(u64),
    Seconds(f64),
    Closed(CloseReason),
    Nothing,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(f, "{bytes} B"),
            Self::Seconds(seconds) => write!(f, "{seconds:.3} s"),
            Self::Closed(reason) => write!(f, "{reason:?}"),
            Self::Nothing => f.write_str("nothing"),
        }
    }
}

/// A script and how near its two outcomes must be.
pub(crate) struct Truth {
    pub(crate) name: &'static str,
    /// Whether the second puppet reads.
    pub(crate) reads: bool,
    pub(crate) acts: &'static [Act],
    pub(crate) measure: Measure,
    /// How long is waited for the outcome.
    pub(crate) within: Duration,
    /// Two times agree if they differ by no more than this, or by a third.
    pub(crate) tolerance_seconds: f64,
    pub(crate) is_quick: bool,
    /// How many connections the second kernel keeps for its process.
    pub(crate) backlog: Option<u32>,
    /// Whether the driver bounds the waits between retransmissions, if the kernel can (TCP_RTO_MAX_MS).
    pub(crate) has_rto_max: bool,
    /// The value of a kernel (Linux 6.18). Without root the simulator is compared with it.
    pub(crate) recorded: Outcome,
}

const DEAD_3_S: Act = Act::Watch { confirm: false, dead_after_ms: Some(3_000) };
const CONFIRM: Act = Act::Watch { confirm: true, dead_after_ms: None };
const SOON: Duration = Duration::from_secs(2);

pub(crate) const TRUTHS: [Truth; 18] = [
    Truth {
        name: "bytes taken for a peer behind a cut, fresh connection",
        reads: true,
        acts: &[Act::Open, Act::Cut, Act::Mark, Act::Write(900_000)],
        measure: Measure::Taken,
        within: SOON,
        tolerance_seconds: 0.0,
        is_quick: false,
        backlog: None,
        has_rto_max: true,
        recorded: Outcome::Bytes(78_192),
    },
    Truth {
        name: "bytes confirmed by the kernel of a stopped process",
        reads: true,
        acts: &[Act::Open, CONFIRM, Act::Stop, Act::Mark, Act::Write(20_000)],
        measure: Measure::Confirmed,
        within: SOON,
        tolerance_seconds: 0.0,
        is_quick: true,
        backlog: None,
        has_rto_max: true,
        recorded: Outcome::Bytes(20_000),
    },
    Truth {
        name: "new connection after 5 s of cut",
        reads: true,
        acts: &[Act::Open, Act::Cut, Act::Wait(5_000), Act::Heal, Act::Wait(200), Act::Mark, Act::OpenAgain],
        measure: Measure::Connected,
        within: SOON,
        tolerance_seconds: 0.2,
        is_quick: true,
        backlog: None,
        has_rto_max: true,
        recorded: Outcome::Seconds(0.021),
    },
    Truth {
        name: "old connection after 9 s of cut goes on",
        reads: true,
        acts: &[Act::Open, Act::Cut, Act::Write(100), Act::Wait(9_000), Act::Heal, Act::Mark],
        measure: Measure::Arrival,
        within: Duration::from_secs(30),
        tolerance_seconds: 1.1,
        is_quick: false,
        backlog: None,
        has_rto_max: true,
        recorded: Outcome::Seconds(0.788),
    },
    Truth {
        name: "old connection behind a cut is given up",
        reads: true,
        acts: &[Act::Open, Act::Cut, Act::Mark, Act::Write(100)],
        measure: Measure::GivenUp,
        within: Duration::from_secs(25),
        tolerance_seconds: 2.0,
        is_quick: false,
        backlog: None,
        has_rto_max: true,
        recorded: Outcome::Seconds(14.996),
    },
    Truth {
        name: "dead_after 3 s behind a cut",
        reads: true,
        acts: &[Act::Open, DEAD_3_S, Act::Cut, Act::Mark, Act::Write(100)],
        measure: Measure::GivenUp,
        within: Duration::from_secs(8),
        tolerance_seconds: 0.6,
        is_quick: true,
        backlog: None,
        has_rto_max: true,
        recorded: Outcome::Seconds(3.030),
    },
    Truth {
        name: "dead_after 3 s, idle behind a cut",
        reads: true,
        acts: &[Act::Open, DEAD_3_S, Act::Wait(500), Act::Cut, Act::Mark],
        measure: Measure::GivenUp,
        within: Duration::from_secs(10),
        tolerance_seconds: 1.5,
        is_quick: false,
        backlog: None,
        has_rto_max: true,
        recorded: Outcome::Seconds(2.483),
    },
    Truth {
        name: "dead_after 3 s, peer that does not read (zero window)",
        reads: false,
        acts: &[Act::Open, DEAD_3_S, Act::Write(900_000), Act::Write(900_000), Act::Mark],
        measure: Measure::End,
        within: Duration::from_secs(9),
        tolerance_seconds: 0.0,
        is_quick: false,
        backlog: None,
        has_rto_max: true,
        recorded: Outcome::Nothing,
    },
    Truth {
        name: "new connection to a stopped process",
        reads: true,
        acts: &[Act::Open, Act::Stop, Act::Mark, Act::OpenAgain],
        measure: Measure::Connected,
        within: SOON,
        tolerance_seconds: 0.2,
        is_quick: true,
        backlog: None,
        has_rto_max: true,
        recorded: Outcome::Seconds(0.020),
    },
    Truth {
        name: "new connection to a killed process",
        reads: true,
        acts: &[Act::Open, Act::Kill, Act::Wait(200), Act::Mark, Act::OpenAgain],
        measure: Measure::SecondEnd,
        within: SOON,
        tolerance_seconds: 0.0,
        is_quick: true,
        backlog: None,
        has_rto_max: true,
        recorded: Outcome::Closed(CloseReason::Refused),
    },
    Truth {
        name: "old connection after 12 s of cut goes on",
        reads: true,
        acts: &[Act::Open, Act::Cut, Act::Write(100), Act::Wait(12_000), Act::Heal, Act::Mark],
        measure: Measure::Arrival,
        within: Duration::from_secs(30),
        tolerance_seconds: 1.1,
        is_quick: false,
        backlog: None,
        has_rto_max: true,
        recorded: Outcome::Seconds(0.850),
    },
    Truth {
        name: "data to a killed process",
        reads: true,
        acts: &[
            Act::Open,
            Act::Kill,
            Act::Wait(200),
            Act::Mark,
            Act::Write(100),
            Act::Wait(200),
            Act::Write(100),
        ],
        measure: Measure::End,
        within: SOON,
        tolerance_seconds: 0.0,
        is_quick: true,
        backlog: None,
        has_rto_max: true,
        recorded: Outcome::Closed(CloseReason::Reset),
    },
    Truth {
        name: "dead_after 3 s, stopped process",
        reads: true,
        acts: &[Act::Open, DEAD_3_S, Act::Stop, Act::Write(100), Act::Mark],
        measure: Measure::End,
        within: Duration::from_secs(6),
        tolerance_seconds: 0.0,
        is_quick: false,
        backlog: None,
        has_rto_max: true,
        recorded: Outcome::Nothing,
    },
    Truth {
        name: "data to a host that lost power and is back",
        reads: true,
        acts: &[Act::Open, Act::PowerCycle, Act::Mark, Act::Write(100)],
        measure: Measure::End,
        within: SOON,
        tolerance_seconds: 0.0,
        is_quick: false,
        backlog: None,
        has_rto_max: true,
        recorded: Outcome::Closed(CloseReason::Reset),
    },
    Truth {
        name: "connect to a stopped process with a full accept queue",
        reads: true,
        acts: &[
            Act::Open,
            Act::Stop,
            Act::OpenAgain,
            Act::OpenAgain,
            Act::Wait(300),
            Act::Mark,
            Act::OpenAgain,
        ],
        measure: Measure::Connected,
        within: SOON,
        tolerance_seconds: 0.0,
        is_quick: false,
        backlog: Some(1),
        has_rto_max: true,
        recorded: Outcome::Nothing,
    },
    Truth {
        name: "old connection after 14 s of cut goes on, without TCP_RTO_MAX_MS",
        reads: true,
        acts: &[Act::Open, Act::Cut, Act::Write(100), Act::Wait(14_000), Act::Heal, Act::Mark],
        measure: Measure::Arrival,
        within: Duration::from_secs(30),
        tolerance_seconds: 2.0,
        is_quick: false,
        backlog: None,
        has_rto_max: false,
        recorded: Outcome::Seconds(12.266),
    },
    Truth {
        name: "old connection after 30 s of cut goes on, without TCP_RTO_MAX_MS",
        reads: true,
        acts: &[Act::Open, Act::Cut, Act::Write(100), Act::Wait(30_000), Act::Heal, Act::Mark],
        measure: Measure::Arrival,
        within: Duration::from_secs(40),
        tolerance_seconds: 2.0,
        is_quick: false,
        backlog: None,
        has_rto_max: false,
        recorded: Outcome::Seconds(23.552),
    },
    Truth {
        name: "data that waited 3 s for a stopped process, after it goes on",
        reads: true,
        acts: &[Act::Open, Act::Stop, Act::Write(50_000), Act::Wait(3_000), Act::Mark, Act::Continue],
        measure: Measure::Arrival,
        within: SOON,
        tolerance_seconds: 0.2,
        is_quick: true,
        backlog: None,
        has_rto_max: true,
        recorded: Outcome::Seconds(0.021),
    },
];
