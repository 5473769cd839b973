//! A socket address in 18 bytes: a table of thousands of members holds one for each.

use core::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use crate::wire::{DecodeError, Reader, Writer};

/// An address and a port. An IPv4 address is stored as an IPv4-mapped IPv6 address. Scope and flow of IPv6 are dropped:
/// they mean nothing on another machine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Addr {
    ip: [u8; 16],
    port: u16,
}

impl Addr {
    /// The encoded length of an IPv4 address and port.
    pub(super) const V4_BYTES: usize = 7;
    /// The encoded length of an IPv6 address and port.
    pub(super) const V6_BYTES: usize = 19;

    /// The address as the standard library's type.
    #[must_use]
    pub fn socket(self) -> SocketAddr {
        SocketAddr::new(Ipv6Addr::from(self.ip).to_canonical(), self.port)
    }

    /// Address and port as numbers, to be hashed.
    pub(super) const fn bits(self) -> (u128, u16) {
        (u128::from_be_bytes(self.ip), self.port)
    }

    /// The encoded length.
    #[must_use]
    pub(super) fn bytes(self) -> usize {
        if self.socket().is_ipv4() { Self::V4_BYTES } else { Self::V6_BYTES }
    }

    /// Appends kind, address and port.
    pub(super) fn write(self, writer: &mut Writer<'_>) {
        match self.socket().ip() {
            IpAddr::V4(ip) => {
                writer.u8(4);
                writer.bytes(&ip.octets());
            }
            IpAddr::V6(ip) => {
                writer.u8(6);
                writer.bytes(&ip.octets());
            }
        }
        writer.u16(self.port);
    }

    /// Reads what [`Addr::write`] wrote. It refuses an IPv4-mapped IPv6 address, so that every address has one form.
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let ip = match reader.u8()? {
            4 => IpAddr::from(reader.array::<4>()?),
            6 => {
                let ip = Ipv6Addr::from(reader.array::<16>()?);
                if ip.to_ipv4_mapped().is_some() {
                    return Err(DecodeError::Field("addr"));
                }
                IpAddr::V6(ip)
            }
            _ => return Err(DecodeError::Field("addr")),
        };
        let port = reader.u16()?;
        if port == 0 || ip.is_unspecified() {
            return Err(DecodeError::Field("addr"));
        }
        Ok(SocketAddr::new(ip, port).into())
    }
}

impl From<SocketAddr> for Addr {
    fn from(addr: SocketAddr) -> Self {
        let ip = match addr.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        Self { ip: ip.octets(), port: addr.port() }
    }
}

impl fmt::Debug for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.socket(), f)
    }
}
