//! Forms of DATA that two annulus nodes understand: receipts and files, inside the DATA of ordinary messages.
//!
//! The wire of w00 has one kind of MESSAGE and no acknowledgement (MA-46a). Further messages between two nodes are
//! *forms*: DATA that begins with sixteen fixed bytes, a kind, and fields that fill it exactly. All other DATA is
//! plain, also if it begins so and then breaks the rules. Plain DATA that happens to begin like a form is sent inside
//! [`Form::Plain`], so the two cannot be confused.
//!
//! | kind | fields after the sixteen bytes and the kind |
//! |---|---|
//! | 0 plain | payload |
//! | 1 ask | nonce u64, payload: answered with a receipt once it is on disk |
//! | 2 receipt | key of the DATA received (32), when u64 (seconds since 1970) |
//! | 3 manifest | attempt u32, then the *core* of the file: size u64, bytes of a block u32, length of the name u16, name (UTF-8), BLAKE2b-256 of each block (32 each) |
//! | 4 block | file (32, the BLAKE2b-256 of the core), index u32, attempt u32, bytes |
//! | 5 progress | file (32), round u32, complete u8 (0 or 1), missing ranges: first u32, count u32 each |
//! | 6 progress request | file (32), round u32: answered with a progress |
//! | 7 custody | flag u8 (0 verdicts, 1 ping, 2 pong), then per message: seen key (32), verdict u8 |
//! | 8 letter | epoch u64, number u64, least u64, attempt u16, lifetime u32 (seconds), payload |
//! | 9 receipts | nonce u64, epoch u64, mailbox u64, up to u64, then ranges: first u64, count u32 each |
//! | 10 refusal | nonce u64, epoch u64, number u64, reason u8 |
//!
//! Kinds 7 to 10 go only to nodes that know them (CU-5, CU-6).
//!
//! Attempts and rounds make DATA differ when it is sent again: an equal message would be dropped
//! as seen (MA-41).

use super::message::SeenKey;
use super::nid::Key;
use crate::wire::{DecodeError, Reader};

/// The first bytes of every form.
pub const FORM_MAGIC: &[u8; 16] = b"annulus/form/1\r\n";
/// The most blocks a file may have: 64 GiB in blocks of one MiB.
pub const FILE_BLOCKS_MAX: usize = 65_536;
/// The longest displayed name of a file.
const NAME_CHARS_MAX: usize = 255;
/// The most ranges in one progress; further ones are reported the next time.
pub(super) const PROGRESS_RANGES_MAX: usize = 64;
/// The most ranges in one receipt, and the most verdicts in one frame of custody.
const RECEIPT_RANGES_MAX: usize = 4096;
const VERDICTS_MAX: usize = 4096;

/// Decoded DATA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Form<'a> {
    /// Bytes without meaning to the mesh.
    Plain(&'a [u8]),
    /// Bytes whose sender requests a receipt.
    Ask {
        /// Makes equal payloads different messages.
        nonce: u64,
        /// The bytes.
        payload: &'a [u8],
    },
    /// DATA has arrived and is on disk.
    Receipt {
        /// Its key.
        key: Key,
        /// When, by the recipient's clock, in seconds since 1970.
        received_at: u64,
    },
    /// An offer of a file.
    Manifest {
        /// How often it has been offered before.
        attempt: u32,
        /// The file.
        manifest: Manifest,
    },
    /// A block of a file.
    Block {
        /// The file.
        file: Key,
        /// The index of the block.
        index: u32,
        /// How often it has been sent before.
        attempt: u32,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// The progress of a file.
    Progress(Progress),
    /// A request for the progress of a file.
    ProgressRequest {
        /// The file.
        file: Key,
        /// How often it was requested before.
        round: u32,
    },
    /// From neighbour to neighbour: verdicts on messages, or a ping (CU-5).
    Custody(Custody),
    /// A message with a number (CU-8).
    Letter(Letter<'a>),
    /// Letters are in the recipient's inbox (CU-10).
    Receipts(Receipts),
    /// The recipient refuses a letter.
    Refusal {
        /// Makes equal refusals different messages.
        nonce: u64,
        /// The epoch of the letter.
        epoch: u64,
        /// The number of the letter.
        number: u64,
        /// The reason.
        reason: RefusalReason,
    },
}

/// A message with a number: sender, epoch and number identify it (CU-8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Letter<'a> {
    /// Drawn at each start of the sender.
    pub epoch: u64,
    /// Counts the letters of an epoch to one recipient, from 1.
    pub number: u64,
    /// The lowest number of the epoch that is still open: the recipient closes the gaps below it.
    pub least: u64,
    /// Makes the bytes differ when the letter is sent again.
    pub attempt: u16,
    /// How long the letter may wait, in seconds.
    pub lifetime: u32,
    /// The bytes.
    pub payload: &'a [u8],
}

/// The letters of one epoch that are in the recipient's inbox (CU-10).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipts {
    /// Makes equal receipts different messages.
    pub nonce: u64,
    /// The epoch of the letters.
    pub epoch: u64,
    /// Identifies the recipient's store; another one means that the recipient lost its disk.
    pub mailbox: u64,
    /// Every letter up to this number.
    pub up_to: u64,
    /// Letters above it: first and count, ascending.
    pub ranges: Vec<(u64, u32)>,
}

impl Receipts {
    /// Whether a letter of the epoch is in the inbox.
    #[must_use]
    pub fn covers(&self, number: u64) -> bool {
        let is_in = |(first, count): &(u64, u32)| number >= *first && number - first < u64::from(*count);
        number <= self.up_to || self.ranges.iter().any(is_in)
    }
}

/// Why a recipient refuses a letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RefusalReason {
    /// The recipient blocks the sender.
    Blocked,
    /// It exceeds the whole quota of the recipient.
    TooLong,
    /// The recipient has no such application.
    NoApplication,
}

/// The answer of a neighbour about a message that it was given (CU-12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The message is synced on its disk and in its queue.
    Held,
    /// The message is for it, and in its inbox.
    Delivered,
    /// There is no room.
    Full,
    /// It does not hold the message.
    Unable,
}

/// A frame of custody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Custody {
    /// [`Custody::VERDICTS`], [`Custody::PING`] or [`Custody::PONG`].
    pub flag: u8,
    /// The verdicts.
    pub verdicts: Vec<(SeenKey, Verdict)>,
}

impl Custody {
    /// The frame carries verdicts.
    pub const VERDICTS: u8 = 0;
    /// The sender requests a pong.
    pub const PING: u8 = 1;
    /// The answer to a ping.
    pub const PONG: u8 = 2;
}

/// The description of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// Its name, as it was sent: [`Manifest::shown_name`] is safe to display.
    pub name: String,
    /// Its size.
    pub size: u64,
    /// The size of each block but the last.
    pub block_bytes: u32,
    /// BLAKE2b-256 of each block.
    pub blocks: Vec<Key>,
}

impl Manifest {
    /// Its name, made safe: the last part of a path, without control characters, and never empty. It is for display
    /// only, not a path to write to.
    #[must_use]
    pub fn shown_name(&self) -> String {
        let last = self.name.rsplit(['/', '\\']).next().unwrap_or_default();
        let name: String = last.chars().filter(|c| !c.is_control()).take(NAME_CHARS_MAX).collect();
        if matches!(name.trim(), "" | "." | "..") { "unnamed".to_owned() } else { name }
    }

    /// The key of the file: the hash of its core.
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

    /// Whether its numbers are consistent.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let blocks =
            if self.block_bytes == 0 { u64::MAX } else { self.size.div_ceil(self.block_bytes.into()) };
        blocks == self.blocks.len() as u64
            && self.blocks.len() <= FILE_BLOCKS_MAX
            && u16::try_from(self.name.len()).is_ok()
    }
}

/// The progress of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The file.
    pub file: Key,
    /// Counts the answers, so that no two are equal.
    pub round: u32,
    /// Whether it is complete and on disk: the receipt of a file.
    pub is_complete: bool,
    /// The missing blocks: first block and how many, ascending.
    pub missing: Vec<(u32, u32)>,
}

/// Decodes DATA.
#[must_use]
pub fn read_form(data: &[u8]) -> Form<'_> {
    match data.strip_prefix(FORM_MAGIC) {
        Some(rest) => read(rest).unwrap_or(Form::Plain(data)),
        None => Form::Plain(data),
    }
}

/// Encodes a form as DATA.
#[must_use]
pub fn write_form(form: &Form<'_>) -> Vec<u8> {
    let mut data = Vec::with_capacity(form.bytes_max());
    put_form(&mut data, form);
    data
}

/// Appends a form as DATA.
pub(super) fn put_form(data: &mut Vec<u8>, form: &Form<'_>) {
    if let Form::Plain(payload) = form
        && !payload.starts_with(FORM_MAGIC)
    {
        return data.extend_from_slice(payload);
    }
    data.extend_from_slice(FORM_MAGIC);
    match form {
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
            put_progress(data, progress);
        }
        Form::ProgressRequest { file, round } => {
            data.push(6);
            data.extend_from_slice(&file.to_bytes());
            data.extend_from_slice(&round.to_be_bytes());
        }
        Form::Custody(custody) => {
            data.extend_from_slice(&[7, custody.flag]);
            for (seen, verdict) in custody.verdicts.iter().take(VERDICTS_MAX) {
                data.extend_from_slice(&seen.to_bytes());
                data.push(*verdict as u8);
            }
        }
        Form::Letter(letter) => {
            data.push(8);
            let Letter { epoch, number, least, attempt, lifetime, payload } = letter;
            put_numbers(data, [*epoch, *number, *least]);
            data.extend_from_slice(&attempt.to_be_bytes());
            data.extend_from_slice(&lifetime.to_be_bytes());
            data.extend_from_slice(payload);
        }
        Form::Receipts(receipts) => {
            data.push(9);
            put_receipts(data, receipts);
        }
        Form::Refusal { nonce, epoch, number, reason } => {
            data.push(10);
            put_numbers(data, [*nonce, *epoch, *number]);
            data.push(*reason as u8);
        }
    }
}

/// Whether a message of this DATA needs custody: the transfer of a file repairs itself (CU-14).
pub(super) fn needs_custody(data: &[u8]) -> bool {
    !data.strip_prefix(FORM_MAGIC).and_then(<[u8]>::first).is_some_and(|kind| (3..=6).contains(kind))
}

/// Whether DATA is a frame of custody.
pub(super) fn is_custody(data: &[u8]) -> bool {
    data.strip_prefix(FORM_MAGIC).and_then(<[u8]>::first) == Some(&7)
}

fn put_numbers<const N: usize>(data: &mut Vec<u8>, numbers: [u64; N]) {
    numbers.iter().for_each(|number| data.extend_from_slice(&number.to_be_bytes()));
}

fn put_progress(data: &mut Vec<u8>, progress: &Progress) {
    data.extend_from_slice(&progress.file.to_bytes());
    data.extend_from_slice(&progress.round.to_be_bytes());
    data.push(u8::from(progress.is_complete));
    for (first, count) in progress.missing.iter().take(PROGRESS_RANGES_MAX) {
        data.extend_from_slice(&first.to_be_bytes());
        data.extend_from_slice(&count.to_be_bytes());
    }
}

fn put_receipts(data: &mut Vec<u8>, receipts: &Receipts) {
    let Receipts { nonce, epoch, mailbox, up_to, ranges } = receipts;
    put_numbers(data, [*nonce, *epoch, *mailbox, *up_to]);
    for (first, count) in ranges.iter().take(RECEIPT_RANGES_MAX) {
        data.extend_from_slice(&first.to_be_bytes());
        data.extend_from_slice(&count.to_be_bytes());
    }
}

impl Form<'_> {
    /// Room for the form behind its first bytes; more than it takes, or all but the lists of it.
    /// The capacity for its DATA. A form with ranges or a manifest may grow beyond it.
    pub(super) fn bytes_max(&self) -> usize {
        let more = match self {
            Self::Plain(bytes) | Self::Ask { payload: bytes, .. } | Self::Block { bytes, .. } => bytes.len(),
            Self::Letter(letter) => letter.payload.len(),
            Self::Custody(custody) => custody.verdicts.len() * 33,
            _ => 0,
        };
        more + 64
    }
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
        6 => Form::ProgressRequest { file: key(&mut reader)?, round: reader.u32()? },
        7 => Form::Custody(read_custody(&mut reader)?),
        8 => Form::Letter(Letter {
            epoch: reader.u64()?,
            number: positive(reader.u64()?)?,
            least: reader.u64()?,
            attempt: reader.u16()?,
            lifetime: reader.u32()?,
            payload: reader.take_rest(),
        }),
        9 => Form::Receipts(read_receipts(&mut reader)?),
        10 => Form::Refusal {
            nonce: reader.u64()?,
            epoch: reader.u64()?,
            number: reader.u64()?,
            reason: match reader.u8()? {
                0 => RefusalReason::Blocked,
                1 => RefusalReason::TooLong,
                2 => RefusalReason::NoApplication,
                _ => return Err(DecodeError::Field("reason")),
            },
        },
        _ => return Err(DecodeError::Kind),
    };
    reader.finish()?;
    Ok(form)
}

fn key(reader: &mut Reader<'_>) -> Result<Key, DecodeError> {
    reader.array().map(Key::from_bytes)
}

fn positive(number: u64) -> Result<u64, DecodeError> {
    if number == 0 { Err(DecodeError::Field("number")) } else { Ok(number) }
}

fn read_custody(reader: &mut Reader<'_>) -> Result<Custody, DecodeError> {
    let flag = reader.u8()?;
    if flag > Custody::PONG {
        return Err(DecodeError::Field("flag"));
    }
    let mut verdicts = Vec::new();
    while reader.remaining() > 0 && verdicts.len() < VERDICTS_MAX {
        let seen = SeenKey::from_bytes(reader.array()?);
        verdicts.push((
            seen,
            match reader.u8()? {
                0 => Verdict::Held,
                1 => Verdict::Delivered,
                2 => Verdict::Full,
                3 => Verdict::Unable,
                _ => return Err(DecodeError::Field("verdict")),
            },
        ));
    }
    Ok(Custody { flag, verdicts })
}

fn read_receipts(reader: &mut Reader<'_>) -> Result<Receipts, DecodeError> {
    let (nonce, epoch, mailbox, up_to) = (reader.u64()?, reader.u64()?, reader.u64()?, reader.u64()?);
    let mut ranges = Vec::new();
    while reader.remaining() > 0 && ranges.len() < RECEIPT_RANGES_MAX {
        ranges.push((reader.u64()?, reader.u32()?));
    }
    Ok(Receipts { nonce, epoch, mailbox, up_to, ranges })
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
    fn a_displayed_file_name_is_never_a_path() {
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
