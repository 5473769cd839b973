//! The ids that machine and driver use, each with the service it belongs to.
//!
//! A `Node` has several machines, and none of them knows of the others. Each numbers its sockets, streams and store
//! operations as if it were alone, in service 0. The [`crate::Outbox`] adds the service to outgoing ids, and the `Node`
//! removes it from incoming ones. Eight bits of every id are reserved for that.

use core::fmt;

use serde::Serialize;

/// The tag of a machine in a node. A machine that runs alone is service 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Service(pub u8);

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Makes a newtype whose top eight bits are a [`Service`].
macro_rules! tagged {
    ($(#[$doc:meta])* $name:ident($number:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[serde(transparent)]
        pub struct $name($number);

        impl $name {
            const SHIFT: u32 = <$number>::BITS - 8;
            const LOCAL: $number = <$number>::MAX >> 8;

            /// Number `local` of the machine itself, in service 0.
            ///
            /// # Panics
            /// If `local` reaches into the bits of the service.
            #[must_use]
            pub const fn new(local: $number) -> Self {
                assert!(local <= Self::LOCAL, "the top eight bits belong to the service");
                Self(local)
            }

            /// The service it belongs to.
            #[must_use]
            pub const fn service(self) -> Service {
                Service((self.0 >> Self::SHIFT) as u8)
            }

            /// The number within the service.
            #[must_use]
            pub const fn local(self) -> $number {
                self.0 & Self::LOCAL
            }

            /// The same number in another service.
            #[must_use]
            pub const fn in_service(self, service: Service) -> Self {
                Self(self.local() | ((service.0 as $number) << Self::SHIFT))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({}:{})"), self.service(), self.local())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}:{}", self.service(), self.local())
            }
        }
    };
}

tagged! {
    /// A datagram socket that a machine declared.
    SocketId(u16)
}
tagged! {
    /// A stream listener that a machine declared.
    ListenerId(u16)
}
tagged! {
    /// A space of keys in the store that a machine declared.
    SpaceId(u16)
}
tagged! {
    /// A stream. The side that opens it allots the number: machines even ones, drivers (for accepted streams) odd ones. Each
    /// counts upwards; a number is never used twice by one machine.
    StreamId(u64)
}
tagged! {
    /// A store operation under way, numbered by the machine.
    OpId(u64)
}

impl StreamId {
    /// The `n`-th stream that a machine opens.
    #[must_use]
    pub const fn opened(n: u64) -> Self {
        Self::new(n << 1)
    }

    /// The `n`-th stream that a driver accepts.
    #[must_use]
    pub const fn accepted(n: u64) -> Self {
        Self::new((n << 1) | 1)
    }

    /// Whether the other side opened this stream.
    #[must_use]
    pub const fn is_accepted(self) -> bool {
        self.0 & 1 == 1
    }
}

/// A command under way, numbered by its sender; its reply has the same number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct RequestId(pub u64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_stamped_and_stripped() {
        let own = StreamId::opened(5);
        let tagged = own.in_service(Service(3));
        assert_eq!((tagged.service(), tagged.local()), (Service(3), own.local()));
        assert_eq!(tagged.in_service(Service(0)), own);
        assert_eq!(SocketId::new(255).in_service(Service(255)).local(), 255);
    }

    #[test]
    fn both_sides_number_streams_independently() {
        assert!(!StreamId::opened(7).is_accepted());
        assert!(StreamId::accepted(7).in_service(Service(9)).is_accepted());
        assert_ne!(StreamId::opened(7), StreamId::accepted(7));
    }

    #[test]
    #[should_panic(expected = "belong to the service")]
    fn a_number_may_not_reach_into_the_service() {
        let _ = SocketId::new(256);
    }
}
