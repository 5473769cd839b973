//! What can be done to the world, and when.

use core::time::Duration;

use annulus_core::{Machine, RequestId};

use crate::config::NetworkConfig;
use crate::disk::{DiskFate, DiskHealth};
use crate::host::HostId;
use crate::sim::Sim;

/// Something that goes wrong, or is mended.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// A process ends at once.
    Crash {
        /// Where.
        host: HostId,
        /// Whether the whole machine loses power. If not, its kernel lives on: it sends what it took and ends
        /// streams, or resets those with unread data. If so, nobody is told anything.
        power: bool,
        /// What becomes of the disk.
        disk: DiskFate,
    },
    /// A host that is off or down is started, with a new machine.
    Start(HostId),
    /// A process stands still; its kernel goes on and its clocks run.
    Suspend(HostId),
    /// A whole machine sleeps: what comes is lost and its monotonic clock stands still.
    Sleep(HostId),
    /// The end of either.
    Resume(HostId),
    /// A host's clocks run too fast by so many parts per million, too slow if negative.
    Drift {
        /// Whose.
        host: HostId,
        /// By how much.
        ppm: i32,
    },
    /// A host's wall clock is set ahead, back if negative.
    JumpWall {
        /// Whose.
        host: HostId,
        /// By how many microseconds.
        micros: i64,
    },
    /// A host takes this long for each input, and the next waits.
    Slow {
        /// Which.
        host: HostId,
        /// How long.
        delay: Duration,
    },
    /// A disk fails, or is good again.
    Disk {
        /// Whose.
        host: HostId,
        /// What ails it.
        health: DiskHealth,
    },
    /// Nothing gets from one host to another; the other direction stays as it is.
    Cut {
        /// From which.
        from: HostId,
        /// To which.
        to: HostId,
    },
    /// The end of a cut.
    Mend {
        /// From which.
        from: HostId,
        /// To which.
        to: HostId,
    },
    /// Each group can talk only among itself; all hosts not named are one more group. Replaces an earlier one.
    Partition(Vec<Vec<HostId>>),
    /// The end of all cuts and partitions.
    Heal,
    /// The network becomes another one.
    Network(Box<NetworkConfig>),
    /// Everything that can be mended is: links, clocks' rates, slow hosts, disks; what sleeps wakes and what is
    /// down starts. The network keeps its latency and loses its noise.
    Calm,
}

/// Something that a scenario does at a moment.
pub enum Step<M: Machine> {
    /// Does something to the world.
    Fault(Fault),
    /// Gives a command. [`Sim::command`] allots the number.
    Command(HostId, RequestId, M::Command),
    /// Asks a machine to stop in good order.
    Stop(HostId),
    /// Ends a process that was asked to stop and did not, if it still lives its `life`.
    #[doc(hidden)]
    Impatience(HostId, u32),
    /// Does anything at all.
    Call(Call<M>),
}

/// What a step does that does anything at all.
pub type Call<M> = Box<dyn FnOnce(&mut Sim<M>)>;

impl<M: Machine> From<Fault> for Step<M> {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}
