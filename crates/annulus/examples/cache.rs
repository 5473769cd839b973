//! A cache that is spread over the nodes of a group: the owner of a key stores its value. After a change of the leaf set
//! a node may own other keys. Run it with `cargo run -p annulus --example cache`.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use annulus::core::Id;
use annulus::core::pastry::{AppName, Verdict};
use annulus::{Limits, Node, Request};

type Shard = Arc<Mutex<HashMap<Id, Vec<u8>>>>;

/// A question without bytes reads; a message with bytes writes.
fn answer(shard: &Shard, request: Request) -> Verdict {
    let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
    if request.wants_answer {
        return Verdict::Answer(shard.get(&request.key).cloned().unwrap_or_default());
    }
    shard.insert(request.key, request.payload);
    Verdict::Accept
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let cache = AppName::new("cache")?;
    let (mut nodes, mut servers, mut shards) = (Vec::new(), Vec::new(), Vec::new());
    for number in 1..=4 {
        let node = Node::builder().bind([127, 0, 13, number]).join((number > 1).then_some("127.0.13.1"));
        let node = node.members().route().start().await?;
        node.joined(Duration::from_secs(60)).await?;
        let (shard, route) = (Shard::default(), node.route().ok_or("it runs route")?);
        let own = Arc::clone(&shard);
        let handler = move |request| std::future::ready(answer(&own, request));
        servers.push(route.serve(&cache, Limits::default(), handler).await?);
        shards.push(shard);
        nodes.push(node);
    }
    let (writer, reader) = (nodes[0].route().ok_or("no route")?, nodes[3].route().ok_or("no route")?);
    for number in 0..100 {
        writer.send(&cache, Id::from_text(&format!("user {number}")), format!("value {number}")).await?;
    }
    for number in 0..100 {
        let read = reader.ask(&cache, Id::from_text(&format!("user {number}")), "").await?;
        assert_eq!(read.payload, format!("value {number}").as_bytes(), "the owner keeps it");
    }
    for (node, shard) in nodes.iter().zip(&shards) {
        let values = shard.lock().unwrap_or_else(PoisonError::into_inner).len();
        println!("{} keeps {values} values", node.name());
        node.stop().await;
    }
    Ok(())
}
