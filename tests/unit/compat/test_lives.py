"""Faults that the check of consumers' lives finds."""

from dataclasses import replace

import pytest

from compat.lives import HALF, KILLED, RECORDS, ROWS, WAIT_S, Outcome, Row

GOOD = Outcome(handled=RECORDS, committed=RECORDS, again=0, lost=0, seconds=1.0)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_life_that_handles_too_little_or_does_not_end_is_a_fault(row: Row) -> None:
    """A consumer that ends at once has lost nothing, and has done nothing either."""
    assert row.faults([GOOD]) == []
    for bad in (
        replace(GOOD, handled=0, committed=0),
        replace(GOOD, handled=row.handled - 1),
        replace(GOOD, lost=1),
        replace(GOOD, again=RECORDS + 1),
        replace(GOOD, seconds=-1.0),
        replace(GOOD, seconds=WAIT_S),
    ):
        assert row.faults([GOOD, bad]) == [bad.cell()]


def test_only_a_kill_may_have_records_handled_again() -> None:
    """Records that the automatic commits have not reached yet."""
    again = replace(GOOD, again=HALF)
    assert {row.name for row in ROWS if not row.faults([again])} == {KILLED}
