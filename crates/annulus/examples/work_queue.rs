//! A work queue without a broker: every job goes to the owner of its key, so jobs of one customer go to one node. A job
//! that is reported as delivered was processed. Run it with `cargo run -p annulus --example work_queue`.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::time::Duration;

use annulus::core::Id;
use annulus::core::pastry::{AppName, Verdict};
use annulus::{Limits, Node, Request};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let jobs = AppName::new("jobs")?;
    let (mut nodes, mut workers) = (Vec::new(), Vec::new());
    for number in 1..=3 {
        let node = Node::builder().name(format!("worker {number}")).bind([127, 0, 11, number]);
        let node = node.join((number > 1).then_some("127.0.11.1")).members().route().start().await?;
        node.joined(Duration::from_secs(60)).await?;
        let name = node.name().to_owned();
        let work = move |job: Request| {
            println!("{name} does {}", String::from_utf8_lossy(&job.payload));
            std::future::ready(Verdict::Accept)
        };
        // At most four jobs at once; the sender of one beyond a hundred that wait tries again later.
        let limits = Limits { workers: 4, waiting: 100 };
        let route = node.route().ok_or("it runs route")?;
        // A job that is repeated after a lost acknowledgement is not worked on twice.
        workers.push(route.serve(&jobs, limits, work).remember(1000).await?);
        nodes.push(node);
    }
    let route = nodes[0].route().ok_or("it runs route")?;
    for customer in ["ada", "ben", "cleo"] {
        for job in 1..=2 {
            let key = Id::from_text(customer);
            let delivered = route.send(&jobs, key, format!("job {job} of {customer}")).await?;
            println!("job {job} of {customer} is done, after {} hops", delivered.hops);
        }
    }
    for node in &nodes {
        node.stop().await;
    }
    Ok(())
}
