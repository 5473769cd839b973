//! The addresses and metadata of a node, as bytes that are checked once and forwarded unchanged.

use std::net::SocketAddr;

use super::addr::Addr;
use crate::wire::{DecodeError, Reader, Writer};

/// The most addresses of one node.
pub const ADDRS_MAX: usize = 8;
/// The most bytes of metadata.
pub const META_BYTES_MAX: usize = 512;

/// Addresses and metadata of a node, borrowed.
///
/// Most nodes have one address and no metadata. Then `rest` is empty and costs no memory in the table of members.
/// Otherwise `rest` has the number of further addresses, these addresses, and the metadata up to the end. All contents
/// have exactly one form, so equal contents are equal bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Contents<'a> {
    addr: Addr,
    rest: &'a [u8],
}

impl<'a> Contents<'a> {
    /// Contents from their stored parts.
    pub(super) const fn from_parts(addr: Addr, rest: &'a [u8]) -> Self {
        Self { addr, rest }
    }

    /// Reads contents up to the end of the bytes.
    pub(super) fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let addr = Addr::read(reader)?;
        let rest = reader.take_rest();
        check(rest)?;
        Ok(Self { addr, rest })
    }

    pub(super) fn write(&self, writer: &mut Writer<'_>) {
        self.addr.write(writer);
        writer.bytes(self.rest);
    }

    /// The encoded length.
    pub(super) fn bytes(&self) -> usize {
        self.addr.bytes() + self.rest.len()
    }

    /// The first address.
    #[must_use]
    pub const fn addr(&self) -> Addr {
        self.addr
    }

    /// The bytes after the first address.
    pub(super) const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// All addresses, the best first.
    pub fn addrs(&self) -> impl Iterator<Item = SocketAddr> + use<'a> {
        let mut reader = Reader::new(self.rest);
        let others = reader.u8().unwrap_or(0);
        let others = (0..others).map_while(move |_| Addr::read(&mut reader).ok());
        core::iter::once(self.addr).chain(others).map(Addr::socket)
    }

    /// The metadata.
    #[must_use]
    pub fn meta(&self) -> &'a [u8] {
        let mut reader = Reader::new(self.rest);
        for _ in 0..reader.u8().unwrap_or(0) {
            let _ = Addr::read(&mut reader);
        }
        reader.take_rest()
    }

    /// The same, owned.
    #[must_use]
    pub fn to_owned(&self) -> OwnContents {
        OwnContents { addr: self.addr, rest: self.rest.into() }
    }
}

/// Checks that `rest` has the only form that [`Contents`] allows.
fn check(rest: &[u8]) -> Result<(), DecodeError> {
    if rest.is_empty() {
        return Ok(());
    }
    let mut reader = Reader::new(rest);
    let others = reader.u8()?;
    if usize::from(others) >= ADDRS_MAX {
        return Err(DecodeError::Limit("addrs"));
    }
    for _ in 0..others {
        Addr::read(&mut reader)?;
    }
    let meta = reader.take_rest();
    if meta.len() > META_BYTES_MAX {
        return Err(DecodeError::Limit("meta"));
    }
    if others == 0 && meta.is_empty() { Err(DecodeError::Field("contents")) } else { Ok(()) }
}

/// [`Contents`] that own their bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnContents {
    addr: Addr,
    rest: Box<[u8]>,
}

impl OwnContents {
    /// From addresses and metadata; `None` if there is no address, or too many, or too much metadata.
    #[must_use]
    pub fn new(addrs: &[SocketAddr], meta: &[u8]) -> Option<Self> {
        let (first, others) = addrs.split_first()?;
        if others.len() >= ADDRS_MAX || meta.len() > META_BYTES_MAX {
            return None;
        }
        let mut rest = Vec::new();
        if !(others.is_empty() && meta.is_empty()) {
            let mut writer = Writer::new(&mut rest, usize::MAX);
            writer.u8(others.len() as u8);
            others.iter().for_each(|addr| Addr::from(*addr).write(&mut writer));
            writer.bytes(meta);
        }
        Some(Self { addr: (*first).into(), rest: rest.into() })
    }

    /// Borrowed.
    #[must_use]
    pub const fn borrow(&self) -> Contents<'_> {
        Contents { addr: self.addr, rest: &self.rest }
    }
}
