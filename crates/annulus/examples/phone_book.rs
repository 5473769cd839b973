//! A phone book without a server: every name is looked up at the node that owns it. Run it with
//! `cargo run --example phone_book`.
//!
//! Five nodes on loopback addresses form a ring. An entry is a message to the owner of the name, a look-up a question to
//! it. Every node on the path counts the messages that pass, as `forward` allows.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use annulus::core::Id;
use annulus::core::pastry::{AppName, Application, Config, Forward, Passing};
use annulus::{Inbox, Options, Router};

/// Counts the messages that pass a node.
#[derive(Default)]
struct Passed(AtomicUsize);

impl Application for Passed {
    fn forward(&self, _: &Passing<'_>) -> Forward {
        self.0.fetch_add(1, Ordering::Relaxed);
        Forward::Continue
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let app = AppName::new("phone book")?;
    let passed = Arc::new(Passed::default());
    let mut nodes: Vec<Router> = Vec::new();
    for number in 1..=5_u8 {
        let config = Config {
            id: Id::from_uuid([number; 16]),
            bind: format!("127.0.0.{number}:0").parse()?,
            seeds: nodes.first().map(Router::addr).into_iter().collect(),
            ..Config::default()
        };
        let application: Arc<dyn Application> = passed.clone();
        let node = Router::start_with(config, vec![(app.clone(), application)], Options::default())?;
        node.joined().await?;
        tokio::spawn(keep(node.inbox(&app).await?));
        nodes.push(node);
    }

    for (name, number) in [("Ada", "1815"), ("Grace", "1906"), ("Barbara", "1939")] {
        let entry = format!("{name}={number}");
        let kept = nodes[0].route(&app, Id::from_text(name), entry).await?;
        println!("{name} is kept at {} after {} steps", kept.by.addr, kept.hops);
    }
    for name in ["Barbara", "Ada", "Nobody"] {
        let answer = nodes[4].ask(&app, Id::from_text(name), name).await?;
        println!("{name}: {}", String::from_utf8_lossy(&answer.payload));
    }
    println!("{} times a message passed a node", passed.0.load(Ordering::Relaxed));
    Ok(())
}

/// The part of the book that a node owns.
async fn keep(mut inbox: Inbox) {
    let mut book = BTreeMap::new();
    while let Some(message) = inbox.next().await {
        let text = String::from_utf8_lossy(&message.payload).into_owned();
        let settled = if message.wants_answer {
            message.answer(book.get(&text).map_or("not in the book", String::as_str)).await
        } else if let Some((name, number)) = text.split_once('=') {
            book.insert(name.to_owned(), number.to_owned());
            message.accept().await
        } else {
            message.refuse("not an entry").await
        };
        // The sender may have timed out.
        drop(settled);
    }
}
