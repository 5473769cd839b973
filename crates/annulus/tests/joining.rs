//! Why a node is not in its group, on real sockets: each reason has its own error.

use std::net::IpAddr;
use std::time::Duration;

use annulus::core::swim::Preset;
use annulus::{Builder, JoinError, Node, StartError};

/// It guards against hanging; nothing is measured by it.
const PATIENCE: Duration = Duration::from_secs(60);

fn node(block: u8, number: u8) -> Builder {
    let bind = IpAddr::from([127, 68, block, number]);
    Node::builder().name(format!("node {number}")).bind(bind).preset(Preset::Local)
}

/// Asks until the reason is the wanted one: the first tries may not have been answered yet.
async fn until(node: &Node, is_it: impl Fn(&Result<(), JoinError>) -> bool) -> Result<(), JoinError> {
    let reason = async {
        let mut events = node.events();
        loop {
            let joined = node.joined(Duration::ZERO).await;
            if is_it(&joined) {
                return joined;
            }
            events.next().await.expect("it runs");
        }
    };
    tokio::time::timeout(PATIENCE, reason).await.expect("it learns why in time")
}

#[tokio::test]
async fn a_seed_of_another_ring_gives_another_error_than_a_dead_one() {
    let red = node(1, 1).ring("red").members().start().await.unwrap();
    let blue = node(1, 2).ring("blue").join(["127.68.1.1"]).members().start().await.unwrap();
    let reason = until(&blue, |joined| matches!(joined, Err(JoinError::WrongRing { .. }))).await.unwrap_err();
    assert_eq!(reason, JoinError::WrongRing { at: "127.68.1.1:7946".parse().unwrap() });
    assert!(reason.to_string().contains("same ring name"), "{reason}");
    for node in [&red, &blue] {
        assert_eq!(node.members().unwrap().member_count().await.unwrap(), 1, "nobody came in");
    }
}

#[tokio::test]
async fn both_members_with_one_name_get_an_error() {
    let red = node(2, 1).name("twin").members().start().await.unwrap();
    let blue = node(2, 2).name("twin").join(["127.68.2.1"]).members().start().await.unwrap();
    let is_taken = |joined: &Result<(), JoinError>| matches!(joined, Err(JoinError::NameTaken { .. }));
    for (node, other) in [(&blue, "127.68.2.1:7946"), (&red, "127.68.2.2:7946")] {
        let JoinError::NameTaken { name, at } = until(node, is_taken).await.unwrap_err() else {
            panic!("it is taken")
        };
        assert_eq!((name.as_str(), at.to_string().as_str()), ("twin", other));
    }
}

#[tokio::test]
async fn a_node_that_ends_while_it_waits_gives_an_error() {
    let node = node(3, 2).join(["127.68.3.1"]).members().start().await.unwrap();
    let (joined, _) = tokio::join!(node.joined(PATIENCE), node.stop());
    assert_eq!(joined, Err(JoinError::Stopped));
}

#[tokio::test]
async fn a_host_name_leads_to_a_member() {
    // `localhost` is 127.0.0.1, so the seed has a port that no other test uses there.
    let seed = node(4, 1).bind([127, 0, 0, 1]).members_with(|members| members.bind.set_port(17_946));
    let seed = seed.start().await.unwrap();
    let blue = node(4, 2).join(["localhost:17946"]).members().start().await.unwrap();
    tokio::time::timeout(PATIENCE, blue.joined(PATIENCE)).await.unwrap().unwrap();
    assert_eq!(blue.members().unwrap().members().await.unwrap().len(), 2);
    seed.stop().await;
}

#[tokio::test]
async fn an_advertised_address_is_the_one_that_others_use() {
    let red = node(5, 1).members().route().start().await.unwrap();
    let blue = node(5, 2).bind([0, 0, 0, 0]).advertise([127, 68, 5, 2]).join(["127.68.5.1"]);
    let blue = blue.members_with(|members| members.bind.set_port(17_947));
    let blue = blue.route_with(|route| route.bind.set_port(17_948)).start().await.unwrap();
    tokio::time::timeout(PATIENCE, blue.joined(PATIENCE)).await.unwrap().unwrap();
    let seen = red.members().unwrap().by_id(blue.identity().id()).await.unwrap().expect("red knows blue");
    assert_eq!(seen.addr, Some("127.68.5.2:17947".parse().unwrap()));
    let owner = red.route().unwrap().owner(blue.identity().id()).await.unwrap();
    assert_eq!(owner.addr, "127.68.5.2:17948".parse().unwrap());
}

#[tokio::test]
async fn errors_of_a_start_name_their_cause() {
    let unreachable = node(6, 1).bind([0, 0, 0, 0]).members().start().await.unwrap_err();
    assert!(matches!(unreachable, StartError::Members(_)), "{unreachable}");
    let without = node(6, 1).join(["127.68.6.2"]).route().start().await.unwrap_err();
    assert!(matches!(without, StartError::JoinWithoutMembers), "{without}");
    let six = Node::builder().bind(std::net::Ipv6Addr::LOCALHOST).mesh().start().await.unwrap_err();
    assert!(matches!(six, StartError::MeshNeedsIpv4), "{six}");
    let first = node(6, 2).members().start().await.unwrap();
    let second = node(6, 2).members().start().await.unwrap_err();
    assert!(second.to_string().contains("another process uses 127.68.6.2:7946"), "{second}");
    first.stop().await;
    node(6, 2).members().start().await.expect("the port is free after the stop");
    for error in [unreachable.to_string(), without.to_string(), six.to_string(), second.to_string()] {
        assert!(!error.contains("--"), "the library knows no flags: {error}");
    }
}
