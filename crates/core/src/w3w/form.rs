//! Forms of DATA that two annulus nodes understand: receipts and files, inside the DATA of ordinary messages.
//!
//! The wire of w00 has one kind of MESSAGE and no acknowledgement (MA-46a). Whatever more two nodes want to say is
//! a *form*: DATA that begins with sixteen fixed bytes, a kind, and fields that fill it exactly. DATA that does not
//! is plain, and so is DATA that begins so and then breaks the rules. Plain DATA that happens to begin like a form
//! is sent inside [`Form::Plain`], so there is never a doubt which of the two was meant.
//!
//! | kind | fields after the sixteen bytes and the kind |
//! |---|---|
//! | 0 plain | payload |
//! | 1 ask | nonce u64, payload: answer with a receipt once this is safe |
//! | 2 receipt | key of the DATA received (32), when u64 (seconds since 1970) |
//! | 3 manifest | attempt u32, then what the file is known by (its *core*): size u64, bytes of a block u32, length of the name u16, name (UTF-8), BLAKE2b-256 of each block (32 each) |
//! | 4 block | file (32, the BLAKE2b-256 of the core), index u32, attempt u32, bytes |
//! | 5 progress | file (32), round u32, complete u8 (0 or 1), ranges that are missing: first u32, count u32 each |
//! | 6 inquiry | file (32), round u32: answer with a progress |
//!
//! Attempts and rounds make DATA differ when it is sent again: an equal message would be dropped
//! as seen (MA-41).

use super::nid::Key;
use crate::wire::{DecodeError, Reader};

/// What every form begins with.
pub const FORM_MAGIC: &[u8; 16] = b"annulus/form/1\r\n";
/// The most blocks a file may have: 64 GiB in blocks of one MiB.
pub const FILE_BLOCKS_MAX: usize = 65_536;
/// The longest name of a file that is shown.
const NAME_CHARS_MAX: usize = 255;
/// The most ranges in one progress; what is missing beyond them is told the next time.
pub(super) const PROGRESS_RANGES_MAX: usize = 64;

/// DATA, understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Form<'a> {
    /// Bytes that mean nothing to us.
    Plain(&'a [u8]),
    /// Bytes whose sender wants to know that they arrived.
    Ask {
        /// Makes equal payloads different messages.
        nonce: u64,
        /// The bytes.
        payload: &'a [u8],
    },
    /// DATA has arrived and is safe.
    Receipt {
        /// Which.
        key: Key,
        /// When, by the recipient's clock, in seconds since 1970.
        received_at: u64,
    },
    /// A file is offered.
    Manifest {
        /// How often it has been offered before.
        attempt: u32,
        /// The file.
        manifest: Manifest,
    },
    /// A part of a file.
    Block {
        /// Which file.
        file: Key,
        /// Which part.
        index: u32,
        /// How often it has been sent before.
        attempt: u32,
        /// The part.
        bytes: &'a [u8],
    },
    /// How much of a file has arrived.
    Progress(Progress),
    /// How much of a file has arrived?
    Inquiry {
        /// Which file.
        file: Key,
        /// How often it was asked before.
        round: u32,
    },
}

/// What a file consists of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// What its sender calls it, as it was sent: [`Manifest::shown_name`] is what may be shown.
    pub name: String,
    /// How long it is.
    pub size: u64,
    /// How long each block is, but for the last.
    pub block_bytes: u32,
    /// BLAKE2b-256 of each block.
    pub blocks: Vec<Key>,
}

impl Manifest {
    /// How many bytes the block at `index` has.
    #[must_use]
    pub fn block_len(&self, index: u32) -> u64 {
        let from = u64::from(index) * u64::from(self.block_bytes);
        self.size.saturating_sub(from).min(u64::from(self.block_bytes))
    }

    /// What its sender calls it, made harmless: the last part of a path, without control characters, and a name in any case.
    /// Even so it is to be shown, not to be written to.
    #[must_use]
    pub fn shown_name(&self) -> String {
        let last = self.name.rsplit(['/', '\\']).next().unwrap_or_default();
        let name: String = last.chars().filter(|c| !c.is_control()).take(NAME_CHARS_MAX).collect();
        if matches!(name.trim(), "" | "." | "..") { "unnamed".to_owned() } else { name }
    }

    /// What the file is known by: the hash of its core.
    #[must_use]
    pub fn file(&self) -> Key {
        Key::of(&self.core())
    }

    /// Its bytes on the wire and in the store.
    #[must_use]
    pub fn core(&self) -> Vec<u8> {
        let mut core = Vec::with_capacity(14 + self.name.len() + 32 * self.blocks.len());
        core.extend_from_slice(&self.size.to_be_bytes());
        core.extend_from_slice(&self.block_bytes.to_be_bytes());
        core.extend_from_slice(&(self.name.len() as u16).to_be_bytes());
        core.extend_from_slice(self.name.as_bytes());
        self.blocks.iter().for_each(|block| core.extend_from_slice(&block.to_bytes()));
        core
    }

    /// Reads a core.
    ///
    /// # Errors
    /// If it is none.
    pub fn from_core(core: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(core);
        let manifest = read_manifest(&mut reader)?;
        reader.finish().map(|()| manifest)
    }

    /// Whether its numbers fit together.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let blocks =
            if self.block_bytes == 0 { u64::MAX } else { self.size.div_ceil(self.block_bytes.into()) };
        blocks == self.blocks.len() as u64
            && self.blocks.len() <= FILE_BLOCKS_MAX
            && u16::try_from(self.name.len()).is_ok()
    }
}

/// How much of a file has arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Which file.
    pub file: Key,
    /// Counts the answers, so that no two are equal.
    pub round: u32,
    /// Whether all of it is there and safe: the receipt of a file.
    pub is_complete: bool,
    /// What is missing: first block and how many, ascending.
    pub missing: Vec<(u32, u32)>,
}

/// Understands DATA.
#[must_use]
pub fn read_form(data: &[u8]) -> Form<'_> {
    match data.strip_prefix(FORM_MAGIC) {
        Some(rest) => read(rest).unwrap_or(Form::Plain(data)),
        None => Form::Plain(data),
    }
}

/// The DATA that says this.
#[must_use]
pub fn write_form(form: &Form<'_>) -> Vec<u8> {
    let mut data = FORM_MAGIC.to_vec();
    match form {
        Form::Plain(payload) if !payload.starts_with(FORM_MAGIC) => return payload.to_vec(),
        Form::Plain(payload) => {
            data.push(0);
            data.extend_from_slice(payload);
        }
        Form::Ask { nonce, payload } => {
            data.push(1);
            data.extend_from_slice(&nonce.to_be_bytes());
            data.extend_from_slice(payload);
        }
        Form::Receipt { key, received_at } => {
            data.push(2);
            data.extend_from_slice(&key.to_bytes());
            data.extend_from_slice(&received_at.to_be_bytes());
        }
        Form::Manifest { attempt, manifest } => {
            data.push(3);
            data.extend_from_slice(&attempt.to_be_bytes());
            data.extend_from_slice(&manifest.core());
        }
        Form::Block { file, index, attempt, bytes } => {
            data.push(4);
            data.extend_from_slice(&file.to_bytes());
            data.extend_from_slice(&index.to_be_bytes());
            data.extend_from_slice(&attempt.to_be_bytes());
            data.extend_from_slice(bytes);
        }
        Form::Progress(progress) => {
            data.push(5);
            data.extend_from_slice(&progress.file.to_bytes());
            data.extend_from_slice(&progress.round.to_be_bytes());
            data.push(u8::from(progress.is_complete));
            for (first, count) in progress.missing.iter().take(PROGRESS_RANGES_MAX) {
                data.extend_from_slice(&first.to_be_bytes());
                data.extend_from_slice(&count.to_be_bytes());
            }
        }
        Form::Inquiry { file, round } => {
            data.push(6);
            data.extend_from_slice(&file.to_bytes());
            data.extend_from_slice(&round.to_be_bytes());
        }
    }
    data
}

fn read(bytes: &[u8]) -> Result<Form<'_>, DecodeError> {
    let mut reader = Reader::new(bytes);
    let form = match reader.u8()? {
        0 => Form::Plain(reader.take_rest()),
        1 => Form::Ask { nonce: reader.u64()?, payload: reader.take_rest() },
        2 => Form::Receipt { key: key(&mut reader)?, received_at: reader.u64()? },
        3 => Form::Manifest { attempt: reader.u32()?, manifest: read_manifest(&mut reader)? },
        4 => Form::Block {
            file: key(&mut reader)?,
            index: reader.u32()?,
            attempt: reader.u32()?,
            bytes: reader.take_rest(),
        },
        5 => Form::Progress(read_progress(&mut reader)?),
        6 => Form::Inquiry { file: key(&mut reader)?, round: reader.u32()? },
        _ => return Err(DecodeError::Kind),
    };
    reader.finish()?;
    Ok(form)
}

fn key(reader: &mut Reader<'_>) -> Result<Key, DecodeError> {
    reader.array().map(Key::from_bytes)
}

fn read_manifest(reader: &mut Reader<'_>) -> Result<Manifest, DecodeError> {
    let (size, block_bytes, name_len) = (reader.u64()?, reader.u32()?, reader.u16()?);
    let name =
        core::str::from_utf8(reader.bytes(name_len.into())?).map_err(|_| DecodeError::Field("name"))?;
    let mut manifest = Manifest { name: name.to_owned(), size, block_bytes, blocks: Vec::new() };
    while reader.remaining() > 0 && manifest.blocks.len() < FILE_BLOCKS_MAX {
        manifest.blocks.push(key(reader)?);
    }
    if manifest.is_sound() { Ok(manifest) } else { Err(DecodeError::Field("size")) }
}

fn read_progress(reader: &mut Reader<'_>) -> Result<Progress, DecodeError> {
    let (file, round) = (key(reader)?, reader.u32()?);
    let is_complete = match reader.u8()? {
        0 => false,
        1 => true,
        _ => return Err(DecodeError::Field("complete")),
    };
    let mut missing = Vec::new();
    while reader.remaining() > 0 && missing.len() < PROGRESS_RANGES_MAX {
        missing.push((reader.u32()?, reader.u32()?));
    }
    Ok(Progress { file, round, is_complete, missing })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_of_a_file_leads_anywhere() {
        let shown = |name: &str| {
            Manifest { name: name.to_owned(), size: 0, block_bytes: 1, blocks: vec![] }.shown_name()
        };
        assert_eq!(shown("report 1.pdf"), "report 1.pdf");
        assert_eq!(shown("../../etc/passwd"), "passwd");
        assert_eq!(shown("C:\\windows\\x.dll"), "x.dll");
        for nothing in ["", "..", ".", "../..", "a/", "/", "x/ .. ", "\u{1b}\r\n"] {
            assert_eq!(shown(nothing), "unnamed", "{nothing:?}");
        }
        assert_eq!(shown("\u{1b}[2Jx"), "[2Jx");
        assert_eq!(shown(&"y".repeat(60_000)).len(), NAME_CHARS_MAX);
    }
}
