//! One message of `route`: a decoded message has one form, and decoding ends.

use annulus_core::pastry::{decode, encode};
use annulus_core::wire::Writer;

pub(super) fn run(bytes: &[u8]) {
    let Ok(message) = decode(bytes) else { return };
    let mut again = Vec::new();
    let mut writer = Writer::new(&mut again, bytes.len());
    encode(&message, &mut writer);
    assert!(writer.finish().is_ok(), "it does not grow");
    assert_eq!(again, bytes, "a message has one form");
}
