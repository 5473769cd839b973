//! A user event: the name and the payload that a user message of `members` carries.
//!
//! | bytes | content |
//! |---|---|
//! | 1 | form, 1 |
//! | 1 | length of the name |
//! | … | name, UTF-8 |
//! | … | payload, to the end |

/// A name and a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserEvent<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its payload.
    pub payload: &'a [u8],
}

const FORM: u8 = 1;

/// The longest name, in bytes.
pub const NAME_BYTES_MAX: usize = 255;

impl<'a> UserEvent<'a> {
    /// Whether this is a valid name: 1 to 255 bytes without control characters.
    #[must_use]
    pub fn is_name(name: &str) -> bool {
        (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.chars().any(char::is_control)
    }

    /// Its bytes; `None` if the name is invalid.
    #[must_use]
    pub fn encode(&self) -> Option<Vec<u8>> {
        let len = u8::try_from(self.name.len()).ok().filter(|_| Self::is_name(self.name))?;
        Some([&[FORM, len], self.name.as_bytes(), self.payload].concat())
    }

    /// Decodes a user event of another agent; `None` if it has another form.
    #[must_use]
    pub fn decode(bytes: &'a [u8]) -> Option<Self> {
        let (&[FORM, len], rest) = bytes.split_first_chunk()? else { return None };
        let (name, payload) = rest.split_at_checked(usize::from(len))?;
        Some(Self { name: std::str::from_utf8(name).ok()?, payload })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_survives_its_bytes_and_other_forms_are_none() {
        let event = UserEvent { name: "deploy", payload: &[0, 255] };
        assert_eq!(UserEvent::decode(&event.encode().unwrap()), Some(event));
        for name in ["", "two\nlines", "\u{1b}[2J", &"x".repeat(256)] {
            assert_eq!(UserEvent { name, payload: b"x" }.encode(), None);
        }
        for bad in [&b""[..], b"\x01", b"\x02\x01a", b"\x01\x09short", b"\x01\x01\xff"] {
            assert_eq!(UserEvent::decode(bad), None, "{bad:?}");
        }
    }
}
