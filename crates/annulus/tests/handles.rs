//! Handles of a node: messages to one member, tags, callbacks that panic, an own application of the token.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use annulus::core::jitterbug::{Answer, Application as TokenApplication, HostId, Next, Set, TenureInfo};
use annulus::core::node::Companion;
use annulus::core::pastry::{AppName, Application, Failure, Forward, Passing};
use annulus::core::swim::Preset;
use annulus::core::{
    Bound, Endpoints, Id, Instant, Machine, Now, Outbox, Refusal, RequestId, Service, SocketId,
};
use annulus::{Builder, CompanionError, MembersError, Node, RouteError, TokenError};

/// It guards against hanging; nothing is measured by it.
const PATIENCE: Duration = Duration::from_secs(60);

async fn in_time<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.expect("it is done in time")
}

fn node(block: u8, number: u8) -> Builder {
    let seed = (number > 1).then(|| format!("127.69.{block}.1"));
    let bind = IpAddr::from([127, 69, block, number]);
    Node::builder().name(format!("node {number}")).bind(bind).preset(Preset::Local).join(seed)
}

async fn two(block: u8, with: impl Fn(Builder) -> Builder) -> (Node, Node) {
    let red = with(node(block, 1)).start().await.expect("loopback can be bound");
    let blue = with(node(block, 2)).start().await.expect("loopback can be bound");
    for node in [&red, &blue] {
        in_time(node.joined(PATIENCE)).await.expect("it joins");
    }
    (red, blue)
}

#[tokio::test]
async fn a_message_to_one_member_is_accepted_or_its_sender_learns_why_not() {
    let (red, blue) = two(1, |node| node.members().route()).await;
    let (from, to) = (blue.members().unwrap(), red.members().unwrap());
    let nobody = in_time(from.send("node 1", "too early")).await.unwrap_err();
    assert!(matches!(nobody, MembersError::NotDelivered(_)), "{nobody}");
    let mut messages = to.messages().await.unwrap();
    let receive = async {
        let message = messages.next().await.expect("red runs");
        let from = message.member.as_ref().map(|member| member.name.clone());
        let data = message.data.clone();
        message.accept().await.unwrap();
        (from, data)
    };
    let (sent, received) = in_time(async { tokio::join!(from.send("node 1", "hello"), receive) }).await;
    sent.unwrap();
    assert_eq!(received, (Some("node 2".into()), b"hello".to_vec()));
    assert!(matches!(from.send("nobody", "").await, Err(MembersError::NoSuchMember)));
    let alone = node(1, 9).members().start().await.unwrap();
    let alone = alone.members().unwrap();
    assert!(matches!(alone.send("node 9", "").await, Err(MembersError::NeedsRoute)));
}

#[tokio::test]
async fn tags_are_changed_and_others_see_it() {
    let (red, blue) = two(2, |node| node.tag("role", "web").tag("zone", "north").members()).await;
    let set = BTreeMap::from([("role".to_owned(), "db".to_owned())]);
    let changed = blue.members().unwrap().change_tags(set.clone(), &["zone".into()]).await.unwrap();
    assert_eq!(changed, set);
    assert_eq!(blue.members().unwrap().tags().await.unwrap(), set);
    let (list, id) = (red.members().unwrap(), blue.identity().id());
    let mut events = list.member_events();
    in_time(async {
        while list.by_id(id).await.unwrap().is_none_or(|member| member.tags != set) {
            events.next().await.expect("red runs");
        }
    })
    .await;
    let bad = BTreeMap::from([("a=b".to_owned(), String::new())]);
    let bad = blue.members().unwrap().change_tags(bad, &[]).await.unwrap_err();
    assert!(matches!(bad, MembersError::BadTag(_)), "{bad}");
}

#[cfg(feature = "disk")]
#[tokio::test]
async fn changed_tags_outlive_the_node() {
    let dir = tempfile::tempdir().unwrap();
    let start = || node(3, 1).data_dir(dir.path()).tag("role", "web").members().start();
    let red = start().await.unwrap();
    let set = BTreeMap::from([("role".to_owned(), "db".to_owned())]);
    red.members().unwrap().change_tags(set.clone(), &[]).await.unwrap();
    red.stop().await;
    let red = start().await.expect("a stopped node has freed its data directory");
    assert_eq!(red.members().unwrap().tags().await.unwrap(), set);
}

/// Panics at messages that say so.
struct Fragile;

impl Application for Fragile {
    fn forward(&self, passing: &Passing<'_>) -> Forward {
        assert_ne!(passing.payload, b"break".as_slice(), "as the test wants it");
        Forward::Continue
    }
}

#[tokio::test]
async fn a_panic_in_forward_stops_that_message_only() {
    let app = AppName::new("fragile").unwrap();
    let node = node(4, 1).members().route().route_application(app.clone(), Arc::new(Fragile));
    let node = node.start().await.unwrap();
    in_time(node.joined(PATIENCE)).await.unwrap();
    let route = node.route().unwrap();
    let broken = in_time(route.send(&app, Id::MIN, "break")).await;
    assert!(matches!(broken, Err(RouteError::Failed(Failure::Stopped))), "{broken:?}");
    assert!(node.members().unwrap().member_count().await.is_ok(), "the node goes on");
    let whole = in_time(route.path(Id::MIN)).await;
    assert!(whole.is_ok(), "{whole:?}");
}

/// Panics at the command 0.
#[derive(Clone, Debug, PartialEq)]
struct Divider;

impl Machine for Divider {
    type Command = u32;
    type Reply = u32;
    type Event = ();

    fn endpoints(&self) -> Endpoints {
        Endpoints::default()
    }

    fn handle_start(&mut self, _: Now, _: &Bound, _: &mut Outbox<'_, Self>) {}

    fn handle_datagram(
        &mut self,
        _: Now,
        _: SocketId,
        _: SocketAddr,
        _: &[u8],
        _: &mut Outbox<'_, Self>,
    ) -> Result<(), Refusal> {
        Ok(())
    }

    fn handle_command(&mut self, _: Now, request: RequestId, by: u32, out: &mut Outbox<'_, Self>) {
        out.reply(request, 100 / by);
    }

    fn handle_timeout(&mut self, _: Now, _: &mut Outbox<'_, Self>) {}

    fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        None
    }
}

impl Companion for Divider {}

#[tokio::test]
async fn a_companion_that_panics_ends_alone() {
    const DIVIDER: Service = Service(129);
    let node = node(5, 1).members().with(DIVIDER, Divider).start().await.unwrap();
    let divider = node.companion::<Divider>(DIVIDER);
    assert_eq!(in_time(divider.command(4)).await, Ok(25));
    assert_eq!(in_time(divider.command(0)).await, Err(CompanionError::Panicked));
    assert_eq!(in_time(divider.command(4)).await, Err(CompanionError::Panicked), "it is not asked again");
    assert_eq!(node.members().unwrap().member_count().await.unwrap(), 1, "the node goes on");
    in_time(node.stop()).await;
}

/// A token that carries the longest word that any node set. A change to "panic" panics.
#[derive(Clone, Debug, Default, PartialEq)]
struct Longest {
    wished: Vec<u8>,
    changes: u64,
}

fn longer(one: &[u8], other: &[u8]) -> Vec<u8> {
    one.max(other).to_vec()
}

impl TokenApplication for Longest {
    type Change = Set;

    fn start(&mut self, _: HostId, _: Option<&[u8]>) {}

    fn initial(&mut self) -> Vec<u8> {
        Vec::new()
    }

    fn accepts(&mut self, _: &[u8]) -> bool {
        true
    }

    fn next(&mut self, _: &TenureInfo, data: &[u8]) -> Answer<Next> {
        Answer::Now(Next { data: longer(data, &self.wished), ..Next::default() })
    }

    fn merge(&mut self, own: &[u8], received: &[u8]) -> Answer<Vec<u8>> {
        Answer::Now(longer(own, received))
    }

    fn used(&mut self) -> u64 {
        self.changes
    }

    fn change(&mut self, change: Set) -> Result<u64, &'static str> {
        assert_ne!(change.key, "panic", "as the test wants it");
        self.wished = longer(&self.wished, change.key.as_bytes());
        self.changes += 1;
        Ok(self.changes)
    }

    fn last_will(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }
}

#[tokio::test]
async fn the_token_carries_the_data_of_an_own_application() {
    let with = |node: Builder| {
        node.members().token_with(|token| token.udp_port = 30_693).token_application(Longest::default())
    };
    let (red, blue) = two(6, with).await;
    let (red, blue) = (red.token().unwrap(), blue.token().unwrap());
    let panicked = in_time(red.set("panic", "null", PATIENCE)).await;
    assert!(matches!(panicked, Err(TokenError::Refused(_))), "{panicked:?}");
    in_time(red.set("zebra", "null", PATIENCE)).await.unwrap();
    let mut events = blue.events();
    in_time(async {
        while blue.data().await.unwrap() != b"zebra" {
            events.next().await.expect("blue runs");
        }
    })
    .await;
}

#[tokio::test]
async fn two_nodes_in_one_process_share_nothing() {
    let red = node(7, 1).members().route().start().await.unwrap();
    let blue = Node::builder().bind([127, 69, 8, 1]).name("other").members().route().start().await.unwrap();
    for node in [&red, &blue] {
        in_time(node.joined(PATIENCE)).await.unwrap();
    }
    assert_ne!(red.identity(), blue.identity());
    assert_eq!(red.members().unwrap().member_count().await.unwrap(), 1);
    in_time(red.stop()).await;
    assert_eq!(blue.members().unwrap().member_count().await.unwrap(), 1, "blue runs on");
    assert!(red.members().unwrap().member_count().await.is_err());
}
