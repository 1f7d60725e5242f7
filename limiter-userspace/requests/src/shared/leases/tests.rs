use super::*;

/// Envoy has stopped waiting when the deadline is over, and lets pass what is refused then.
#[test]
fn a_request_is_refused_at_once_where_the_next_answer_comes_after_the_deadline() {
    let table = Arc::new(LeaseTable::new(Duration::from_millis(100)));
    let mut node = HeldLeases(Arc::clone(&table));
    let (key, slot, mut place) = (TableKey::EMPTY, Slot::new(0), Places::NONE);
    place.add(0);
    table.ask(&key, slot, 1);
    node.set_leased(&key, Some(KeyLeases::new(slot, BUDGET_LEASES)));
    for (units, again, waits) in
        [(10, 0, true), (3, 125_000, false), (3, 50_000, true), (0, 0, false)]
    {
        node.answered(BUDGET_LEASES, Granted { wanted: 10, units, again });
        let charged = table.with(&key, slot, |view| view.charge(place, 1, Patience::Begins, false));
        assert_eq!(charged == LeaseOutcome::Waits, waits, "{units} of 10, {again} us");
    }
}
