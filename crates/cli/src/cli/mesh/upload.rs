//! Sending a file: its blocks are hashed, then given to the agent one by one as the recipient asks for them. Neither
//! this program nor the agent holds more than a few of them.

use std::fs::File;
use std::io::{IsTerminal as _, Read, Seek as _, SeekFrom, Write as _};
use std::time::{Duration, Instant};

use annulus::core::w3w::{FILE_BLOCKS_MAX, Key};
use anyhow::{Context as _, bail};
use serde_json::{Value, json};

use super::send::state_of;
use crate::cli::client::{Client, Events, escaped, is_refused};
use crate::cli::output::{Output, plain};

/// The length of a block: 65536 of them are nearly 64 GiB. The database gives a value room in powers of two, and there is
/// something around a block, so that a whole MiB would take two.
const BLOCK_BYTES: usize = (1 << 20) - (1 << 12);
/// The pause when the agent is busy.
const BUSY_PAUSE: Duration = Duration::from_millis(200);

/// Sends a file and waits until the recipient has all of it.
pub(super) fn send(
    to: &str,
    mut file: File,
    name: &str,
    client: &Client,
    output: &Output,
) -> anyhow::Result<()> {
    let mut bar = Bar::new(output);
    let (size, blocks) = hash(&mut file, &mut bar)?;
    // Listening begins first, so that nothing can be wanted unseen.
    let mut events = client.events(None)?;
    let offer = json!({
        "to": to, "name": name, "size": size, "block_bytes": BLOCK_BYTES,
        "blocks": blocks.iter().map(ToString::to_string).collect::<Vec<_>>(),
    });
    let mut answer = client.post("/v1/mesh/files", &offer)?;
    let outcome = supply(&answer, &mut file, client, &mut events, &mut bar);
    bar.end();
    outcome.context("the file is not there yet; the same command goes on where this one stopped")?;
    let number = answer["number"].as_u64().unwrap_or(u64::MAX);
    let state = state_of(client, number)?;
    if state != "delivered" {
        bail!(
            "{name} was not received ({state}): it was dropped here, or nothing was heard from the recipient for as long as \
             mesh.expiry; the same command goes on where this one stopped"
        );
    }
    let text = answer["file"].as_str().unwrap_or_default().to_owned();
    answer["state"] = state.into();
    answer["size"] = size.into();
    output.done(&answer, &format!("{} was received, {size} bytes: {text}", plain(name)));
    Ok(())
}

/// How long a file is, and the hash of every block of it.
fn hash(file: &mut File, bar: &mut Bar) -> anyhow::Result<(u64, Vec<Key>)> {
    let total = file.metadata().context("cannot read the file; check its owner")?.len();
    let (mut size, mut blocks, mut block) = (0, Vec::new(), vec![0; BLOCK_BYTES]);
    loop {
        let length = fill(file, &mut block)?;
        if length == 0 {
            return Ok((size, blocks));
        }
        if blocks.len() == FILE_BLOCKS_MAX {
            bail!("a file has at most {} bytes: split it", FILE_BLOCKS_MAX * BLOCK_BYTES);
        }
        size += length as u64;
        blocks.push(Key::of(&block[..length]));
        bar.show("reading", size, total);
    }
}

/// Gives blocks as they are wanted until the file is no longer under way.
fn supply(
    answer: &Value,
    file: &mut File,
    client: &Client,
    events: &mut Events,
    bar: &mut Bar,
) -> anyhow::Result<()> {
    let key = answer["file"].as_str().unwrap_or_default();
    let to = answer["to"].as_str().unwrap_or_default();
    let path = format!("/v1/mesh/files/{}?to={}", escaped(key), escaped(to));
    let is_ours = |event: &Value| {
        let is_news = ["block_wanted", "file_progressed", "file_delivered", "file_given_up"];
        event["file"] == key && is_news.iter().any(|news| event["event"] == *news)
    };
    let mut block = vec![0; BLOCK_BYTES];
    loop {
        let status = match client.get(&path) {
            Err(error) if is_refused(&error, "no_such_file") => return Ok(()),
            status => status?,
        };
        let size = status["size"].as_u64().unwrap_or_default();
        let done = status["done"].as_u64().unwrap_or_default() * BLOCK_BYTES as u64;
        bar.show("sending", done.min(size), size);
        let wanted: Vec<u64> =
            status["wanted"].as_array().into_iter().flatten().filter_map(Value::as_u64).collect();
        if wanted.is_empty() {
            events.wait(is_ours)?;
        }
        for index in wanted {
            file.seek(SeekFrom::Start(index * BLOCK_BYTES as u64)).context("cannot read the file")?;
            let length = fill(file, &mut block)?;
            let path = format!("/v1/mesh/files/{}/blocks/{index}?to={}", escaped(key), escaped(to));
            match client.put(&path, &block[..length]) {
                Err(error) if is_refused(&error, "queue_full") => {
                    std::thread::sleep(BUSY_PAUSE);
                    break;
                }
                Err(error) if is_refused(&error, "no_such_file") => break,
                given => drop(given?),
            }
        }
    }
}

/// Reads until the block is full or the file ends.
fn fill(file: &mut File, block: &mut [u8]) -> anyhow::Result<usize> {
    let mut length = 0;
    while length < block.len() {
        match file.read(&mut block[length..]) {
            Ok(0) => break,
            Ok(read) => length += read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error).context("cannot read the file; check its owner"),
        }
    }
    Ok(length)
}

/// A progress bar on standard error, if that is a terminal.
struct Bar {
    is_shown: bool,
    begin: Instant,
    last: Option<Instant>,
    /// Where the present phase began: its name and how much was done then.
    phase: (&'static str, u64),
}

/// How often the bar is drawn at most, and how wide it is.
const DRAW_EVERY: Duration = Duration::from_millis(100);
const WIDTH: usize = 30;

impl Bar {
    fn new(output: &Output) -> Self {
        let is_shown = !output.json && std::io::stderr().is_terminal();
        Self { is_shown, begin: Instant::now(), last: None, phase: ("", 0) }
    }

    fn show(&mut self, phase: &'static str, done: u64, size: u64) {
        if self.phase.0 != phase {
            (self.phase, self.begin, self.last) = ((phase, done), Instant::now(), None);
        }
        let is_time = self.last.is_none_or(|last| last.elapsed() >= DRAW_EVERY) || done == size;
        if self.is_shown && is_time {
            self.last = Some(Instant::now());
            let seconds = self.begin.elapsed().as_secs_f64();
            let line = line(phase, done, size, (done - self.phase.1.min(done)) as f64 / seconds.max(0.001));
            // A closed standard error is ignored.
            let _ = write!(std::io::stderr(), "\r{line}\x1b[K");
        }
    }

    fn end(&mut self) {
        if self.is_shown {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

/// One line: how far it is, and how fast.
fn line(phase: &str, done: u64, size: u64, rate: f64) -> String {
    let mebi = |bytes: f64| bytes / f64::from(1 << 20);
    let part = if size == 0 { 1.0 } else { done as f64 / size as f64 };
    let full = (part * WIDTH as f64) as usize;
    format!(
        "{phase} [{}{}] {:3.0} %  {:.1} of {:.1} MiB  {:.1} MiB/s",
        "#".repeat(full),
        " ".repeat(WIDTH - full.min(WIDTH)),
        part * 100.0,
        mebi(done as f64),
        mebi(size as f64),
        mebi(rate),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_shows_how_far_and_how_fast() {
        let bar = line("sending", 256 << 20, 1 << 30, 52.0 * 1024.0 * 1024.0);
        assert_eq!(bar, "sending [#######                       ]  25 %  256.0 of 1024.0 MiB  52.0 MiB/s");
        assert!(line("sending", 0, 0, 0.0).contains("100 %"));
    }

    #[test]
    fn a_file_is_cut_into_blocks_and_every_block_is_hashed() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; BLOCK_BYTES + 1]).unwrap();
        file.rewind().unwrap();
        let (size, blocks) = hash(&mut file, &mut Bar::new(&Output::new(true))).unwrap();
        assert_eq!(size, BLOCK_BYTES as u64 + 1);
        assert_eq!(blocks, [Key::of(&[7; BLOCK_BYTES]), Key::of(&[7])]);
    }
}
