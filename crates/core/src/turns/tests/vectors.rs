//! The bytes.

use super::contract::bytes;
use super::*;

#[test]
fn tu_10_the_bytes_are_those_of_the_vectors() {
    for line in include_str!("../../../tests/vectors/turns.txt").lines().filter(|line| !line.starts_with('#'))
    {
        let fields: Vec<&str> = line.split('|').map(str::trim).collect();
        let [name, hex, printed] = fields[..] else {
            panic!("a vector is name | hex | printed form: {line}")
        };
        let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        let wire: Vec<u8> = (0..hex.len()).step_by(2).map(byte).collect();
        match decode(&wire) {
            Ok(message) => {
                assert_eq!(format!("{message:?}"), printed, "{name}");
                assert_eq!(bytes(&message), wire, "{name}");
            }
            Err(error) => assert_eq!(format!("{error:?}"), printed, "{name}"),
        }
    }
}

#[test]
fn tu_10_a_datagram_above_1200_bytes_is_no_message() {
    let mut long =
        bytes(&Message { group: Group::default(), epoch: 0, nonce: 0, body: Body::Read { key: None } });
    long.resize(MESSAGE_BYTES_MAX + 1, 0);
    assert_eq!(decode(&long), Err(crate::wire::DecodeError::Limit("length")));
}
