//! A presence board: which members are present, their status, and since when the others are gone. Run it with
//! `cargo run -p annulus --example presence`.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::time::Duration;

use annulus::core::swim::Preset;
use annulus::{MemberEvent, Node};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let node = |name: &'static str, ip: u8, status: &'static str| {
        let node = Node::builder().name(name).bind([127, 0, 15, ip]).preset(Preset::Local);
        node.tag("status", status).join((ip > 1).then_some("127.0.15.1")).members().start()
    };
    let board = node("board", 1, "shows who is in").await?;
    let members = board.members().ok_or("the board runs members")?;
    let mut events = members.member_events();
    let ada = node("ada", 2, "at her desk").await?;
    let ben = node("ben", 3, "on the phone").await?;
    for person in [&ada, &ben] {
        person.joined(Duration::from_secs(60)).await?;
    }
    ben.members().ok_or("ben runs members")?.broadcast("lunch at noon?").await?;

    let (mut joined, mut said) = (0, 0);
    while joined < 2 || said < 1 {
        match events.next().await.ok_or("the board has ended")? {
            MemberEvent::Joined(member) => {
                println!("{} is in: {}", member.name, member.tags["status"]);
                joined += 1;
            }
            MemberEvent::Said { by, data } => {
                println!("{} says to all: {}", by.name, String::from_utf8_lossy(&data));
                said += 1;
            }
            _ => {}
        }
    }
    ada.stop().await;
    while !matches!(events.next().await, Some(MemberEvent::Left(member)) if member.name == "ada") {}
    for member in members.snapshot(true).await? {
        println!("{:8} {:?} since {:?}", member.name, member.state, member.since);
    }
    ben.stop().await;
    board.stop().await;
    Ok(())
}
