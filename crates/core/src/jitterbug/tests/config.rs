//! The settings, and the combinations that are invalid.

use super::*;

#[test]
fn j_111_all_constants_can_be_set_and_are_checked_against_each_other() {
    let cases = [
        (Config { addr: "0.0.0.0".parse().unwrap(), ..config() }, "token.addr is 0.0.0.0"),
        (Config { addr: "224.0.0.1".parse().unwrap(), ..config() }, "token.addr is 224.0.0.1"),
        (Config { addr: "fe80::1".parse().unwrap(), ..config() }, "token.addr is fe80::1"),
        (Config { udp_port: 0, ..config() }, "token.udp_port is 0"),
        (Config { host_id: Some(host(0)), ..config() }, "token.host_id is 0"),
        (Config { tr_interval: Duration::ZERO, ..config() }, "is zero"),
        (Config { tr_count: 0, ..config() }, "token.tr_count is 0"),
        (Config { loose_prob_base: 1.0, ..config() }, "token.loose_prob_base is 1"),
        (Config { loose_prob_base: f64::NAN, ..config() }, "token.loose_prob_base is NaN"),
        (Config { renew_timeout: 4 * SECOND, ..config() }, "at least 4.2s"),
        (Config { pace: SECOND, nodes_expected: 20, ..config() }, "a ring of 20 nodes needs at least 40s"),
        (Config { add_set_max: 0, ..config() }, "a limit of token"),
    ];
    for (config, part) in cases {
        let error = Jitterbug::new(&config, Ledger::new(), [0; 32]).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    for preset in [Config::lan(), Config::local()] {
        Jitterbug::new(&Config { addr: ip(1), ..preset }, Ledger::new(), [0; 32]).unwrap();
    }
}

#[test]
fn a_subnet_is_its_first_bits() {
    let allows = |net: &str, bits, ip: &str| {
        Config { allow: vec![(net.parse().unwrap(), bits)], ..config() }.allows(ip.parse().unwrap())
    };
    assert!(allows("10.1.0.0", 16, "10.1.255.3") && !allows("10.1.0.0", 16, "10.2.0.1"));
    assert!(allows("0.0.0.0", 0, "1.2.3.4") && !allows("0.0.0.0", 0, "::1"));
    assert!(allows("2001:db8::", 32, "2001:db8:1::9") && !allows("10.0.0.1", 32, "10.0.0.2"));
    assert!(allows("10.0.0.0", 8, "::ffff:10.9.9.9"));
    assert!(config().allows("9.9.9.9".parse().unwrap()), "an empty list allows all");
}
