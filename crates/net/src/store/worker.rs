//! The store's thread: takes operations, groups them, answers them.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;

use super::database::Database;
use super::{Answer, Request};

/// The most operations that share one commit.
const GROUP_MAX: usize = 256;
/// A group is closed when it has this many bytes.
const GROUP_BYTES: usize = 4 * 1024 * 1024;
/// What was written without a wish for safety is made safe after this much quiet. It need not be; but the database
/// frees no page before, and a user who pulls the plug a minute later expects it to be there.
const QUIET: Duration = Duration::from_secs(1);

/// Starts the thread. It ends when the other end of `requests` is dropped; that `answers` is dropped tells that the
/// database is closed.
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
    loop {
        let first = if database.is_synced() {
            requests.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            requests.recv_timeout(QUIET)
        };
        match first {
            Ok(first) => gather(first, requests, &mut group),
            Err(RecvTimeoutError::Timeout) => database.sync(),
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if group.is_empty() {
            continue;
        }
        let outcomes = database.run(group.iter().map(|request| &request.work));
        for (Request { op, .. }, outcome) in group.drain(..).zip(outcomes) {
            // Nobody waits for it any more: the driver was dropped. What it asked for is done nevertheless.
            let _ = answers.send(Answer { op, outcome });
        }
    }
    if !database.is_synced() {
        database.sync();
    }
}

/// Everything that waits, up to the limits of a group.
fn gather(first: Request, requests: &Receiver<Request>, group: &mut Vec<Request>) {
    let mut bytes = first.bytes;
    group.push(first);
    while group.len() < GROUP_MAX && bytes < GROUP_BYTES {
        let Ok(next) = requests.try_recv() else { return };
        bytes += next.bytes;
        group.push(next);
    }
}
