//! An own protocol beside the services: it sends a greeting to every member that joins, from its own socket.
//!
//! The machine gets the events of `members` through the node, and requests the addresses of new members. The simulator
//! runs the same machine. Run it with `cargo run -p annulus --example own_protocol`.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::net::SocketAddr;
use std::time::Duration;

use annulus::Node;
use annulus::core::node::{Command, Companion, Event, Hearing, PartCommand, PartEvent, Reply};
use annulus::core::{
    Bound, Endpoints, Id, Instant, Machine, Now, Outbox, Refusal, RequestId, Service, Socket, SocketId, swim,
};
use annulus::services::MEMBERS;

const GREETER: Service = Service(128);
const UDP: SocketId = SocketId::new(0);
const PORT: u16 = 9_128;

/// Greets members, and counts the greetings that it gets.
#[derive(Clone, Debug, PartialEq)]
struct Greeter {
    bind: SocketAddr,
    joined: Vec<Id>,
    greeted: usize,
}

#[derive(Clone, Debug, serde::Serialize)]
struct Greeted {
    from: SocketAddr,
}

impl Machine for Greeter {
    type Command = ();
    type Reply = usize;
    type Event = Greeted;

    fn endpoints(&self) -> Endpoints {
        let socket = Socket { id: UDP, name: "greeter/udp", bind: self.bind, broadcast: Vec::new() };
        Endpoints { sockets: vec![socket], ..Endpoints::default() }
    }

    fn handle_start(&mut self, _: Now, _: &Bound, _: &mut Outbox<'_, Self>) {}

    fn handle_datagram(
        &mut self,
        _: Now,
        _: SocketId,
        from: SocketAddr,
        bytes: &[u8],
        out: &mut Outbox<'_, Self>,
    ) -> Result<(), Refusal> {
        if bytes != b"hello" {
            return Err(Refusal::Reject("no greeting"));
        }
        self.greeted += 1;
        out.event(Greeted { from });
        Ok(())
    }

    fn handle_command(&mut self, _: Now, request: RequestId, (): (), out: &mut Outbox<'_, Self>) {
        out.reply(request, self.greeted);
    }

    fn handle_timeout(&mut self, _: Now, _: &mut Outbox<'_, Self>) {}

    fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        None
    }
}

impl Companion for Greeter {
    fn hears(event: &Event) -> Hearing {
        let is_wanted = matches!(event.event, PartEvent::Members(swim::Event::MemberJoined { .. }));
        if is_wanted { Hearing::Shares } else { Hearing::Ignores }
    }

    fn handle_event(&mut self, _: Now, event: &Event, _: &mut Outbox<'_, Self>) {
        if let PartEvent::Members(swim::Event::MemberJoined { id, .. }) = &event.event {
            self.joined.push(*id);
        }
    }

    fn take_commands(&mut self) -> Vec<(RequestId, Command)> {
        let asks = usize::from(!self.joined.is_empty());
        let command = PartCommand::Members(swim::Command::Members { all: false });
        vec![(RequestId(0), Command { service: MEMBERS, command }); asks]
    }

    fn handle_reply(&mut self, _: Now, _: RequestId, reply: Reply, out: &mut Outbox<'_, Self>) {
        let Reply::Members(swim::Reply::Members(members)) = reply else { return };
        for member in members.iter().filter(|member| self.joined.contains(&member.node.id)) {
            if let Some(addr) = member.node.addrs.first() {
                out.send(UDP, SocketAddr::new(addr.ip(), PORT), b"hello");
            }
        }
        self.joined.clear();
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let node = |ip: [u8; 4]| {
        let greeter = Greeter { bind: (ip, PORT).into(), joined: Vec::new(), greeted: 0 };
        Node::builder().bind(ip).members().with(GREETER, greeter)
    };
    let red = node([127, 0, 10, 1]).start().await?;
    let blue = node([127, 0, 10, 2]).join(["127.0.10.1"]).start().await?;
    blue.joined(Duration::from_secs(60)).await?;
    let greeter = blue.companion::<Greeter>(GREETER);
    let mut events = greeter.events();
    if greeter.command(()).await? == 0 {
        let greeted = events.next().await.ok_or("blue has ended")?;
        println!("blue was greeted from {}", greeted.from);
    }
    println!("blue was greeted {} times", greeter.command(()).await?);
    red.stop().await;
    blue.stop().await;
    Ok(())
}
