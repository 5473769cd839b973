//! A truth in the simulator.

use std::net::SocketAddr;
use std::time::Duration;

use annulus_core::contract::puppet::{Do, Puppet, Saw};
use annulus_core::{CloseReason, StreamId, Watch};
use annulus_sim::{Config, DiskFate, Fault, HostId, Observer, Sim, StreamConfig, Verdict};

use crate::script::{Act, Measure, Outcome, Truth};

const PORT: u16 = 4000;

#[derive(Default)]
struct Log(Vec<(Duration, HostId, Saw)>);

impl Observer<Puppet> for Log {
    fn on_event(&mut self, sim: &Sim<Puppet>, host: HostId, event: &Saw) -> Verdict {
        self.0.push((sim.elapsed(), host, event.clone()));
        Ok(())
    }
}

/// Runs the script on the kernels of the simulator, with TCP_RTO_MAX_MS if they can and the truth wants it.
pub(crate) fn run(truth: &Truth, can_rto_max: bool) -> Outcome {
    let stream =
        if can_rto_max && truth.has_rto_max { StreamConfig::linux_rto_max() } else { StreamConfig::linux() };
    let credit = if truth.reads { 1 << 30 } else { 0 };
    let mut config = Config { stream, ..Config::default() };
    // Linux queues one more than the backlog.
    config.host.backlog = truth.backlog.map_or(config.host.backlog, |backlog| backlog as usize + 1);
    let mut sim = Sim::new(1, config, move |birth| Puppet {
        bind: SocketAddr::new(birth.address, PORT),
        credit,
        ..Puppet::default()
    });
    let (here, there) = (sim.add_host(), sim.add_host());
    let to = SocketAddr::new(sim.address(there), PORT);
    let (mut log, mut mark, first) = (Log::default(), Duration::ZERO, StreamId::opened(0));
    sim.run_for(Duration::from_millis(10), &mut log).unwrap();
    for act in truth.acts {
        match *act {
            Act::Open | Act::OpenAgain => drop(sim.command(here, vec![Do::Open(to, None)])),
            Act::Watch { confirm, dead_after_ms } => {
                let dead_after = dead_after_ms.map(Duration::from_millis);
                sim.command(here, vec![Do::Watch(first, Watch { confirm, dead_after })]);
            }
            Act::Write(bytes) => drop(sim.command(here, vec![Do::Write(first, vec![7; bytes])])),
            Act::Cut => {
                sim.fault(Fault::Cut { from: here, to: there });
                sim.fault(Fault::Cut { from: there, to: here });
            }
            Act::Heal => sim.fault(Fault::Heal),
            Act::Stop => sim.fault(Fault::Suspend(there)),
            Act::Continue => sim.fault(Fault::Resume(there)),
            Act::Kill => sim.fault(Fault::Crash { host: there, power: false, disk: DiskFate::Kept }),
            Act::PowerCycle => {
                sim.fault(Fault::Crash { host: there, power: true, disk: DiskFate::Kept });
                sim.fault(Fault::Start(there));
            }
            Act::Wait(millis) => sim.run_for(Duration::from_millis(millis), &mut log).unwrap(),
            Act::Mark => {
                mark = sim.elapsed();
                log.0.clear();
            }
        }
        if !matches!(act, Act::OpenAgain) {
            sim.run_for(Duration::from_millis(5), &mut log).unwrap();
        }
    }
    sim.run_for(truth.within, &mut log).unwrap();
    let lines = log.0.iter().map(|(at, host, saw)| (at.saturating_sub(mark), *host == here, saw));
    measure(truth.measure, lines)
}

/// Measures the events behind the mark: when, whether of the first puppet, what.
pub(crate) fn measure<'a>(
    measure: Measure,
    lines: impl Iterator<Item = (Duration, bool, &'a Saw)>,
) -> Outcome {
    let (mut bytes, first) = (0, StreamId::opened(0));
    for (at, is_first, saw) in lines {
        let seconds = Outcome::Seconds(at.as_secs_f64());
        match (measure, saw) {
            (Measure::Taken, Saw::Sent(_, more, _)) if is_first => bytes += *more as u64,
            (Measure::Confirmed, Saw::Confirmed(_, more)) if is_first => bytes += *more as u64,
            (Measure::Arrival, Saw::Data(..)) if !is_first => return seconds,
            (Measure::Connected, Saw::Connected(..)) if is_first => return seconds,
            (Measure::GivenUp, Saw::Closed(id, CloseReason::TimedOut)) if is_first && *id == first => {
                return seconds;
            }
            (Measure::End, Saw::Closed(id, reason)) if is_first && *id == first => {
                return Outcome::Closed(*reason);
            }
            (Measure::SecondEnd, Saw::Closed(id, reason)) if is_first && *id != first => {
                return Outcome::Closed(*reason);
            }
            _ => {}
        }
    }
    match measure {
        Measure::Taken | Measure::Confirmed => Outcome::Bytes(bytes),
        _ => Outcome::Nothing,
    }
}
