//! All four services in one program with three nodes: member events, a request by key, a turn, and a letter to an offline
//! node.
//!
//! Run it with `cargo run -p annulus --example all_four`.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::time::Duration;

use annulus::core::Id;
use annulus::core::pastry::{AppName, Verdict};
use annulus::core::swim::Preset;
use annulus::{Limits, MemberEvent, Node};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = std::env::temp_dir().join(format!("annulus-all-four-{}", std::process::id()));
    let node = |name: &'static str, ip: u8| {
        let node = Node::builder().name(name).bind([127, 0, 9, ip]).data_dir(dir.join(name));
        let node = node.preset(Preset::Local).join((ip > 1).then_some("127.0.9.1"));
        node.members().route().token_with(|token| token.udp_port = 30_991).mesh()
    };
    let red = node("red", 1).start().await?;
    let green = node("green", 2).start().await?;
    let mut events = green.members().ok_or("green runs members")?.member_events();
    let blue = node("blue", 3).start().await?;
    for node in [&red, &green, &blue] {
        node.joined(60 * SECOND).await?;
    }

    // Members as they come.
    let mut seen = 0;
    while seen < 2 {
        if let Some(MemberEvent::Joined(member)) = events.next().await {
            println!("{} is there, at {:?}", member.name, member.addr);
            seen += 1;
        }
    }

    // A question goes to the owner of its key.
    let app = AppName::new("colours")?;
    let mut servers = Vec::new();
    for node in [&red, &green, &blue] {
        let (route, name) = (node.route().ok_or("it runs route")?, node.name().to_owned());
        let handler = move |_request| std::future::ready(Verdict::Answer(name.clone().into_bytes()));
        servers.push(route.serve(&app, Limits::default(), handler).await?);
    }
    let route = green.route().ok_or("green runs route")?;
    let answer = route.ask(&app, Id::from_text("carrot"), "which colour?").await?;
    println!("the owner of \"carrot\" says {}", String::from_utf8_lossy(&answer.payload));

    // Work under a turn ends when the turn is lost.
    let token = blue.token().ok_or("blue runs token")?;
    let turn = token.acquire(20 * SECOND).await?;
    tokio::select! {
        () = tokio::time::sleep(SECOND / 10) => println!("worked under the turn with fence {}", turn.fence()),
        why = turn.lost() => println!("the turn was lost: {why}"),
    }
    turn.release().await;

    // Blue stops. A letter to it waits, and arrives after the restart.
    drop((token, servers.pop()));
    blue.stop().await;
    let sent = green.mesh().ok_or("green runs mesh")?.send("blue", "see you at eight").await?;
    println!("the letter is {}", sent.state().await?);
    let blue = node("blue", 3).start().await?;
    sent.delivered().await?;
    let letter = blue.mesh().ok_or("blue runs mesh")?.inbox().next().await.ok_or("blue has ended")?;
    println!("blue reads: {}", String::from_utf8_lossy(&letter.data));
    letter.accept().await?;

    for node in [&red, &green, &blue] {
        node.stop().await;
    }
    std::fs::remove_dir_all(dir)?;
    Ok(())
}
