//! Who this node is: a UUID made once, and what follows from it.

use annulus_core::{Hex, Id, hash};
use uuid::Uuid;

/// A node's identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    uuid: Uuid,
}

impl Identity {
    /// A new one.
    pub(crate) fn random() -> Self {
        Self { uuid: Uuid::new_v4() }
    }

    /// The one written in a file.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        Uuid::parse_str(text.trim()).ok().map(|uuid| Self { uuid })
    }

    /// As it is written in a file.
    pub(crate) fn text(&self) -> String {
        format!("{}\n", self.uuid.hyphenated())
    }

    /// The place on the ring.
    pub(crate) fn id(&self) -> Id {
        Id::from_uuid(*self.uuid.as_bytes())
    }

    /// Its sixteen bytes.
    pub(crate) fn uuid(&self) -> [u8; 16] {
        *self.uuid.as_bytes()
    }

    /// The address in the mesh, 64 hexadecimal digits.
    pub(crate) fn nid(&self) -> String {
        Hex(&hash(self.uuid.as_bytes())).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_survives_its_file_and_gives_the_known_nid() {
        let identity = Identity::random();
        assert_eq!(Identity::parse(&identity.text()), Some(identity));
        let known = Identity::parse("00112233-4455-6677-8899-aabbccddeeff").unwrap();
        assert_eq!(known.nid(), "84a5b2397ee07585706b045f25583e1502f1ce5517efddb03edc65e4845531b7");
        assert_eq!(known.id().to_string(), known.nid()[..32]);
        assert_eq!(Identity::parse("garbage"), None);
    }
}
