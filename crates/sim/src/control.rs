//! Interference: faults, commands and stops, as the schedule or an observer asks for them.

use std::net::IpAddr;

use annulus_core::{Machine, RequestId, micros};

use crate::disk::{DiskFate, DiskHealth};
use crate::fault::{Fault, Step, Traffic};
use crate::host::{HostId, HostState, Waiting};
use crate::observer::{Observer, Verdict};
use crate::queue::What;
use crate::sim::Sim;
use crate::trace::{Kind, Record};

impl<M: Machine> Sim<M> {
    /// Performs a scheduled step.
    pub(crate) fn take_step(&mut self, step: Step<M>, observer: &mut dyn Observer<M>) -> Verdict {
        match step {
            Step::Fault(fault) => self.happens(fault, observer)?,
            Step::Command(id, request, command) => {
                if self.hosts[id.index()].is_ready(self.now) {
                    self.give(id, request, command, observer)?;
                } else if self.hosts[id.index()].machine.is_some() {
                    self.wait(id, Waiting::Command(request, command));
                }
            }
            Step::Stop(id) => {
                let host = &self.hosts[id.index()];
                self.after(self.config.host.stop_timeout, Step::StopTimeout(id, host.life));
                if self.hosts[id.index()].is_ready(self.now) {
                    self.stop_machine(id, observer)?;
                } else if self.hosts[id.index()].machine.is_some() {
                    self.wait(id, Waiting::Stop);
                }
            }
            Step::StopTimeout(id, life) => {
                if !self.is_over(id, life) {
                    self.crash(id, false, DiskFate::Kept, observer);
                }
            }
            Step::Call(call) => call(self),
        }
        Ok(())
    }

    /// Gives a machine a command.
    pub(crate) fn give(
        &mut self,
        id: HostId,
        request: RequestId,
        command: M::Command,
        observer: &mut dyn Observer<M>,
    ) -> Verdict {
        let host = &mut self.hosts[id.index()];
        let Some(machine) = &mut host.machine else { return Ok(()) };
        self.stats.commands += 1;
        self.trace.note(self.now, Some(id), Kind::Command, || Record::Command {
            request: request.0,
            command: format!("{command:?}"),
        });
        self.trace.printed(&command);
        let now = host.clock.now(self.now);
        machine.handle_command(now, request, command, &mut self.actions.outbox());
        self.settle(id, observer)
    }

    /// A machine has stopped: its process ends.
    pub(crate) fn stopped(&mut self, id: HostId, observer: &mut dyn Observer<M>) -> Verdict {
        self.trace.note(self.now, Some(id), Kind::Stopped, || Record::Stopped);
        observer.on_stopped(self, id);
        self.end_process(id, false, DiskFate::Kept);
        Ok(())
    }

    /// A process ends, or its whole machine does.
    pub(crate) fn crash(&mut self, id: HostId, power: bool, disk: DiskFate, observer: &mut dyn Observer<M>) {
        self.note_fault(&Fault::Crash { host: id, power, disk });
        if self.hosts[id.index()].machine.is_some() {
            self.stats.crashes += 1;
        }
        // Also of a host that is down already: its disk may be lost with this one.
        observer.on_crash(self, id, disk);
        self.end_process(id, power, disk);
    }

    fn end_process(&mut self, id: HostId, power: bool, fate: DiskFate) {
        self.end_streams(id, power);
        let host = &mut self.hosts[id.index()];
        host.clock.thaw(self.now);
        if power {
            let boots = &mut host.extra().boots;
            *boots += 1;
            // Somewhere in the first minutes after a boot, and nothing is drawn for it.
            let local = (u64::from(*boots) * 7_919 + id.index() as u64 * 104_729) % 100 + 1;
            host.clock.reboot(self.now, local * 1_000_000);
        }
        host.machine = None;
        host.state = if power { HostState::Off } else { HostState::Down };
        host.wake_at = u64::MAX;
        host.sockets = Box::default();
        host.listeners = Box::default();
        if let Some(disk) = &mut host.disk {
            self.stats.writes_forgotten += disk.crash(fate, &mut self.disk_rng);
        }
        let Some(extra) = &mut host.extra else { return };
        for slot in extra.stored.drain(..) {
            self.answers.release(slot);
        }
        for what in extra.waiting.drain(..) {
            if let Waiting::Datagram(slot) = what {
                self.packets.release(slot);
            }
        }
        extra.datagrams_waiting = 0;
        extra.busy_until = 0;
        self.restart_timers(id);
    }

    /// Requests a stop of a machine.
    pub(crate) fn stop_machine(&mut self, id: HostId, observer: &mut dyn Observer<M>) -> Verdict {
        let host = &mut self.hosts[id.index()];
        let Some(machine) = &mut host.machine else { return Ok(()) };
        host.stopping = true;
        let now = host.clock.now(self.now);
        machine.handle_stop(now, &mut self.actions.outbox());
        self.settle(id, observer)
    }

    fn happens(&mut self, fault: Fault, observer: &mut dyn Observer<M>) -> Verdict {
        if let Fault::Crash { host, power, disk } = fault {
            self.crash(host, power, disk, observer);
            return Ok(());
        }
        self.note_fault(&fault);
        match fault {
            Fault::Crash { .. } => {}
            Fault::Start(host) => self.start(host, observer)?,
            Fault::Suspend(host) => self.suspend(host, HostState::Suspended),
            Fault::Sleep { host, counts } => self.sleep(host, counts),
            Fault::Resume(host) => self.resume(host),
            Fault::Drift { host, ppm } => self.drift(host, ppm),
            Fault::JumpWall { host, micros } => self.hosts[host.index()].clock.jump(micros),
            Fault::Slow { host, delay } => self.hosts[host.index()].extra().slow_micros = micros(delay),
            Fault::Stutter { host, median } => {
                self.hosts[host.index()].extra().stutter_micros = micros(median);
            }
            Fault::WallAtStart { host, micros } => self.hosts[host.index()].extra().wall_at_start = micros,
            Fault::Starved { host, is_starved } => self.hosts[host.index()].extra().is_starved = is_starved,
            Fault::Readdress { host, to } => self.readdress(host, to),
            Fault::Die(host) => {
                self.crash(host, true, DiskFate::UnsyncedLost, observer);
                self.hosts[host.index()].extra().is_dead = true;
            }
            Fault::Clone { from, to } => self.clone_disk(from, to, observer)?,
            Fault::Disk { host, health } => self.hosts[host.index()].disk().health = health,
            Fault::Cut { from, to } => {
                self.stats.cuts += 1;
                self.links.cut(from, to);
            }
            Fault::Filter { from, to, what, how } => {
                self.stats.cuts += 1;
                let path = self.links.path_mut(from, to);
                if what != Traffic::Streams {
                    path.datagrams = Some(how);
                }
                if what != Traffic::Datagrams {
                    path.streams = Some(how);
                }
            }
            Fault::Delay { from, to, by } => self.links.path_mut(from, to).delay_micros = micros(by),
            Fault::PathMtu { from, to, bytes } => self.links.path_mut(from, to).mtu_bytes = Some(bytes),
            Fault::Mend { from, to } => self.links.mend(from, to),
            Fault::Partition(groups) => {
                self.stats.cuts += 1;
                self.links.join();
                for (side, group) in (1..=u8::MAX).zip(&groups) {
                    self.links.divide(side, group);
                }
            }
            Fault::Heal => self.links.heal(),
            Fault::Network(network) => self.config.network = *network,
            Fault::Calm => self.calm(),
        }
        Ok(())
    }

    fn note_fault(&mut self, fault: &Fault) {
        self.note_causes(fault);
        self.trace.note(self.now, None, Kind::Fault, || Record::Fault { fault: format!("{fault:?}") });
        self.trace.printed(fault);
    }

    fn suspend(&mut self, id: HostId, state: HostState) {
        let host = &mut self.hosts[id.index()];
        if matches!(host.state, HostState::Up | HostState::Loading) {
            self.stats.suspensions += 1;
            host.state = state;
        }
    }

    fn sleep(&mut self, id: HostId, counts: bool) {
        self.suspend(id, HostState::Asleep);
        let host = &mut self.hosts[id.index()];
        if host.state == HostState::Asleep {
            host.extra().asleep_since = self.now;
            if !counts {
                host.clock.freeze(self.now);
            }
        }
    }

    fn clone_disk(&mut self, from: HostId, to: HostId, observer: &mut dyn Observer<M>) -> Verdict {
        if self.hosts[to.index()].machine.is_some() {
            return Ok(());
        }
        self.hosts[to.index()].disk = self.hosts[from.index()].disk.clone();
        self.start(to, observer)
    }

    fn resume(&mut self, id: HostId) {
        let host = &mut self.hosts[id.index()];
        if matches!(host.state, HostState::Suspended | HostState::Asleep) {
            if host.state == HostState::Asleep {
                self.shift_streams(id);
            }
            let host = &mut self.hosts[id.index()];
            host.clock.thaw(self.now);
            host.state = if host.loading { HostState::Loading } else { HostState::Up };
            self.restart_timers(id);
            // After a stop either timers or inputs come first. Nothing is drawn for it.
            if (self.now >> 4 ^ id.index() as u64) & 1 == 0 {
                self.arm(id);
                self.queue_drain(id, self.now);
            } else {
                self.queue_drain(id, self.now);
                self.arm(id);
            }
        }
    }

    fn readdress(&mut self, id: HostId, to: IpAddr) {
        let old = self.address(id);
        if let Some(sharing) = self.other_addresses.get_mut(&old) {
            sharing.retain(|host| *host != id);
        }
        self.other_addresses.entry(to).or_default().push(id);
        self.hosts[id.index()].extra().address = Some(to);
        self.has_moved = true;
    }

    fn drift(&mut self, id: HostId, ppm: i32) {
        let host = &mut self.hosts[id.index()];
        host.clock.drift(self.now, ppm);
        // The wake-up in the queue was computed with the old rate: too late is mended here, too early by itself.
        self.arm(id);
    }

    fn calm(&mut self) {
        self.links.heal();
        let network = &mut self.config.network;
        (network.loss, network.duplicate, network.reorder, network.stray) = (0.0, 0.0, 0.0, 0.0);
        (self.config.disk.failure, self.config.disk.sync_tail) = (0.0, 0.0);
        self.config.disk.bytes_max = None;
        for id in self.hosts() {
            let host = &mut self.hosts[id.index()];
            if let Some(extra) = &mut host.extra {
                (extra.slow_micros, extra.stutter_micros, extra.is_starved) = (0, 0, false);
            }
            if let Some(disk) = &mut host.disk {
                disk.health = DiskHealth::Good;
            }
            if host.clock.drifts() {
                self.drift(id, 0);
            }
            match self.state(id) {
                HostState::Suspended | HostState::Asleep => self.resume(id),
                HostState::Off | HostState::Down if self.is_dead(id) => {}
                HostState::Off | HostState::Down => self.queue.push(self.now, What::Start(id)),
                HostState::Up | HostState::Loading => {}
            }
        }
    }
}
