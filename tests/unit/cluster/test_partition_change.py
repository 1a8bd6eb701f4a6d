"""The records that a controller makes of a change of one partition."""

from collections.abc import Collection
from typing import Any
from uuid import UUID

import pytest

from tailrace.cluster.partition_change import (
    NO_LEADER,
    RECOVERED,
    RECOVERING,
    Election,
    Rules,
    Wanted,
    change_partition,
)
from tailrace.protocol.metadata_records import PartitionRecord

NEWEST, BEFORE_DIRECTORIES, BEFORE_KAFKA_3_6 = 25, 16, 11
DIRECTORIES = {each: UUID(int=each) for each in range(1, 7)}
NEW = UUID(int=99)


def partition(**fields: Any) -> PartitionRecord:
    """Three replicas that are in sync; the first leads."""
    replicas = fields.setdefault("replicas", (1, 2, 3))
    defaults: dict[str, Any] = {
        "partition_id": 0,
        "topic_id": UUID(int=7),
        "isr": replicas,
        "leader": 1,
        "leader_epoch": 4,
        "partition_epoch": 9,
        "removing_replicas": (),
        "adding_replicas": (),
        "directories": tuple(DIRECTORIES[each] for each in replicas),
        "eligible_leader_replicas": (),
        "last_known_elr": (),
    }
    return PartitionRecord(**{**defaults, **fields})


def change(
    state: PartitionRecord,
    *,
    alive: Collection[int] = (1, 2, 3, 4, 5, 6),
    level: int = NEWEST,
    has_elr: bool = True,
    insync_min: int = 2,
    **wanted: Any,
) -> dict[str, Any]:
    rules = Rules(
        metadata_version=level,
        has_elr=has_elr,
        may_lead=lambda broker_id, _: broker_id in alive,
        default_directory=lambda _: NEW,
    )
    return change_partition(state, Wanted(**wanted), rules, insync_min=insync_min)


def test_nothing_wanted_changes_nothing() -> None:
    """No record is written for a partition that is as it should be."""
    assert change(partition()) == {}
    assert change(partition(), isr=(1, 2, 3), election=Election.UNCLEAN) == {}


def test_a_leader_that_may_stay_stays() -> None:
    """Also where another replica is preferred, unless that is asked for."""
    state = partition(leader=2)
    assert change(state) == {}
    assert change(state, election=Election.PREFERRED) == {"leader": 1}
    assert change(state, alive=(2, 3), election=Election.PREFERRED) == {}


def test_the_first_in_sync_that_serves_is_elected() -> None:
    """In the order of the replicas; one out of sync is passed over."""
    assert change(partition(), alive=(2, 3)) == {"leader": 2}
    assert change(partition(isr=(1, 3)), alive=(2, 3)) == {"leader": 3}


def test_a_directory_that_is_gone_cannot_lead() -> None:
    """The broker serves, and its log directory with this replica does not."""
    rules = Rules(
        metadata_version=NEWEST,
        has_elr=False,
        may_lead=lambda _, directory: directory != DIRECTORIES[1],
        default_directory=lambda _: NEW,
    )
    assert change_partition(partition(), Wanted(), rules, insync_min=1) == {"leader": 2}


def test_a_smaller_isr_keeps_its_leader_and_epoch() -> None:
    """Brokers before Kafka 3.6 needed a new leader epoch with it."""
    assert change(partition(), isr=(1, 2), has_elr=False) == {"isr": (1, 2)}
    old = change(partition(), isr=(1, 2), has_elr=False, level=BEFORE_KAFKA_3_6)
    assert old == {"isr": (1, 2), "leader": 1}
    grown = change(partition(isr=(1,)), isr=(1, 2), has_elr=False, level=BEFORE_KAFKA_3_6)
    assert grown == {"isr": (1, 2)}


def test_without_eligible_replicas_the_isr_keeps_its_last_member() -> None:
    """It is the only one that has all records, although it does not serve."""
    state = partition(isr=(1,))
    assert change(state, isr=(), alive=(2, 3), has_elr=False) == {"leader": NO_LEADER}


def test_members_that_leave_a_small_isr_stay_eligible() -> None:
    """Nothing more is committed, so they have all; one with an unclean shutdown may not."""
    assert change(partition(isr=(1, 2)), isr=(1,)) == {
        "isr": (1,),
        "eligible_leader_replicas": (2,),
    }
    assert change(partition(isr=(1, 2)), isr=(1,), unclean=frozenset({2})) == {"isr": (1,)}
    assert change(partition(), isr=(1, 2)) == {"isr": (1, 2)}


def test_a_large_isr_has_no_eligible_replicas_beside_it() -> None:
    """From then on they lack what is committed."""
    state = partition(isr=(1,), eligible_leader_replicas=(2,))
    assert change(state, isr=(1, 3)) == {"isr": (1, 3), "eligible_leader_replicas": ()}


def test_the_last_member_becomes_eligible_and_is_noted() -> None:
    """The partition has no leader then, and the last one is known (KIP-966)."""
    state = partition(isr=(1,), eligible_leader_replicas=(2,))
    assert change(state, isr=(), alive=(3,)) == {
        "isr": (),
        "leader": NO_LEADER,
        "eligible_leader_replicas": (1, 2),
        "last_known_elr": (1,),
    }


def test_an_eligible_replica_is_elected_without_a_loss() -> None:
    """Only where nobody is in sync; it is then in sync with itself alone."""
    state = partition(
        isr=(), leader=NO_LEADER, eligible_leader_replicas=(1, 2), last_known_elr=(1,)
    )
    assert change(state, alive=(2, 3)) == {
        "isr": (2,),
        "leader": 2,
        "eligible_leader_replicas": (1,),
        "last_known_elr": (),
    }
    state = partition(isr=(1,), eligible_leader_replicas=(2,))
    assert change(state, alive=(2, 3)) == {"leader": NO_LEADER, "last_known_elr": (1,)}


def test_who_is_no_replica_any_more_has_no_log() -> None:
    """It is neither eligible nor the last leader, also when it is a replica again."""
    leaving = partition(
        replicas=(1, 2, 3), removing_replicas=(2, 3), eligible_leader_replicas=(3,), isr=(1, 2)
    )
    assert change(leaving, insync_min=3) == {
        "isr": (1,),
        "leader": 1,
        "replicas": (1,),
        "removing_replicas": (),
        "directories": (DIRECTORIES[1],),
        "eligible_leader_replicas": (),
    }
    # As other controllers may have left it.
    left = partition(replicas=(1,), eligible_leader_replicas=(2, 3))
    found = change(left, replicas=(1, 2, 3), adding=(2, 3), alive=(2, 3), isr=())
    assert (found["leader"], found["eligible_leader_replicas"]) == (NO_LEADER, (1,))
    gone = partition(replicas=(1, 2), isr=(), leader=NO_LEADER, last_known_elr=(3,))
    assert change(gone) == {"last_known_elr": ()}


def test_a_replica_with_a_new_directory_is_not_eligible() -> None:
    """It begins with an empty log."""
    state = partition(isr=(), leader=NO_LEADER, eligible_leader_replicas=(1, 2))
    found = change(state, directories={2: NEW}, emptied=2, alive=(2, 3))
    assert found["eligible_leader_replicas"] == (1,)
    assert "leader" not in found


def test_the_last_known_leader_is_elected_when_nobody_is_eligible() -> None:
    """Uncleanly, since it may have lost records; not while it does not serve."""
    state = partition(isr=(), leader=NO_LEADER, last_known_elr=(1,))
    assert change(state, alive=(2, 3)) == {}
    assert change(state) == {
        "isr": (1,),
        "leader": 1,
        "leader_recovery_state": RECOVERING,
        "last_known_elr": (),
    }


@pytest.mark.parametrize("has_elr", [True, False])
def test_an_unclean_election_is_the_last_resort(*, has_elr: bool) -> None:
    """A replica in sync is preferred; without one the first that serves leads, and recovers."""
    state = partition(isr=(1,))
    assert change(state, election=Election.UNCLEAN, has_elr=has_elr) == {}
    last = {"last_known_elr": (1,)} if has_elr else {}
    assert change(state, alive=(2, 3), has_elr=has_elr) == {"leader": NO_LEADER, **last}
    assert change(state, alive=(2, 3), election=Election.UNCLEAN, has_elr=has_elr) == {
        "isr": (2,),
        "leader": 2,
        "leader_recovery_state": RECOVERING,
    }
    recovering = partition(isr=(1,), leader_recovery_state=RECOVERING)
    assert change(recovering, alive=(2, 3), election=Election.UNCLEAN, has_elr=has_elr) == {
        "isr": (2,),
        "leader": 2,
    }


def test_an_unclean_election_leaves_nobody_eligible() -> None:
    """The new leader alone has the records that it writes."""
    state = partition(replicas=(1, 2, 3, 4), isr=(1,), eligible_leader_replicas=(2,))
    assert change(state, alive=(3, 4), election=Election.UNCLEAN) == {
        "isr": (3,),
        "leader": 3,
        "leader_recovery_state": RECOVERING,
        "eligible_leader_replicas": (),
    }


def test_eligible_replicas_go_when_the_feature_is_off() -> None:
    """With the next change of the partition."""
    state = partition(isr=(1,), eligible_leader_replicas=(2,))
    assert change(state, isr=(1, 3), has_elr=False) == {
        "isr": (1, 3),
        "eligible_leader_replicas": (),
    }


def test_a_recovered_leader_says_so() -> None:
    """Its next AlterPartition ends the state."""
    state = partition(leader_recovery_state=RECOVERING)
    assert change(state, recovery=RECOVERED) == {"leader_recovery_state": RECOVERED}


def test_a_recovered_leader_says_nothing_of_the_next() -> None:
    """One that is elected uncleanly by the same change has to recover too."""
    state = partition(leader_recovery_state=RECOVERING, isr=(1,))
    found = change(state, alive=(2, 3), election=Election.UNCLEAN, recovery=RECOVERED)
    assert found == {"isr": (2,), "leader": 2}


def moving(**fields: Any) -> PartitionRecord:
    """A partition that moves from brokers 2 and 3 to 4 and 5."""
    replicas = (1, 4, 5, 2, 3)
    return partition(
        replicas=replicas, adding_replicas=(4, 5), removing_replicas=(2, 3),
        **{"isr": (1, 2, 3), **fields},
    )  # fmt: skip


def test_a_reassignment_waits_for_all_that_it_adds() -> None:
    """Until they are in sync, old and new replicas are assigned together."""
    assert change(moving(), isr=(1, 2, 3, 4)) == {"isr": (1, 2, 3, 4)}
    assert change(moving(), isr=(1, 2, 3, 4, 5)) == {
        "isr": (1, 4, 5),
        "leader": 1,
        "replicas": (1, 4, 5),
        "adding_replicas": (),
        "removing_replicas": (),
        "directories": (DIRECTORIES[1], DIRECTORIES[4], DIRECTORIES[5]),
    }


def test_a_leader_that_is_removed_is_followed_by_one_that_stays() -> None:
    """The election is part of the same record."""
    done = change(moving(leader=2), isr=(1, 2, 3, 4, 5))
    assert done["leader"] == 1
    assert done["isr"] == (1, 4, 5)


def test_fewer_replicas_wait_until_all_that_stay_are_in_sync() -> None:
    """Else the ISR would be smaller after the reassignment than before it."""
    state = partition(replicas=(1, 4, 2, 3), adding_replicas=(4,), removing_replicas=(2, 3))
    assert change(state, isr=(2, 3, 4)) == {"isr": (2, 3, 4), "leader": 4}
    assert change(state, isr=(1, 2, 3, 4))["replicas"] == (1, 4)


def test_a_reassignment_never_ends_with_nobody_in_sync() -> None:
    """Though it only removes, what it leaves must have a member of the ISR."""
    state = partition(replicas=(1, 2, 3), removing_replicas=(2, 3), isr=(2, 3), leader=2)
    assert change(state) == {}


def test_a_replica_that_leaves_brings_a_new_leader_epoch() -> None:
    """It must not fetch or lead on in an epoch that the others share."""
    assert change(partition(), replicas=(1, 2), isr=(1, 2))["leader"] == 1
    grown = change(partition(isr=(1, 2, 3)), replicas=(1, 2, 3, 4))
    assert "leader" not in grown


def test_a_new_replica_gets_a_directory() -> None:
    """The one that its broker has, and none in records of before Kafka 3.7."""
    grown = change(partition(), replicas=(1, 2, 3, 4))
    assert grown["directories"] == (*(DIRECTORIES[each] for each in (1, 2, 3)), NEW)
    old = change(partition(), replicas=(1, 2, 3, 4), level=BEFORE_DIRECTORIES)
    assert "directories" not in old
    assert change(partition(), directories={2: NEW}) == {
        "directories": (DIRECTORIES[1], NEW, DIRECTORIES[3])
    }
