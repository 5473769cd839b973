//! Faults and their schedule.

use core::time::Duration;
use std::net::IpAddr;

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
        /// Whether the whole machine loses power. If not, its kernel lives on: it sends the bytes that it took and
        /// ends streams, or resets those with unread data. If so, no peer gets a FIN or a reset.
        power: bool,
        /// The effect on the disk.
        disk: DiskFate,
    },
    /// A host that is off or down is started, with a new machine.
    Start(HostId),
    /// A process is paused; its kernel goes on and its clocks run.
    Suspend(HostId),
    /// A whole machine is suspended: packets to it are lost and its kernel sends nothing.
    Sleep {
        /// The host.
        host: HostId,
        /// Whether its clock counts the time. A machine that is suspended counts it (CLOCK_BOOTTIME); one that is paused
        /// from outside, as a hypervisor does, cannot.
        counts: bool,
    },
    /// The end of either.
    Resume(HostId),
    /// A host's clocks run too fast by so many parts per million, too slow if negative.
    Drift {
        /// The host.
        host: HostId,
        /// The amount.
        ppm: i32,
    },
    /// A host's wall clock is set ahead, back if negative.
    JumpWall {
        /// The host.
        host: HostId,
        /// By how many microseconds.
        micros: i64,
    },
    /// A host takes this long for each input, and the next waits.
    Slow {
        /// The host.
        host: HostId,
        /// How long.
        delay: Duration,
    },
    /// A host takes a drawn time for each input: this much in the middle, and above a second once in a thousand times.
    Stutter {
        /// The host.
        host: HostId,
        /// The median; zero ends it.
        median: Duration,
    },
    /// At its next start a host's wall clock is wrong by so many microseconds.
    WallAtStart {
        /// The host.
        host: HostId,
        /// The amount.
        micros: i64,
    },
    /// A host's system has no descriptors, no ports and no buffers, or has them again.
    Starved {
        /// The host.
        host: HostId,
        /// Whether it has none.
        is_starved: bool,
    },
    /// A host gets another address, as from DHCP, and loses its old one. Its old connections die silently, and a socket
    /// that is bound to the old address sends and gets nothing. A socket that is bound to all addresses goes on.
    Readdress {
        /// The host.
        host: HostId,
        /// The address.
        to: IpAddr,
    },
    /// A host goes for good: it loses power, and nothing starts it again.
    Die(HostId),
    /// A host that is down is started with a copy of another one's disk: two hosts then have one identity.
    Clone {
        /// The owner of the disk.
        from: HostId,
        /// The host that gets the copy.
        to: HostId,
    },
    /// A disk fails, or is good again.
    Disk {
        /// The host.
        host: HostId,
        /// The fault.
        health: DiskHealth,
    },
    /// Nothing gets from one host to another; the other direction stays as it is.
    Cut {
        /// The sending host.
        from: HostId,
        /// The receiving host.
        to: HostId,
    },
    /// A firewall between two hosts, in one direction.
    Filter {
        /// The sending host.
        from: HostId,
        /// The receiving host.
        to: HostId,
        /// The traffic that it stops.
        what: Traffic,
        /// How.
        how: Block,
    },
    /// Packets from one host to another take so much longer; nothing is lost.
    Delay {
        /// The sending host.
        from: HostId,
        /// The receiving host.
        to: HostId,
        /// The extra delay.
        by: Duration,
    },
    /// Packets above this size vanish between two hosts, without an ICMP message.
    PathMtu {
        /// The sending host.
        from: HostId,
        /// The receiving host.
        to: HostId,
        /// The largest that passes.
        bytes: usize,
    },
    /// The end of a cut, a filter, a delay and a small path MTU.
    Mend {
        /// The sending host.
        from: HostId,
        /// The receiving host.
        to: HostId,
    },
    /// Packets pass only within a group; all hosts not named are one more group. Replaces an earlier one.
    Partition(Vec<Vec<HostId>>),
    /// The end of all cuts and partitions.
    Heal,
    /// The network becomes another one.
    Network(Box<NetworkConfig>),
    /// All faults of links, clock rates, slow hosts and disks end. Suspended hosts wake and stopped hosts start,
    /// except dead ones. The network keeps its latency and loses its noise.
    Calm,
}

/// The traffic that a filter stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// Everything.
    All,
    /// UDP.
    Datagrams,
    /// TCP.
    Streams,
}

/// How a filter stops it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Block {
    /// Silently.
    Drop,
    /// With an answer: a connection is refused, a stream is reset.
    Reject,
}

/// Something that a scenario does at a moment.
pub enum Step<M: Machine> {
    /// Does something to the world.
    Fault(Fault),
    /// Gives a command. [`Sim::command`] allots the number.
    Command(HostId, RequestId, M::Command),
    /// Requests a stop of a machine.
    Stop(HostId),
    /// Kills a process that did not stop in time, if it is still in its `life`.
    #[doc(hidden)]
    StopTimeout(HostId, u32),
    /// Does anything at all.
    Call(Call<M>),
}

/// The code of a step that does anything at all.
pub type Call<M> = Box<dyn FnOnce(&mut Sim<M>)>;

impl<M: Machine> From<Fault> for Step<M> {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}
