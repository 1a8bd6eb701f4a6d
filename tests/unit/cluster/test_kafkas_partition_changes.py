"""PartitionChangeBuilderTest and PartitionReassignmentReplicasTest, with the same partitions."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest

from tailrace.cluster.control.reassignments import plan_reassignment
from tailrace.cluster.metadata.delta import changed_partition
from tailrace.cluster.partition_change import NO_LEADER, RECOVERING, Election
from tailrace.cluster.records import partition_change_record
from tailrace.protocol.metadata_records import PartitionChangeRecord, PartitionRecord
from tests.unit.cluster.test_partition_change import NEW, change, partition

PREFERRED, UNCLEAN = Election.PREFERRED, Election.UNCLEAN
KEEPS_EPOCH = (12, 17, 22)
"""Levels of 3.6-IV0, 3.7-IV2 and 4.0-IV0."""
BUMPS_EPOCH = (8, 11)
"""Levels of 3.4-IV0 and 3.5-IV2."""
LEVELS = (*BUMPS_EPOCH, *KEEPS_EPOCH)
WITHOUT_3 = (1, 2, 4)


def of(*replicas: int) -> tuple[UUID, ...]:
    """The log directories of replicas."""
    return tuple(UUID(int=each) for each in replicas)


def foo() -> PartitionRecord:
    """Three in sync; the second one leads, and the first one is preferred."""
    return partition(replicas=(2, 1, 3), leader=1)


def bar() -> PartitionRecord:
    """On its way from 1, 2, 3 to 2, 3, 4."""
    return partition(
        replicas=(1, 2, 3, 4), isr=(1, 2, 3), removing_replicas=(1,), adding_replicas=(4,)
    )


def baz() -> PartitionRecord:
    """The preferred replica is not in sync."""
    return partition(replicas=(2, 1, 3), isr=(1, 3), leader=3)


def after(state: PartitionRecord, changes: dict[str, Any]) -> PartitionRecord:
    """The partition with these changes."""
    made, _ = partition_change_record(state, changes, version=2)
    assert isinstance(made, PartitionChangeRecord)
    return changed_partition(state, made)


# -- elections ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "leader"),
    [
        ({"election": PREFERRED}, 2),
        ({}, 1),
        ({"election": UNCLEAN}, 1),
        ({"isr": (1, 3)}, 1),
        ({"isr": (1, 3), "election": UNCLEAN}, 1),
        ({"isr": (2, 3)}, 2),
        ({"isr": (3,)}, NO_LEADER),
        ({"isr": (3,), "election": UNCLEAN}, 2),
        ({"isr": (4,), "replicas": (2, 1, 3, 4), "election": UNCLEAN}, 4),
    ],
)
@pytest.mark.parametrize("has_elr", [True, False])
def test_who_is_elected(wanted: dict[str, Any], leader: int, *, has_elr: bool) -> None:
    """A member of the ISR that serves; one out of sync only where nobody in sync can lead."""
    found = change(foo(), alive=WITHOUT_3, has_elr=has_elr, insync_min=1, **wanted)
    assert found.get("leader", 1) == leader
    is_unclean = wanted == {"isr": (3,), "election": UNCLEAN}
    assert (found.get("leader_recovery_state") == RECOVERING) is is_unclean


def test_a_preferred_replica_out_of_sync_is_not_elected() -> None:
    """The present leader stays, whatever the election."""
    for election in Election:
        assert change(baz(), election=election) == {}


def test_a_change_of_the_leader_keeps_the_state_of_recovery() -> None:
    """A partition that recovers does so when it loses its leader, and when that one is back."""
    state = partition(isr=(1,), leader_recovery_state=RECOVERING)
    gone = change(state, alive=(), isr=(), level=8, has_elr=False)
    assert gone == {"leader": NO_LEADER}
    back = change(after(state, gone), level=8, has_elr=False)
    assert back == {"leader": 1}
    found = after(after(state, gone), back)
    assert (found.leader, found.isr, found.leader_recovery_state) == (1, (1,), RECOVERING)


def test_an_unclean_leader_is_alone_and_recovers() -> None:
    """The members of the ISR do not serve, and leave it."""
    state = partition(isr=(2, 3), leader=NO_LEADER)
    found = after(state, change(state, alive=(1,), election=UNCLEAN, level=8, has_elr=False))
    assert (found.leader, found.isr, found.leader_recovery_state) == (1, (1,), RECOVERING)


# -- epochs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", LEVELS)
def test_the_epoch_of_a_leader_that_stays(level: int) -> None:
    """A smaller ISR needs a new one before Kafka 3.6; a replica that leaves always does."""
    epoch = {"leader": 1} if level in BUMPS_EPOCH else {}
    kept: dict[str, Any] = {"level": level, "has_elr": False, "alive": WITHOUT_3}
    assert change(foo(), **kept) == {}
    assert change(foo(), isr=(2, 1), **kept) == {"isr": (2, 1), **epoch}
    assert "leader" not in change(foo(), isr=(2, 1, 3, 4), **kept)
    assert change(foo(), replicas=(2, 1, 4), **kept)["leader"] == 1
    # KAFKA-16624: an ISR that stays, since it has nobody else, is not smaller.
    alone = partition(replicas=(2,), leader=2)
    assert change(alone, isr=(), election=UNCLEAN, level=level, has_elr=False) == {}


# -- reassignments --------------------------------------------------------------------------------


def test_another_order_of_the_replicas_is_there_at_once() -> None:
    """Their directories come in the same order, and nobody else leads."""
    assert change(foo(), replicas=(3, 2, 1)) == {
        "replicas": (3, 2, 1),
        "directories": of(3, 2, 1),
    }


def test_the_last_replica_in_sync_completes_a_reassignment() -> None:
    """The first one that stays and serves leads."""
    assert change(bar(), alive=WITHOUT_3, isr=(1, 2, 3, 4)) == {
        "replicas": (2, 3, 4),
        "isr": (2, 3, 4),
        "leader": 2,
        "removing_replicas": (),
        "adding_replicas": (),
        "directories": of(2, 3, 4),
    }


def test_a_reassignment_that_is_taken_back() -> None:
    """The replicas are those before, and the leader begins another epoch."""
    wanted: dict[str, Any] = {"replicas": (1, 2, 3), "isr": (1, 2, 3), "removing": (), "adding": ()}
    assert change(bar(), alive=WITHOUT_3, **wanted) == {
        "replicas": (1, 2, 3),
        "leader": 1,
        "removing_replicas": (),
        "adding_replicas": (),
        "directories": of(1, 2, 3),
    }


def test_a_replica_is_removed_at_once() -> None:
    """Nothing is added, and those that stay are in sync."""
    plan = plan_reassignment((2, 1, 3), (1, 2))
    assert tuple(plan) == ((1, 2, 3), (), (3,))
    found = change(foo(), alive=WITHOUT_3, replicas=plan.replicas, removing=plan.removing)
    assert found == {
        "replicas": (1, 2),
        "isr": (2, 1),
        "leader": 1,
        "directories": of(1, 2),
    }


def test_a_replica_is_added() -> None:
    """It gets a directory at once, and is in sync when it has all records."""
    plan = plan_reassignment((2, 1, 3), (1, 2, 3, 4))
    assert tuple(plan) == ((1, 2, 3, 4), (4,), ())
    assert change(foo(), alive=WITHOUT_3, replicas=plan.replicas, adding=plan.adding) == {
        "replicas": (1, 2, 3, 4),
        "adding_replicas": (4,),
        "directories": (*of(1, 2, 3), NEW),
    }


def test_a_removed_leader_does_not_stay_though_nobody_else_can_lead() -> None:
    """The partition has no leader then."""
    state = partition(
        replicas=(2, 3, 4, 1), isr=(4, 1), leader=4, removing_replicas=(4, 1),
        adding_replicas=(2, 3),
    )  # fmt: skip
    found = change(state, alive=(), isr=(4, 1, 2, 3), level=8, has_elr=False)
    assert found == {
        "replicas": (2, 3),
        "isr": (2, 3),
        "leader": NO_LEADER,
        "removing_replicas": (),
        "adding_replicas": (),
    }


@pytest.mark.parametrize(
    ("before", "target", "isr", "left"),
    [
        ((1, 2, 3), (4, 5, 6), (1, 2, 3, 4, 5), None),
        ((1, 2, 3), (4, 5, 6), (1, 2, 3, 4, 5, 6), (4, 5, 6)),
        ((1, 2, 3), (1, 2, 4), (1, 2, 3, 4), (1, 2, 4)),
        # A replica that was there before need not be in sync.
        ((1, 2, 3), (1, 2, 4), (1, 3, 4), (1, 4)),
        ((1, 2, 3), (1, 2, 4), (3, 4), (4,)),
        ((1, 2, 3), (1, 2, 4), (1, 2, 3), None),
        # More replicas than before.
        ((1, 2, 3), (2, 3, 4, 5), (1, 2, 4, 5), (2, 4, 5)),
        ((1, 2, 3), (2, 3, 4, 5), (1, 2, 3, 5), None),
        # Fewer: all of the target have to be in sync.
        ((1, 2, 3, 4, 5), (3, 4, 5, 6), (1, 2, 3, 4, 6), None),
        ((1, 2, 3, 4, 5), (3, 4, 5, 6), (1, 2, 3, 4, 5), None),
        ((1, 2, 3, 4, 5), (3, 4, 5, 6), (1, 2, 3, 4, 5, 6), (3, 4, 5, 6)),
    ],
)
def test_when_a_reassignment_is_complete(
    before: Sequence[int], target: Sequence[int], isr: tuple[int, ...], left: Sequence[int] | None
) -> None:
    """Once all that it adds are in sync; with fewer replicas afterwards, all of the target."""
    plan = plan_reassignment(before, target)
    state = partition(
        replicas=plan.replicas, isr=tuple(before), leader=isr[0],
        adding_replicas=plan.adding, removing_replicas=plan.removing,
    )  # fmt: skip
    found = after(state, change(state, isr=isr, insync_min=1))
    assert bool(found.adding_replicas or found.removing_replicas) is (left is None)
    if left is not None:
        assert (set(found.replicas), found.isr) == (set(target), tuple(left))
    else:
        assert (found.replicas, found.isr) == (plan.replicas, isr)


def test_no_reassignment_is_completed_where_none_is_under_way() -> None:
    """A change of the ISR leaves the replicas alone."""
    assert change(partition(isr=(1, 2)), isr=(1, 2, 3)) == {"isr": (1, 2, 3)}


# -- directories ----------------------------------------------------------------------------------


def test_replicas_that_stay_keep_their_directories() -> None:
    """A new one has the directory that is named for it, or that of its broker."""
    named = UUID(int=77)
    assert change(foo(), replicas=(3, 1, 5, 4), directories={5: named}, level=17) == {
        "leader": 1,
        "replicas": (3, 1, 5, 4),
        "directories": (*of(3, 1), named, NEW),
    }


def test_directories_of_several_replicas_change_together() -> None:
    """One of them may be lost, which alone changes nothing else."""
    lost, named = UUID(int=2), UUID(int=77)
    state = partition(replicas=(2, 1, 3), leader=2, directories=of(12, 11, 13))
    assert change(state, directories={3: named, 1: lost}) == {
        "directories": (UUID(int=12), lost, named)
    }


# -- eligible leaders -----------------------------------------------------------------------------


def four(**fields: Any) -> PartitionRecord:
    """Four replicas, of which three have to be in sync."""
    return partition(replicas=(1, 2, 3, 4), **fields)


def test_eligible_leaders_are_kept_below_the_least_isr() -> None:
    """Without the feature they are not, and go with the next change."""

    def wanted(state: PartitionRecord, isr: tuple[int, ...], *, has_elr: bool) -> dict[str, Any]:
        return change(
            state, isr=isr, alive=WITHOUT_3, election=PREFERRED, insync_min=3, has_elr=has_elr
        )

    assert wanted(four(), (1, 2), has_elr=True) == {
        "isr": (1, 2),
        "eligible_leader_replicas": (3, 4),
    }
    assert wanted(four(), (1, 2), has_elr=False) == {"isr": (1, 2)}
    # One that joins was not eligible.
    small = four(isr=(1,), eligible_leader_replicas=(3,))
    assert wanted(small, (1, 4), has_elr=True) == {"isr": (1, 4)}
    cleared = {"isr": (1, 4), "eligible_leader_replicas": ()}
    assert wanted(small, (1, 4), has_elr=False) == cleared
    # Enough are in sync again.
    small = four(isr=(1, 2), eligible_leader_replicas=(3,))
    for has_elr in (True, False):
        assert wanted(small, (1, 2, 3), has_elr=has_elr) == {
            "isr": (1, 2, 3),
            "eligible_leader_replicas": (),
        }


def test_who_stops_uncleanly_is_not_eligible() -> None:
    """It may lack what it had acknowledged."""
    state = four(isr=(1,), eligible_leader_replicas=(2, 3))
    found = change(state, alive=WITHOUT_3, unclean=frozenset({3}), insync_min=3)
    assert found == {"eligible_leader_replicas": (2,)}


def test_an_eligible_leader_takes_the_place_of_the_last_in_sync() -> None:
    """The last one is eligible then, and no records are lost."""
    state = four(isr=(1,), eligible_leader_replicas=(3,))
    assert change(state, isr=(), alive=(2, 3, 4), election=PREFERRED, insync_min=3) == {
        "isr": (3,),
        "leader": 3,
        "eligible_leader_replicas": (1,),
    }


def test_an_isr_can_be_empty() -> None:
    """Its members are eligible, and the last leader is known; a later stop keeps that."""
    state = four()
    gone = change(state, isr=(), alive=(), election=PREFERRED, insync_min=3)
    assert gone == {
        "isr": (),
        "leader": NO_LEADER,
        "eligible_leader_replicas": (1, 2, 3, 4),
        "last_known_elr": (1,),
    }
    later = change(after(state, gone), alive=(), unclean=frozenset({2}), insync_min=3)
    assert later == {"eligible_leader_replicas": (1, 3, 4)}


def test_the_last_leader_is_not_elected_beside_an_eligible_one() -> None:
    """The eligible one has all records, and may come back."""
    state = four(isr=(), leader=NO_LEADER, eligible_leader_replicas=(3,), last_known_elr=(1,))
    assert change(state, isr=(), alive=WITHOUT_3, election=PREFERRED, insync_min=3) == {}


@pytest.mark.parametrize("election", Election)
def test_the_last_leader_is_not_elected_while_it_is_away(election: Election) -> None:
    """Nor is anybody else, if none serves."""
    state = four(isr=(), leader=NO_LEADER, last_known_elr=(1,))
    assert change(state, isr=(), alive=(), election=election, insync_min=3) == {}
