"""Which replica a consumer is sent to, by its rack and by what the followers have."""

from uuid import UUID

import pytest

from tailrace.model import Offset
from tailrace.protocol.metadata_records import PartitionRecord
from tailrace.replication.leadership import Leadership
from tailrace.replication.read_replicas import nearest_replica

LEADER, SECOND, THIRD, FOURTH = 1, 2, 3, 4
RACKS = {LEADER: "a", SECOND: "b", THIRD: "b", FOURTH: "c"}
LOG_END = Offset(20)


class Cluster:
    """Four brokers in three racks, in a partition that the first leads; all of them are alive."""

    def __init__(self, *, isr: tuple[int, ...] = (LEADER, SECOND, THIRD, FOURTH)) -> None:
        self.racks: dict[int, str | None] = {**RACKS}
        self.leadership = Leadership(LEADER, self, lag_ms=30_000)
        state = PartitionRecord(
            partition_id=0,
            topic_id=UUID(int=1),
            replicas=(LEADER, SECOND, THIRD, FOURTH),
            isr=isr,
            removing_replicas=(),
            adding_replicas=(),
            leader=LEADER,
            leader_epoch=5,
            partition_epoch=10,
            directories=(),
        )
        self.leadership.lead(state, log_end=LOG_END, now_ms=0)

    def alive_epoch(self, broker_id: int) -> int | None:
        return 100 * broker_id

    def is_shutting_down(self, broker_id: int) -> bool:
        return broker_id < 0

    def fetch(self, broker_id: int, offset: int, *, log_start: int = 0, now_ms: int = 0) -> None:
        self.leadership.note_fetch(
            broker_id,
            broker_epoch=100 * broker_id,
            offset=Offset(offset),
            log_start=Offset(log_start),
            log_end=LOG_END,
            now_ms=now_ms,
        )

    def nearest(self, rack: str, offset: int = 10) -> int | None:
        return nearest_replica(
            self.leadership,
            leader_id=LEADER,
            offset=Offset(offset),
            rack=rack,
            rack_of=self.racks.get,
        )


def test_a_follower_in_the_consumers_rack_is_preferred() -> None:
    """The one follower of the rack, if it has the offset."""
    cluster = Cluster()
    cluster.fetch(FOURTH, 10)
    assert cluster.nearest("c") == FOURTH


@pytest.mark.parametrize("rack", ["", "a", "d"])
def test_the_leader_serves_its_own_rack_and_those_without_a_replica(rack: str) -> None:
    """A consumer that names no rack, the leader's, or one in which nobody is."""
    cluster = Cluster()
    for follower in (SECOND, THIRD, FOURTH):
        cluster.fetch(follower, LOG_END)
    assert cluster.nearest(rack) is None


def test_the_leader_is_preferred_to_a_follower_in_its_own_rack() -> None:
    """Nothing is gained by sending a consumer away within its rack."""
    cluster = Cluster()
    cluster.racks[SECOND] = "a"
    cluster.fetch(SECOND, LOG_END)
    assert cluster.nearest("a") is None


@pytest.mark.parametrize(
    ("second", "third", "expected"),
    [((15, 1), (16, 0), THIRD), ((20, 0), (20, 5), THIRD), ((20, 5), (20, 0), SECOND)],
)
def test_the_follower_that_has_most_is_preferred(
    second: tuple[int, int], third: tuple[int, int], expected: int
) -> None:
    """The larger log end counts, then the later time at which all records were there."""
    cluster = Cluster()
    for follower, (offset, now_ms) in ((SECOND, second), (THIRD, third)):
        cluster.fetch(follower, offset, now_ms=now_ms)
    assert cluster.nearest("b") == expected


def test_among_equals_the_same_follower_is_preferred_each_time() -> None:
    """The one with the highest id, as in Kafka."""
    cluster = Cluster()
    for follower in (THIRD, SECOND):
        cluster.fetch(follower, LOG_END)
    assert {cluster.nearest("b") for _ in range(5)} == {THIRD}


@pytest.mark.parametrize(("offset", "expected"), [(4, None), (5, FOURTH), (12, FOURTH), (13, None)])
def test_a_follower_without_the_offset_is_not_preferred(offset: int, expected: int | None) -> None:
    """It begins later, or does not reach so far; its log end is an offset that it can wait at."""
    cluster = Cluster()
    cluster.fetch(FOURTH, 12, log_start=5)
    assert cluster.nearest("c", offset) == expected


def test_a_follower_that_has_not_fetched_yet_is_not_preferred() -> None:
    """The leader knows nothing of its log."""
    assert Cluster().nearest("c", 0) is None


def test_a_follower_out_of_sync_is_not_preferred() -> None:
    """Its reader would lag with it, although it has the offset now."""
    cluster = Cluster(isr=(LEADER, SECOND))
    cluster.fetch(FOURTH, LOG_END)
    assert cluster.nearest("c") is None


def test_a_follower_that_consumers_cannot_reach_is_not_preferred() -> None:
    """It is fenced, or has no listener for them, and so no rack."""
    cluster = Cluster()
    cluster.fetch(FOURTH, LOG_END)
    cluster.racks[FOURTH] = None
    assert cluster.nearest("c") is None
