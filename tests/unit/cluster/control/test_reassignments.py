"""Reassignments that are taken back: PartitionReassignmentRevertTest."""

from tailrace.cluster.control.reassignments import is_reassigning
from tailrace.protocol.errors import ErrorCode
from tests.unit.cluster.control.controlled import Controlled


def test_a_reassignment_that_only_removes_is_taken_back() -> None:
    """All replicas stay, and the ISR is as it is."""
    cluster = Controlled()
    cluster.serve(1, 2, 3)
    cluster.topic([3, 2, 1])
    cluster.alter(3, 2)
    # It waits, as the one that would be left is not in sync.
    assert cluster.reassign([1]).error_code == ErrorCode.NONE
    state = cluster.partition()
    assert (state.adding_replicas, state.removing_replicas) == ((), (2, 3))
    assert is_reassigning(state)
    assert cluster.reassign(None).error_code == ErrorCode.NONE
    state = cluster.partition()
    assert set(state.replicas) == {1, 2, 3}
    assert (state.isr, state.leader, state.removing_replicas) == ((3, 2), 3, ())
    assert not is_reassigning(state)


def test_a_reassignment_that_adds_and_removes_is_taken_back() -> None:
    """New ones leave the replicas and the ISR; without one it is an error."""
    cluster = Controlled()
    cluster.serve(1, 2, 3, 4, 5)
    cluster.topic([3, 2, 1])
    assert not is_reassigning(cluster.partition())
    assert cluster.reassign(None).error_code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    cluster.alter(3, 2)
    assert cluster.reassign([4, 5, 3, 1]).error_code == ErrorCode.NONE
    assert cluster.alter(3, 2, 4).error_code == ErrorCode.NONE
    state = cluster.partition()
    assert (state.adding_replicas, state.removing_replicas) == ((4, 5), (2,))
    assert is_reassigning(state)
    assert cluster.reassign(None).error_code == ErrorCode.NONE
    state = cluster.partition()
    assert (set(state.replicas), state.isr, state.leader) == ({1, 2, 3}, (3, 2), 3)
    assert not is_reassigning(state)
