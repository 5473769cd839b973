//! Outgoing packets: messages for one node, followed by updates for all.

use std::net::SocketAddr;

use super::codec::Codec;
use super::config::Config;
use super::gossip::Gossip;
use super::machine::{Swim, UDP};
use super::message::Message;
use super::scaling::transmit_limit;
use super::wire::{HEAD_BYTES, Head, Ring};
use crate::outbox::Outbox;
use crate::tag::RequestId;

/// The packets of one node, and the updates that are piggybacked on them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Packets {
    head: Head,
    codec: Codec,
    gossip: Gossip,
    packet_bytes_max: usize,
    retransmit_mult: u32,
    /// The commands whose update has now been sent.
    handed: Vec<RequestId>,
    /// The updates of the packet being written.
    scratch: Vec<u8>,
    packets: u64,
    bytes: u64,
}

impl Packets {
    pub(super) fn new(config: &Config) -> Self {
        let settings = &config.settings;
        Self {
            head: Head { ring: Ring::new(&config.ring), from: config.id },
            codec: settings.codec,
            gossip: Gossip::new(settings.user_share, config.user_max, config.blocked_max),
            packet_bytes_max: settings.packet_bytes_max,
            retransmit_mult: settings.retransmit_mult,
            handed: Vec::new(),
            scratch: Vec::new(),
            packets: 0,
            bytes: 0,
        }
    }

    /// Sends messages to a member of a group of `live`, with as many updates as fit behind them.
    pub(super) fn send(
        &mut self,
        to: SocketAddr,
        messages: &[Message<'_>],
        live: usize,
        out: &mut Outbox<'_, Swim>,
    ) {
        let total = self.bytes_of(messages);
        if HEAD_BYTES + total > self.packet_bytes_max && messages.len() > 1 {
            messages.iter().for_each(|message| self.send(to, &[*message], live, out));
            return;
        }
        self.scratch.clear();
        if !self.gossip.is_empty() {
            let limit = transmit_limit(self.retransmit_mult, live);
            let room = self.packet_bytes_max.saturating_sub(HEAD_BYTES + total);
            self.gossip.fill(&mut self.scratch, room, limit, &mut self.handed);
        }
        if messages.is_empty() && self.scratch.is_empty() {
            return;
        }
        let (head, codec, updates) = (&self.head, self.codec, &self.scratch);
        let sent = out.send_with(UDP, to, self.packet_bytes_max, |writer| {
            codec.write_head(head, writer);
            messages.iter().for_each(|message| codec.encode(message, writer));
            writer.bytes(updates);
        });
        debug_assert!(sent.is_ok(), "one message fits a packet: packet_bytes_max is checked");
        self.count(HEAD_BYTES + total + self.scratch.len());
    }

    /// Sends messages to a node that is not a member, without updates, in at most `packets_max` packets. Returns how
    /// many messages were sent.
    pub(super) fn send_all<'m>(
        &mut self,
        to: SocketAddr,
        messages: impl Iterator<Item = Message<'m>>,
        packets_max: usize,
        out: &mut Outbox<'_, Swim>,
    ) -> usize {
        let mut messages = messages.peekable();
        let (mut sent, mut packets) = (0, 0);
        while packets < packets_max && messages.peek().is_some() {
            let (head, codec, mut written) = (&self.head, self.codec, 0);
            let _ = out.send_with(UDP, to, self.packet_bytes_max, |writer| {
                codec.write_head(head, writer);
                while let Some(message) = messages.next_if(|message| codec.size(message) <= writer.room()) {
                    codec.encode(&message, writer);
                    sent += 1;
                }
                written = writer.written();
            });
            self.count(written);
            packets += 1;
            if written <= HEAD_BYTES {
                break; // A message that fits no packet cannot be sent.
            }
        }
        sent
    }

    /// The most bytes a user message may have.
    pub(super) fn user_bytes_max(&self) -> usize {
        self.packet_bytes_max - HEAD_BYTES - self.codec.user_overhead()
    }

    /// How many bytes these messages take in a packet.
    pub(super) fn bytes_of(&self, messages: &[Message<'_>]) -> usize {
        messages.iter().map(|message| self.codec.size(message)).sum()
    }

    /// Takes the commands whose update was sent since the last call.
    pub(super) fn take_handed(&mut self) -> Vec<RequestId> {
        core::mem::take(&mut self.handed)
    }

    pub(super) const fn gossip_mut(&mut self) -> &mut Gossip {
        &mut self.gossip
    }

    pub(super) const fn forget_counts(&mut self) {
        (self.packets, self.bytes) = (0, 0);
    }

    pub(super) const fn gossip(&self) -> &Gossip {
        &self.gossip
    }

    pub(super) const fn codec(&self) -> Codec {
        self.codec
    }

    /// The ring that all packets name.
    pub(super) const fn ring(&self) -> Ring {
        self.head.ring
    }

    pub(super) const fn packet_bytes_max(&self) -> usize {
        self.packet_bytes_max
    }

    /// How many packets and bytes were sent.
    pub(super) const fn counted(&self) -> (u64, u64) {
        (self.packets, self.bytes)
    }

    fn count(&mut self, bytes: usize) {
        self.packets += 1;
        self.bytes += bytes as u64;
    }
}
