//! Text to [`Id`] and back: a text that parses prints as the same 32 digits, and any other gives an error.

use annulus_core::{Id, ParseIdError};

pub(super) fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match text.parse::<Id>() {
        Ok(id) => {
            assert_eq!(id.to_string(), text.to_ascii_lowercase());
            assert_eq!(id.short().to_string(), text[..8].to_ascii_lowercase());
            assert_eq!(Id::from_bytes(id.to_bytes()), id);
        }
        Err(ParseIdError::Length(length)) => {
            assert!(length == text.len() && length != 32);
            assert!(text.bytes().all(|byte| byte.is_ascii_hexdigit()));
        }
        Err(ParseIdError::Digit(bad)) => {
            assert!(text.contains(bad) && !bad.is_ascii_hexdigit());
        }
        Err(error) => panic!("no rule for {error:?}"),
    }
}
