//! The identity of a node: a UUID that is made once, and the ids that follow from it.

use annulus_core::{Hex, Id, hash};

/// A node's identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    uuid: [u8; 16],
}

impl Identity {
    /// A new identity.
    #[must_use]
    pub fn random() -> Self {
        let mut uuid = [0; 16];
        getrandom::fill(&mut uuid).expect("the system gives random bytes");
        // A UUID of version 4: six of its bits are fixed.
        uuid[6] = uuid[6] & 0x0f | 0x40;
        uuid[8] = uuid[8] & 0x3f | 0x80;
        Self { uuid }
    }

    /// Reads the text of an identity file; `None` if it is no UUID.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let is_hyphen = |at: &usize| matches!(at, 8 | 13 | 18 | 23);
        let digits: String = match text.len() {
            36 if (0..36).filter(is_hyphen).all(|at| text.as_bytes()[at] == b'-') => {
                text.char_indices().filter(|(at, _)| !is_hyphen(at)).map(|(_, digit)| digit).collect()
            }
            32 => text.to_owned(),
            _ => return None,
        };
        let is_hex = digits.len() == 32 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        let uuid = u128::from_str_radix(&digits, 16).ok().filter(|_| is_hex)?.to_be_bytes();
        Some(Self { uuid })
    }

    /// The text of an identity file.
    #[must_use]
    pub fn text(&self) -> String {
        let digits = Hex(&self.uuid).to_string();
        let [a, b, c, d, e] = [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| &digits[part]);
        format!("{a}-{b}-{c}-{d}-{e}\n")
    }

    /// The id in `members` and `route`.
    #[must_use]
    pub fn id(&self) -> Id {
        Id::from_uuid(self.uuid)
    }

    /// The sixteen bytes of the UUID.
    #[must_use]
    pub fn uuid(&self) -> [u8; 16] {
        self.uuid
    }

    /// The address in the mesh (NID), 64 hexadecimal digits.
    #[must_use]
    pub fn nid(&self) -> String {
        Hex(&hash(&self.uuid)).to_string()
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
        assert_eq!(known.text(), "00112233-4455-6677-8899-aabbccddeeff\n");
        assert_eq!(Identity::parse("00112233445566778899AABBCCDDEEFF"), Some(known));
        for spoilt in
            ["garbage", "", "+0112233445566778899aabbccddeeff", "0011223-34455-6677-8899-aabbccddeeff"]
        {
            assert_eq!(Identity::parse(spoilt), None, "{spoilt:?}");
        }
    }

    #[test]
    fn a_new_identity_is_a_uuid_of_version_4() {
        let text = Identity::random().text();
        assert_eq!((text.len(), &text[14..15]), (37, "4"), "{text}");
        assert!("89ab".contains(&text[19..20]), "{text}");
        assert_ne!(Identity::random(), Identity::random());
    }
}
