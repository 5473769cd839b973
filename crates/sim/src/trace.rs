//! The trace: a hash of everything that happens, and on request a line for each.

use core::fmt::{self, Write as _};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::SocketAddr;

use annulus_core::{CloseReason, EventLine, Hex, Watch};
use serde::{Serialize, Serializer};

use crate::hash::TraceHash;
use crate::host::HostId;

/// One thing that happened, for people and for programs.
#[derive(Debug, Serialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub(crate) enum Record<'a> {
    Send { from: SocketAddr, to: SocketAddr, bytes: Bytes<'a> },
    Lost { to: SocketAddr, why: &'static str },
    Receive { from: SocketAddr, to: SocketAddr, bytes: Bytes<'a> },
    Refused { why: String },
    Open { stream: String, to: SocketAddr },
    Accepted { stream: String, from: SocketAddr },
    Connected { stream: String, local: SocketAddr },
    Write { stream: String, bytes: Bytes<'a> },
    Sent { stream: String, bytes: usize, fin: bool },
    Watch { stream: String, watch: Watch },
    Confirmed { stream: String, bytes: usize },
    Data { stream: String, bytes: Bytes<'a> },
    Finish { stream: String },
    Finished { stream: String },
    Abort { stream: String },
    Closed { stream: String, reason: CloseReason },
    Store { op: String, request: String },
    Stored { op: String, result: String },
    Wake { timer: &'static str },
    Event { event: serde_json::Value },
    Command { request: u64, command: String },
    Reply { request: u64, reply: String },
    Start { life: u32 },
    Stopped,
    Fault { fault: String },
    Violation { text: &'a str },
}

/// Bytes that print as hexadecimal digits.
#[derive(Debug)]
pub(crate) struct Bytes<'a>(pub(crate) &'a [u8]);

impl Serialize for Bytes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&Hex(self.0))
    }
}

impl fmt::Display for Bytes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} B {}", self.0.len(), Hex(self.0))
    }
}

impl fmt::Display for Record<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Send { from, to, bytes } => write!(f, "send {from} -> {to} {bytes}"),
            Self::Lost { to, why } => write!(f, "lost {to}: {why}"),
            Self::Receive { from, to, bytes } => write!(f, "receive {from} -> {to} {bytes}"),
            Self::Refused { why } => write!(f, "refused: {why}"),
            Self::Open { stream, to } => write!(f, "open {stream} -> {to}"),
            Self::Accepted { stream, from } => write!(f, "accepted {stream} <- {from}"),
            Self::Connected { stream, local } => write!(f, "connected {stream} at {local}"),
            Self::Write { stream, bytes } => write!(f, "write {stream} {bytes}"),
            Self::Sent { stream, bytes, fin } => {
                write!(f, "sent {stream} {bytes} B{}", if *fin { " fin" } else { "" })
            }
            Self::Watch { stream, watch } => write!(f, "watch {stream} {watch:?}"),
            Self::Confirmed { stream, bytes } => write!(f, "confirmed {stream} {bytes} B"),
            Self::Data { stream, bytes } => write!(f, "data {stream} {bytes}"),
            Self::Finish { stream } => write!(f, "finish {stream}"),
            Self::Finished { stream } => write!(f, "finished {stream}"),
            Self::Abort { stream } => write!(f, "abort {stream}"),
            Self::Closed { stream, reason } => write!(f, "closed {stream} {reason:?}"),
            Self::Store { op, request } => write!(f, "store {op} {request}"),
            Self::Stored { op, result } => write!(f, "stored {op} {result}"),
            Self::Wake { timer } => write!(f, "wake {timer}"),
            Self::Event { event } => write!(f, "event {event}"),
            Self::Command { request, command } => write!(f, "command {request} {command}"),
            Self::Reply { request, reply } => write!(f, "reply {request} {reply}"),
            Self::Start { life } => write!(f, "start {life}"),
            Self::Stopped => f.write_str("stopped"),
            Self::Fault { fault } => write!(f, "fault {fault}"),
            Self::Violation { text } => write!(f, "violation {text}"),
        }
    }
}

/// A line of the JSON form.
#[derive(Serialize)]
struct JsonLine<'a> {
    at_micros: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<HostId>,
    #[serde(flatten)]
    record: &'a Record<'a>,
}

/// Where lines go. A writer that fails gets no more of them; its error is reported at the end.
struct Sink {
    writer: Box<dyn Write>,
    json: bool,
    failed: io::Result<()>,
    /// The number of events of each host, for their sequence numbers.
    events: BTreeMap<HostId, u64>,
}

impl Sink {
    fn line(&mut self, at: u64, host: Option<HostId>, record: &Record<'_>) {
        if self.failed.is_ok() {
            self.failed = self.try_line(at, host, record);
        }
    }

    fn try_line(&mut self, at: u64, host: Option<HostId>, record: &Record<'_>) -> io::Result<()> {
        if self.json {
            match (record, host) {
                // An event has the same form here as in the API of an agent.
                (Record::Event { event }, Some(host)) => {
                    let seq = self.events.entry(host).or_insert(0);
                    *seq += 1;
                    let node = host.to_string();
                    // Events of our protocols are objects; another machine may emit a bare value.
                    let bare = (!event.is_object()).then(|| serde_json::json!({ "event": event }));
                    let event = bare.as_ref().unwrap_or(event);
                    serde_json::to_writer(&mut self.writer, &EventLine::new(*seq, at, &node, event))?;
                }
                _ => serde_json::to_writer(&mut self.writer, &JsonLine { at_micros: at, host, record })?,
            }
            return self.writer.write_all(b"\n");
        }
        write!(self.writer, "{}.{:06} ", at / 1_000_000, at % 1_000_000)?;
        match host {
            Some(host) => writeln!(self.writer, "{host} {record}"),
            None => writeln!(self.writer, "- {record}"),
        }
    }
}

/// The parts of a trace that are kept.
#[derive(Default)]
pub(crate) struct Trace {
    hash: TraceHash,
    sinks: Vec<Sink>,
}

impl Trace {
    /// Sends a line for everything from now on, JSON or readable.
    pub(crate) fn add_writer(&mut self, writer: Box<dyn Write>, json: bool) {
        self.sinks.push(Sink { writer, json, failed: Ok(()), events: BTreeMap::new() });
    }

    /// Notes that something happened: it goes into the hash, and if lines are wanted, `record` makes one.
    #[inline]
    pub(crate) fn note<'a>(
        &mut self,
        at: u64,
        host: Option<HostId>,
        kind: Kind,
        record: impl FnOnce() -> Record<'a>,
    ) {
        let host_number = host.map_or(u64::from(u32::MAX), |host| host.index() as u64);
        self.hash.number(at);
        self.hash.number(host_number << 8 | kind as u64);
        if !self.sinks.is_empty() {
            self.lines(at, host, &record());
        }
    }

    /// Writes a line that the hash need not cover, because it follows from hashed events.
    #[inline]
    pub(crate) fn remark<'a>(&mut self, at: u64, host: Option<HostId>, record: impl FnOnce() -> Record<'a>) {
        if !self.sinks.is_empty() {
            self.lines(at, host, &record());
        }
    }

    /// The hash, for the details of a noted event.
    #[inline]
    pub(crate) fn hash(&mut self) -> &mut TraceHash {
        &mut self.hash
    }

    /// Takes in an address.
    #[inline]
    pub(crate) fn address(&mut self, addr: SocketAddr) {
        match addr {
            SocketAddr::V4(addr) => {
                self.hash.number(u64::from(u32::from(*addr.ip())) << 16 | u64::from(addr.port()));
            }
            SocketAddr::V6(addr) => {
                self.hash.bytes(&addr.ip().octets());
                self.hash.number(u64::from(addr.port()));
            }
        }
    }

    /// Takes in the printed form of something that has no other.
    pub(crate) fn printed(&mut self, value: &dyn fmt::Debug) {
        // Writing into a hash cannot fail.
        let _ = write!(self.hash, "{value:?}");
    }

    /// The hash of everything so far.
    pub(crate) fn value(&self) -> TraceHash {
        self.hash
    }

    /// Flushes the writers.
    ///
    /// # Errors
    /// The first thing that went wrong with one of them.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        for sink in &mut self.sinks {
            std::mem::replace(&mut sink.failed, Ok(()))?;
            sink.writer.flush()?;
        }
        Ok(())
    }

    #[cold]
    fn lines(&mut self, at: u64, host: Option<HostId>, record: &Record<'_>) {
        for sink in &mut self.sinks {
            sink.line(at, host, record);
        }
    }
}

/// The kinds of things in the hash. The numbers are part of it: add, never change.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
pub(crate) enum Kind {
    Send = 1,
    Receive = 2,
    Open = 3,
    Accepted = 4,
    Connected = 5,
    Write = 6,
    Sent = 7,
    Data = 8,
    Finish = 9,
    Finished = 10,
    Abort = 11,
    Closed = 12,
    Store = 13,
    Stored = 14,
    Wake = 15,
    Event = 16,
    Command = 17,
    Reply = 18,
    Start = 19,
    Stopped = 20,
    Fault = 21,
    Watch = 22,
    Confirmed = 23,
}
