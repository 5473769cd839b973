use proptest::prelude::*;

use super::*;

const OWN: u128 = 0x1a2b_c3d0_0000_0000_0000_0000_0000_0000;

fn table() -> RoutingTable {
    RoutingTable::new(Id::new(OWN), Base::B4)
}

#[test]
fn p_9_the_row_is_the_common_prefix_and_the_column_the_next_digit() {
    let other = Id::new(0x1a2b_c3e0_0000_0000_0000_0000_0000_0000);
    assert_eq!(table().position(other), Some(Position { row: 6, column: 14 }));
    assert_eq!(table().position(Id::new(OWN ^ 1)), Some(Position { row: 31, column: 1 }));
    assert_eq!(table().position(Id::new(OWN)), None);
}

#[test]
fn p_8_a_cell_holds_one_node() {
    let mut table = table();
    let (one, two) = (Id::new(0x2000 << 112), Id::new(0x2fff << 112));
    assert!(table.insert(one) && !table.insert(one) && !table.insert(two));
    assert_eq!(table.cells().len(), 1);
    assert_eq!(table.replace(two, Instant::ZERO), Some(one));
    assert!(table.contains(two) && !table.contains(one));
    assert_eq!(table.remove(one), None, "it has no cell any more");
    assert_eq!(table.remove(two), Some(Position { row: 0, column: 2 }));
    assert_eq!((table.cells().len(), table.version()), (0, 3));
}

#[test]
fn n_2_a_digit_has_as_many_bits_as_is_set() {
    let other = Id::new(OWN ^ (1 << 100));
    for (base, row, columns) in [(Base::B1, 27, 2), (Base::B2, 13, 4), (Base::B4, 6, 16), (Base::B8, 3, 256)]
    {
        let table = RoutingTable::new(Id::new(OWN), base);
        let at = table.position(other).unwrap();
        assert_eq!(u32::from(at.row), row, "{base:?}");
        assert!(u32::from(at.column) < columns);
    }
}

proptest! {
    #[test]
    fn p_8_rows_are_slices_in_order(ids in proptest::collection::vec(any::<u128>(), 0..200), shared in 0u32..40) {
        let mut table = table();
        for id in ids {
            // Ids that share a few digits, so that there is more than one row.
            let mask = u128::MAX.checked_shr(shared).unwrap_or(0);
            table.insert(Id::new((OWN & !mask) | (id & mask)));
        }
        prop_assert!(table.cells().is_sorted_by_key(|cell| cell.at));
        for row in 0..32 {
            let expected: Vec<Cell> = table.cells().iter().filter(|cell| cell.at.row == row).copied().collect();
            prop_assert_eq!(table.row(row), &expected[..]);
        }
        for cell in table.cells() {
            prop_assert_eq!(Some(cell.at), table.position(cell.id));
            // PA-5: the column of the own digit is empty.
            prop_assert!(Id::new(OWN).digit(Base::B4, u32::from(cell.at.row)) != cell.at.column);
        }
    }
}
