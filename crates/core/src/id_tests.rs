use proptest::prelude::*;

use super::*;

const BASES: [Base; 4] = [Base::B1, Base::B2, Base::B4, Base::B8];

#[test]
fn p_1_an_id_is_128_bits_written_as_32_hex_digits() {
    let id: Id = "00112233445566778899aabbccddeeff".parse().unwrap();
    assert_eq!(id.number(), 0x0011_2233_4455_6677_8899_aabb_ccdd_eeff);
    assert_eq!(id.to_string(), "00112233445566778899aabbccddeeff");
    assert_eq!(id.short().to_string(), "00112233");
    assert_eq!(format!("{:>10}", id.short()), "  00112233");
    assert_eq!("00112233445566778899AABBCCDDEEFF".parse(), Ok(id));
    assert_eq!(Id::from_bytes(id.to_bytes()), id);
    assert_eq!(serde_json::to_string(&id).unwrap(), "\"00112233445566778899aabbccddeeff\"");
}

#[test]
fn an_invalid_id_is_refused_with_a_reason() {
    assert_eq!("12".parse::<Id>(), Err(ParseIdError::Length(2)));
    assert_eq!("".parse::<Id>(), Err(ParseIdError::Length(0)));
    assert_eq!("g0112233445566778899aabbccddeeff".parse::<Id>(), Err(ParseIdError::Digit('g')));
    assert_eq!("+0112233445566778899aabbccddeeff".parse::<Id>(), Err(ParseIdError::Digit('+')));
    assert_eq!("é0112233445566778899aabbccddeef".parse::<Id>(), Err(ParseIdError::Digit('é')));
}

#[test]
fn a_uuid_gives_the_first_half_of_its_nid() {
    let uuid = 0x0011_2233_4455_6677_8899_aabb_ccdd_eeff_u128.to_be_bytes();
    let nid = "84a5b2397ee07585706b045f25583e1502f1ce5517efddb03edc65e4845531b7";
    let hex: String = hash(&uuid).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, nid);
    assert_eq!(Id::from_uuid(uuid).to_string(), nid[..32]);
}

#[test]
fn a_text_is_hashed_whole() {
    // b2sum -l 256 of the empty string begins so.
    assert_eq!(Id::from_text("").to_string(), "0e5751c026e543b2e8ab2eb06099daa1");
    assert_ne!(Id::from_text("a"), Id::from_text("A"));
}

#[test]
fn p_9_the_digits_of_the_documents_example() {
    let own: Id = "1a2bc3d0000000000000000000000000".parse().unwrap();
    let other: Id = "1a2bc3e0000000000000000000000000".parse().unwrap();
    assert_eq!(own.common_prefix(other, Base::B4), 6);
    // PA-45: E is 14; the document's own "column 15" miscounts.
    assert_eq!(other.digit(Base::B4, 6), 14);
}

#[test]
fn bases_cut_an_id_without_rest() {
    for base in BASES {
        assert_eq!(base.digits() * base.bits(), 128);
        assert_eq!(Base::from_bits(base.bits()), Some(base));
        assert_eq!(Id::MAX.digit(base, base.digits() - 1), base.greatest());
    }
    assert_eq!(Base::from_bits(3), None);
}

#[test]
fn the_ring_closes_between_greatest_and_least() {
    assert_eq!(Id::MAX.clockwise_to(Id::MIN), 1);
    assert_eq!(Id::MAX.distance(Id::MIN), 1);
    assert_eq!(Id::MIN.side(Id::MAX), Some(Side::CounterClockwise));
    assert!(Id::MIN.is_between(Id::MAX, Id::new(1)));
    assert_eq!(Id::new(0).distance(Id::new(1 << 127)), 1 << 127);
}

proptest! {
    #[test]
    fn digits_put_together_are_the_id(number: u128) {
        for base in BASES {
            let again = (0..base.digits())
                .fold(0u128, |sum, at| (sum << base.bits()) | u128::from(Id::new(number).digit(base, at)));
            prop_assert_eq!(again, number);
        }
    }

    #[test]
    fn the_common_prefix_is_the_digits_that_agree(a: u128, shared in 0u32..=128, b: u128) {
        let mask = u128::MAX.checked_shr(shared).unwrap_or(0);
        let (a, b) = (Id::new(a), Id::new((a & !mask) | (b & mask)));
        for base in BASES {
            let expected = (0..base.digits()).take_while(|&at| a.digit(base, at) == b.digit(base, at)).count();
            prop_assert_eq!(a.common_prefix(b, base) as usize, expected);
            prop_assert_eq!(b.common_prefix(a, base) as usize, expected);
        }
    }

    #[test]
    fn distance_is_a_metric_of_the_circle(a: u128, b: u128, c: u128) {
        let (a, b, c) = (Id::new(a), Id::new(b), Id::new(c));
        prop_assert_eq!(a.distance(b), b.distance(a));
        prop_assert_eq!(a.distance(b) == 0, a == b);
        prop_assert!(a.distance(c) <= a.distance(b).saturating_add(b.distance(c)));
        prop_assert_eq!(a.clockwise_to(b).wrapping_add(b.clockwise_to(a)), 0);
    }

    #[test]
    fn a_turn_of_the_ring_changes_nothing(key: u128, a: u128, b: u128, turn: u128) {
        let turned = |n: u128| Id::new(n.wrapping_add(turn));
        prop_assert_eq!(Id::new(key).is_closer(Id::new(a), Id::new(b)), turned(key).is_closer(turned(a), turned(b)));
        prop_assert_eq!(Id::new(key).side(Id::new(a)), turned(key).side(turned(a)));
    }

    #[test]
    fn ties_go_counter_clockwise(key: u128, offset in 1u128..(1 << 127)) {
        let (before, after) = (Id::new(key.wrapping_sub(offset)), Id::new(key.wrapping_add(offset)));
        let key = Id::new(key);
        prop_assert!(key.is_closer(before, after));
        prop_assert!(!key.is_closer(after, before));
        prop_assert_eq!(key.closest([after, before]), Some(before));
    }

    #[test]
    fn the_closest_beats_all_others(key: u128, ids in proptest::collection::vec(any::<u128>(), 1..20)) {
        let key = Id::new(key);
        let ids: Vec<Id> = ids.into_iter().map(Id::new).collect();
        let root = key.closest(ids.iter().copied()).unwrap();
        prop_assert!(ids.contains(&root));
        prop_assert!(ids.iter().all(|&id| id == root || key.is_closer(root, id)));
    }

    #[test]
    fn text_round_trips(number: u128) {
        let id = Id::new(number);
        prop_assert_eq!(id.to_string().parse(), Ok(id));
    }
}

#[test]
fn hash_all_returns_the_hash_of_each_text() {
    for count in 0..10usize {
        let texts: Vec<Vec<u8>> = (0..count).map(|n| vec![n as u8; n * 1000 + count]).collect();
        let each: Vec<[u8; 32]> = texts.iter().map(|text| hash(text)).collect();
        assert_eq!(hash_all(texts.iter().map(|text| &text[..])), each, "{count} texts");
    }
}
