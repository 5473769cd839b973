//! The content of a message on a terminal: text, without the power to control the terminal.

use std::io::{self, Write};

use crate::cli::output::plain;

/// Writes bytes of a peer as text. Control characters and characters that turn the direction of writing are escaped, but
/// for tabs and line feeds; bytes that are no text are replaced.
pub(super) struct Shown<W> {
    out: W,
    /// The beginning of a character whose other bytes have not come.
    left: Vec<u8>,
}

/// Stands for bytes that are no text.
const REPLACEMENT: &[u8] = "\u{fffd}".as_bytes();

impl<W: Write> Shown<W> {
    pub(super) const fn new(out: W) -> Self {
        Self { out, left: Vec::new() }
    }

    fn show(&mut self, text: &str) -> io::Result<()> {
        for line in text.split_inclusive(['\n', '\t']) {
            let body = line.trim_end_matches(['\n', '\t']);
            self.out.write_all(plain(body).as_bytes())?;
            self.out.write_all(&line.as_bytes()[body.len()..])?;
        }
        Ok(())
    }
}

impl<W: Write> Write for Shown<W> {
    fn write(&mut self, part: &[u8]) -> io::Result<usize> {
        let mut bytes = std::mem::take(&mut self.left);
        bytes.extend_from_slice(part);
        let mut rest = bytes.as_slice();
        while let Err(error) = std::str::from_utf8(rest) {
            let (valid, other) = rest.split_at(error.valid_up_to());
            self.show(&String::from_utf8_lossy(valid))?;
            let Some(invalid) = error.error_len() else {
                self.left = other.to_vec();
                return Ok(part.len());
            };
            self.out.write_all(REPLACEMENT)?;
            rest = &other[invalid..];
        }
        self.show(&String::from_utf8_lossy(rest))?;
        Ok(part.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if !std::mem::take(&mut self.left).is_empty() {
            self.out.write_all(REPLACEMENT)?;
        }
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_on_a_terminal_is_text_however_it_is_cut() {
        let content = b"gr\xc3\xbcn\t1\n\x1b[31mred\xe2\x80\xae\xff!\n\xc3";
        for part_bytes in 1..=content.len() {
            let mut shown = Shown::new(Vec::new());
            content.chunks(part_bytes).for_each(|part| shown.write_all(part).unwrap());
            shown.flush().unwrap();
            let text = String::from_utf8(shown.out).unwrap();
            assert_eq!(text, "grün\t1\n\\u{1b}[31mred\\u{202e}\u{fffd}!\n\u{fffd}", "parts of {part_bytes}");
        }
    }
}
