//! A program for [`Reader`] and [`Writer`] from the bytes themselves: a read value is written again, and a read that
//! fails takes nothing.

use annulus_core::wire::{DecodeError, Reader, Writer};

/// More than a writer is ever asked to hold here.
const WRITTEN_BYTES_MAX: usize = 4096;

pub(super) fn run(bytes: &[u8]) {
    let Some((&steps, bytes)) = bytes.split_first() else { return };
    let Some((program, data)) = bytes.split_at_checked(usize::from(steps)) else { return };
    let mut reader = Reader::new(data);
    let mut again = Vec::new();
    let mut writer = Writer::new(&mut again, WRITTEN_BYTES_MAX);
    for &step in program {
        let before = reader.remaining();
        match read_and_write(step, &mut reader, &mut writer) {
            Ok(taken) => assert_eq!(reader.remaining(), before - taken),
            Err(error) => {
                assert_eq!(error, DecodeError::Truncated);
                assert_eq!(reader.remaining(), before, "a read that fails takes nothing");
            }
        }
    }
    let read = data.len() - reader.remaining();
    assert_eq!(reader.finish().is_ok(), reader.remaining() == 0);
    if writer.finish().is_ok() {
        assert_eq!(again, data[..read]);
    } else {
        assert!(read > WRITTEN_BYTES_MAX && data.starts_with(&again));
    }
}

/// Does one step of the program and returns the number of bytes that it took.
fn read_and_write(step: u8, reader: &mut Reader<'_>, writer: &mut Writer<'_>) -> Result<usize, DecodeError> {
    Ok(match step {
        0 => {
            writer.u8(reader.u8()?);
            1
        }
        1 => {
            writer.u16(reader.u16()?);
            2
        }
        2 => {
            writer.u32(reader.u32()?);
            4
        }
        3 => {
            writer.i32(reader.i32()?);
            4
        }
        4 => {
            writer.u64(reader.u64()?);
            8
        }
        5 => {
            writer.u128(reader.u128()?);
            16
        }
        6 => {
            writer.bytes(&reader.array::<7>()?);
            7
        }
        7 => {
            let rest = reader.take_rest();
            writer.bytes(rest);
            rest.len()
        }
        // A length that the peer declares, up to one that no memory holds.
        8 => {
            reader.bytes(usize::MAX)?;
            unreachable!("there are not so many bytes")
        }
        length => {
            writer.bytes(reader.bytes(usize::from(length))?);
            usize::from(length)
        }
    })
}
