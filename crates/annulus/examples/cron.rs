//! A cron job that one of several machines runs at a time: the lock decides, and the fence protects what the job changes.
//! Run it with `cargo run -p annulus --example cron`.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use annulus::{LocksError, Node};

/// A resource that refuses work under an older turn than the last one.
#[derive(Debug, Default)]
struct Report {
    fence: AtomicU64,
}

impl Report {
    fn write(&self, fence: u64, by: &str) -> bool {
        let is_new = self.fence.fetch_max(fence, Ordering::AcqRel) < fence;
        println!("{by} {} the report", if is_new { "writes" } else { "is too late for" });
        is_new
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let voters = [1, 2, 3].map(|number| ([127, 0, 12, number], 30_942).into());
    let report = Arc::new(Report::default());
    let (mut nodes, mut tasks) = (Vec::new(), Vec::new());
    for number in 1..=3 {
        let node = Node::builder().name(format!("machine {number}")).bind([127, 0, 12, number]);
        let node = node.locks(voters).start().await?;
        let (locks, name) = (node.locks().ok_or("it runs turns")?, node.name().to_owned());
        let report = Arc::clone(&report);
        tasks.push(tokio::spawn(async move {
            // Every machine wakes at the same time; each gets its turn after the other.
            let turn = locks.lock("nightly report").wait(Duration::from_secs(60)).acquire().await?;
            let written = turn.run(async { report.write(turn.fence(), &name) }).await?;
            turn.release().await;
            Ok::<bool, LocksError>(written)
        }));
        nodes.push(node);
    }
    for task in tasks {
        assert!(task.await??, "every turn has a greater fence than the one before");
    }
    for node in &nodes {
        node.stop().await;
    }
    Ok(())
}
