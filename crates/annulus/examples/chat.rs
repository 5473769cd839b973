//! A chat without a server: a line to an offline node waits on the disk of its sender. Run it with
//! `cargo run -p annulus --example chat`.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::time::Duration;

use annulus::{MemberEvent, Node};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = std::env::temp_dir().join(format!("annulus-chat-{}", std::process::id()));
    let node = |name: &'static str, ip: u8| {
        let node = Node::builder().name(name).bind([127, 0, 14, ip]).data_dir(dir.join(name));
        node.join((ip > 1).then_some("127.0.14.1")).members().mesh()
    };
    let ada = node("ada", 1).start().await?;
    let mut events = ada.members().ok_or("ada runs members")?.member_events();
    let ben = node("ben", 2).start().await?;
    ben.joined(Duration::from_secs(60)).await?;
    while !matches!(events.next().await, Some(MemberEvent::Joined(_))) {}
    let mesh = ada.mesh().ok_or("ada runs mesh")?;

    // Ben is there, then away, then back: each line reaches him once.
    mesh.send("ben", "are you there?").await?.delivered().await?;
    ben.stop().await;
    let later = mesh.send("ben", "call me when you are back").await?;
    println!("ada's second line is {}", later.state().await?);
    let ben = node("ben", 2).start().await?;
    later.delivered().await?;

    let mut inbox = ben.mesh().ok_or("ben runs mesh")?.inbox();
    for _ in 0..2 {
        let line = inbox.next().await.ok_or("ben has ended")?;
        let from = line.from_name().await?.unwrap_or_else(|| line.from.to_string());
        println!("{from}: {}", String::from_utf8_lossy(&line.data));
        line.accept().await?;
    }
    ada.stop().await;
    ben.stop().await;
    std::fs::remove_dir_all(dir)?;
    Ok(())
}
