//! The known nodes: announced to at the start, stored, and written as the document's file.

use super::desk::{Desk, SECOND, config, here, ip};
use crate::w3w::{Command, Config, KnownNode, known_nodes_from_json, known_nodes_to_json};

fn known(first: u8, seen_at: u64) -> KnownNode {
    KnownNode { ip: ip(first), seen_at }
}

#[test]
fn m_1_the_known_nodes_get_a_here_at_a_cold_start() {
    let desk = Desk::new(&Config { known: vec![known(2, 5), known(3, 9)], ..config() });
    let told: Vec<_> = desk.told().into_iter().map(|(_, to)| to).collect();
    assert_eq!(told, ["127.0.7.3:22000", "127.0.7.2:22000"]);
}

#[test]
fn m_2_the_known_nodes_survive_a_restart() {
    let mut desk = Desk::new(&config());
    desk.call(2);
    desk.rig.advance(2 * SECOND);
    let again = desk.restart(&config());
    assert_eq!(again.told().len(), 1);
    assert!(again.has("Send 0:0 to 127.0.7.2:22000"));
}

#[test]
fn m_3_a_handshake_adds_to_the_known_nodes_and_a_bare_here_does_not() {
    let mut desk = Desk::new(&config());
    desk.hear(&here(9)).unwrap();
    desk.call(2);
    desk.dial(3);
    desk.rig.command(Command::Known);
    let line = desk.rig.log.iter().find(|line| line.contains("Reply 1 Known")).unwrap().clone();
    assert!(
        line.contains("127.0.7.2") && line.contains("127.0.7.3") && !line.contains("127.0.7.9"),
        "{line}"
    );
    desk.rig.advance(SECOND);
    assert!(desk.has("KnownNodesChanged { nodes: 2 }"));
}

#[test]
fn m_4_the_known_nodes_are_sorted_latest_first() {
    let mut desk =
        Desk::new(&Config { known: vec![known(2, 5), known(3, 9), known(4, u64::MAX)], ..config() });
    desk.rig.command(Command::Known);
    let line = desk.rig.log.last().unwrap().clone();
    let at = |part: &str| line.find(part).unwrap();
    assert!(at("127.0.7.4") < at("127.0.7.3") && at("127.0.7.3") < at("127.0.7.2"));
    assert!(line.contains("seen_at: 1700000000"), "a time to come is cut to now (MA-55): {line}");
}

#[test]
fn ma_55_times_are_read_in_every_form_and_a_broken_file_is_an_error() {
    let text = r#"{"10.0.0.1": "1700000000", "10.0.0.2": 5, "10.0.0.3": "2023-11-14T22:13:21Z",
        "10.0.0.4": "2023-11-15T00:13:22.5+02:00", "::1": "1"}"#;
    let nodes = known_nodes_from_json(text).unwrap();
    let times: Vec<u64> = nodes.iter().map(|node| node.seen_at).collect();
    assert_eq!(times, [1_700_000_002, 1_700_000_001, 1_700_000_000, 5], "IPv6 is left out (MA-59)");
    assert_eq!(known_nodes_from_json(&known_nodes_to_json(&nodes)).unwrap(), nodes);
    for broken in
        ["", "[]", "{\"10.0.0.1\": ", r#"{"10.0.0.1": "soon"}"#, r#"{"10.0.0.1": "2023-13-01T00:00:00Z"}"#]
    {
        assert!(known_nodes_from_json(broken).is_err(), "{broken}");
    }
}

#[test]
fn ma_56_the_list_is_bounded_and_the_oldest_is_dropped() {
    let nodes = (1..=9).map(|first| known(first, u64::from(first))).collect();
    let desk = Desk::new(&Config { known: nodes, known_max: 4, ..config() });
    assert_eq!(desk.told().len(), 4);
    assert!(desk.has("127.0.7.9") && !desk.has("127.0.7.5"));
}
