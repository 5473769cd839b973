//! The store's thread: takes operations, groups them, answers them.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use tokio::sync::mpsc::UnboundedSender;

use super::{Answer, Database, Request, Work};

/// The most operations that share one commit.
const GROUP_MAX: usize = 256;
/// A group is closed when it has this many bytes.
const GROUP_BYTES: usize = 4 * 1024 * 1024;
/// A group waits an eighth of the time that the last one took, and no longer than this, for those that were in it.
const BATCH_WAIT_MAX: Duration = Duration::from_millis(2);
/// Writes that need not be durable are synced after this much time without writes. It need not be; but the database
/// frees no page before, and a user who pulls the plug a minute later expects it to be there.
const QUIET: Duration = Duration::from_secs(1);

/// Starts the thread. It ends when the other end of `requests` is dropped. It drops `answers` after the database is
/// closed.
pub(super) fn start(
    database: Database,
    requests: Receiver<Request>,
    answers: UnboundedSender<Answer>,
) -> io::Result<()> {
    let run = move || {
        run(database, &requests, &answers);
        drop(answers);
    };
    std::thread::Builder::new().name("annulus-store".to_owned()).spawn(run).map(drop)
}

fn run(mut database: Database, requests: &Receiver<Request>, answers: &UnboundedSender<Answer>) {
    let mut group = Vec::new();
    let mut pace = Pace::default();
    loop {
        let first = if database.is_synced() {
            requests.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            requests.recv_timeout(QUIET)
        };
        match first {
            Ok(first) => gather(first, requests, &pace, &mut group),
            Err(RecvTimeoutError::Timeout) => database.sync(),
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if group.is_empty() {
            continue;
        }
        let begin = Instant::now();
        let outcomes = database.run(group.iter().map(|request| &request.work));
        if group.iter().any(is_durable) {
            pace.note(group.len(), begin.elapsed());
        }
        for (Request { op, .. }, outcome) in group.drain(..).zip(outcomes) {
            // The send fails if the driver was dropped. The operation is done nevertheless.
            let _ = answers.send(Answer { op, outcome });
        }
    }
    if !database.is_synced() {
        database.sync();
    }
}

/// Everything that waits, up to the limits of a group. Clients that were just answered write again soon. A sync that
/// does not wait for them makes them wait for the next one, which halves the throughput.
fn gather(first: Request, requests: &Receiver<Request>, pace: &Pace, group: &mut Vec<Request>) {
    let (mut bytes, mut until) = (first.bytes, None);
    group.push(first);
    while group.len() < GROUP_MAX && bytes < GROUP_BYTES {
        let next = match requests.try_recv() {
            Ok(next) => next,
            Err(_) if group.len() < pace.ops && group.iter().any(is_durable) => {
                let until = *until.get_or_insert_with(|| Instant::now() + pace.batch_wait);
                let Ok(next) = requests.recv_timeout(until.saturating_duration_since(Instant::now())) else {
                    return;
                };
                next
            }
            Err(_) => return,
        };
        bytes += next.bytes;
        group.push(next);
    }
}

fn is_durable(request: &Request) -> bool {
    matches!(request.work, Work::Write { durable: true, .. })
}

/// Statistics of the last durable groups.
#[derive(Debug, Default)]
struct Pace {
    /// The expected number of operations of a group.
    ops: usize,
    /// The wait for them.
    batch_wait: Duration,
}

impl Pace {
    fn note(&mut self, ops: usize, took: Duration) {
        self.ops = ops.max(self.ops - self.ops.div_ceil(4));
        self.batch_wait = (took / 8).min(BATCH_WAIT_MAX);
    }
}
