//! Letters from one peer to another through a node that has custody of each: it syncs a letter before it answers `held`.
//!
//! The source has at most so many letters unanswered as a node gives to one peer (CU-14). The sink answers `delivered`
//! for what it has read. Both speak the wire by hand, so that only the node in the middle costs what a node costs.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use annulus_core::hash;
use annulus_core::w3w::{
    Body, Custody, Form, HEADER_BYTES, Here, Key, LENGTH_BYTES, Letter, Message, Nid, SeenKey, Verdict,
    decode_body, here_frame, read_form, write_form,
};
use anyhow::bail;

use super::noise;
use super::relay::{MESSAGE_BYTES, Relay, here, nid};

/// The letters, their bytes and their numbers for verdicts.
struct Letters {
    frames: Vec<Vec<u8>>,
    seen: Vec<SeenKey>,
}

/// The result of one round.
pub(super) struct Outcome {
    /// Megabytes of letters per second.
    pub(super) rate: f64,
    /// Bytes of the letters, and of the verdicts that the node wrote for them.
    pub(super) letter_bytes: usize,
    pub(super) ack_bytes: usize,
}

/// Letters through a node; `unanswered_max` bounds what the source has given and the node has not answered.
pub(super) fn mesh(mebibytes: usize, unanswered_max: usize) -> anyhow::Result<Outcome> {
    let relay = Relay::start()?;
    let (source, sink) = (peer(&relay, 2)?, peer(&relay, 3)?);
    let letters = letters(mebibytes);
    let outcome = transfer(source, sink, &letters, unanswered_max)?;
    relay.stop()?;
    Ok(outcome)
}

/// A peer that speaks custody (CU-7).
fn peer(relay: &Relay, number: u8) -> anyhow::Result<TcpStream> {
    let mut stream = relay.peer(number)?;
    let hello = |from: Nid, to: Nid| {
        Nid::from_bytes(hash(&[&b"annulus/custody/1"[..], &from.to_bytes(), &to.to_bytes()].concat()))
    };
    let own = here(number);
    stream.write_all(&here_frame(&Here { nid: hello(own.nid, Relay::nid()), at: own.at }))?;
    let Body::Here(theirs) = decode_body(&read_body(&mut stream)?)? else {
        bail!("the node greets with HERE")
    };
    anyhow::ensure!(theirs.nid == hello(Relay::nid(), own.nid), "the node speaks custody");
    Ok(stream)
}

fn letters(mebibytes: usize) -> Letters {
    let count = mebibytes * 1024 * 1024 / MESSAGE_BYTES;
    let mut letters = Letters { frames: Vec::with_capacity(count), seen: Vec::with_capacity(count) };
    for number in 0..count as u64 {
        let payload = noise(number, MESSAGE_BYTES);
        let letter =
            Letter { epoch: 1, number: number + 1, least: 1, attempt: 0, lifetime: 3600, payload: &payload };
        let data = write_form(&Form::Letter(letter));
        letters.seen.push(SeenKey::new(nid(2), nid(3), Key::of(&data)));
        letters.frames.push(Message::new(nid(2), nid(3), &data).frame().to_vec());
    }
    letters
}

fn transfer(
    source: TcpStream,
    sink: TcpStream,
    letters: &Letters,
    unanswered_max: usize,
) -> anyhow::Result<Outcome> {
    let letter_bytes: usize = letters.frames.iter().map(Vec::len).sum();
    let begin = Instant::now();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| give(source, letters, unanswered_max));
        let taken = take(sink, letters);
        // The clock stops when the sink has everything and the source has every answer.
        let ack_bytes = writer.join().map_err(|_| anyhow::anyhow!("the source panicked"))??;
        let seconds = begin.elapsed().as_secs_f64();
        taken?;
        Ok(Outcome { rate: letter_bytes as f64 / 1e6 / seconds, letter_bytes, ack_bytes })
    })
}

/// Gives all letters, and reads the answers. Returns the bytes of the answers.
fn give(source: TcpStream, letters: &Letters, unanswered_max: usize) -> anyhow::Result<usize> {
    let (mut writes, mut reads) = (source.try_clone()?, std::io::BufReader::new(source));
    reads.get_ref().set_read_timeout(Some(Duration::from_secs(30)))?;
    let (mut given, mut answered, mut ack_bytes) = (0, 0, 0);
    while answered < letters.frames.len() {
        while given < letters.frames.len() && given - answered < unanswered_max {
            writes.write_all(&letters.frames[given])?;
            given += 1;
        }
        let (custody, bytes) = read_custody(&mut reads)?;
        ack_bytes += bytes;
        for (_, verdict) in custody.verdicts {
            anyhow::ensure!(verdict == Verdict::Held || verdict == Verdict::Delivered, "{verdict:?}");
            answered += 1;
        }
    }
    Ok(ack_bytes)
}

/// Reads all letters, and answers `delivered` for those that are complete.
fn take(mut sink: TcpStream, letters: &Letters) -> anyhow::Result<()> {
    let (mut buffer, mut scan, mut complete) = (vec![0; 256 * 1024], Scan::default(), 0);
    while complete < letters.frames.len() {
        let read = sink.read(&mut buffer)?;
        anyhow::ensure!(read > 0, "only {complete} of {} letters came", letters.frames.len());
        let mut verdicts = Vec::new();
        scan.read(&buffer[..read], |number| verdicts.push((letters.seen[number - 1], Verdict::Delivered)));
        complete += verdicts.len();
        if !verdicts.is_empty() {
            let data = write_form(&Form::Custody(Custody { flag: Custody::VERDICTS, verdicts }));
            sink.write_all(Message::new(nid(3), Relay::nid(), &data).frame())?;
        }
    }
    Ok(())
}

/// Finds the numbers of letters in a stream of frames.
#[derive(Default)]
struct Scan {
    /// The first bytes of the frame, up to the number of the letter.
    head: Vec<u8>,
    /// The bytes of the frame that have not come, once the head is complete.
    left: usize,
}

/// Where the number of a letter is in its frame: after the form's sixteen bytes, its kind and the epoch.
const NUMBER_AT: usize = LENGTH_BYTES + HEADER_BYTES + 16 + 1 + 8;

impl Scan {
    fn read(&mut self, mut bytes: &[u8], mut complete: impl FnMut(usize)) {
        while !bytes.is_empty() {
            let wanted = if self.left > 0 { self.left } else { NUMBER_AT + 8 - self.head.len() };
            let (now, rest) = bytes.split_at(wanted.min(bytes.len()));
            bytes = rest;
            if self.left == 0 {
                self.head.extend_from_slice(now);
                if self.head.len() == NUMBER_AT + 8 {
                    self.left = LENGTH_BYTES + number::<4>(&self.head, 0) - self.head.len();
                }
                continue;
            }
            self.left -= now.len();
            if self.left == 0 {
                complete(number::<8>(&self.head, NUMBER_AT));
                self.head.clear();
            }
        }
    }
}

/// A big-endian number of so many bytes.
fn number<const BYTES: usize>(from: &[u8], at: usize) -> usize {
    from[at..at + BYTES].iter().fold(0, |number, byte| number << 8 | usize::from(*byte))
}

fn read_body(from: &mut impl Read) -> anyhow::Result<Vec<u8>> {
    let mut length = [0; LENGTH_BYTES];
    from.read_exact(&mut length)?;
    let mut body = vec![0; u32::from_be_bytes(length) as usize];
    from.read_exact(&mut body)?;
    Ok(body)
}

/// A frame of verdicts, and its length. Other messages of the node are skipped.
fn read_custody(from: &mut impl Read) -> anyhow::Result<(Custody, usize)> {
    loop {
        let body = read_body(from)?;
        if let Body::Message(message) = decode_body(&body)?
            && let Form::Custody(custody) = read_form(message.data())
        {
            return Ok((custody, LENGTH_BYTES + body.len()));
        }
    }
}
