"""A partition in its roles: what its leader accepts, acknowledges and proposes."""

from collections.abc import Sequence
from uuid import UUID
from weakref import WeakSet

import pytest

from tailrace.model import LeaderEpoch, Offset
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.metadata_records import PartitionRecord
from tailrace.replication.leadership import IsrChange, NotReplicaError, Rejection
from tailrace.replication.partition import (
    ClusterView,
    NotEnoughReplicasError,
    NotLeaderError,
    Partition,
)
from tailrace.replication.waiting import Signal
from tailrace.storage.epochs import EpochEntry
from tailrace.testing import MemoryFiles, Outside
from tailrace.values import replace
from tests.unit.storage.builders import NOW, batch, open_at, settings

LAG_MS = 30_000
ME, SECOND, THIRD = 1, 2, 3
ALL = (ME, SECOND, THIRD)


class Cluster:
    """A partition of three brokers on the first of them, at a time that the test sets."""

    def __init__(self, outside: Outside, *, insync_min: int = 1) -> None:
        self.alive = {ME: 100, SECOND: 200, THIRD: 300}
        self.now_ms = NOW
        self.proposed: list[IsrChange] = []
        self.log = open_at(MemoryFiles(), config=settings(min_insync_replicas=insync_min))
        self.partition = Partition(
            self.log,
            on_failure=_fail,
            cluster=ClusterView(
                node_id=ME,
                brokers=self,
                has_partition=lambda _: True,
                clock=outside.clock,
                lag_ms=LAG_MS,
            ),
            propose=lambda _, change: self.proposed.append(change),
        )

    def alive_epoch(self, broker_id: int) -> int | None:
        return self.alive.get(broker_id)

    def is_shutting_down(self, broker_id: int) -> bool:  # noqa: ARG002 - nobody shuts down here
        return False

    @property
    def watermark(self) -> int:
        return self.log.positions.high_watermark

    def lead(
        self,
        isr: Sequence[int] = ALL,
        *,
        replicas: Sequence[int] = ALL,
        epoch: int = 5,
        partition_epoch: int = 10,
    ) -> bool:
        return self.partition.lead(
            state_of(isr, replicas=replicas, epoch=epoch, partition_epoch=partition_epoch),
            now_ms=self.now_ms,
        )

    def follow(self, leader: int = SECOND, *, epoch: int = 6, partition_epoch: int = 11) -> bool:
        return self.partition.follow(
            replace(state_of(ALL, epoch=epoch, partition_epoch=partition_epoch), leader=leader)
        )

    def append(self) -> Offset:
        """One record; the log end after it."""
        self.partition.append(memoryview(bytearray(batch(b"value"))), now_ms=self.now_ms)
        return self.log.end_offset

    def fetch(self, broker_id: int, offset: int) -> None:
        self.partition.note_fetch(
            broker_id,
            broker_epoch=self.alive.get(broker_id, -1),
            offset=Offset(offset),
            log_start=Offset(0),
            log_end=self.log.end_offset,
            now_ms=self.now_ms,
        )


def _fail(error: OSError) -> None:
    raise AssertionError(error)


def state_of(
    isr: Sequence[int], *, replicas: Sequence[int] = ALL, epoch: int, partition_epoch: int
) -> PartitionRecord:
    return PartitionRecord(
        partition_id=0,
        topic_id=UUID(int=1),
        replicas=tuple(replicas),
        isr=tuple(isr),
        removing_replicas=(),
        adding_replicas=(),
        leader=ME,
        leader_epoch=epoch,
        partition_epoch=partition_epoch,
        directories=(),
    )


async def test_a_record_is_acknowledged_when_every_member_of_the_isr_has_it(
    outside: Outside,
) -> None:
    """The high watermark is where the slowest member is, and acks=all waits for it."""
    cluster = Cluster(outside)
    cluster.lead()
    waiting = cluster.partition.acknowledged(cluster.append())
    assert waiting is not None
    cluster.fetch(SECOND, 1)
    assert (cluster.watermark, waiting.done()) == (0, False)
    cluster.fetch(THIRD, 1)
    assert cluster.watermark == 1
    await waiting
    assert cluster.partition.acknowledged(Offset(1)) is None


async def test_the_only_replica_commits_what_it_appends(outside: Outside) -> None:
    """Without followers nothing waits, and there is no state of them."""
    cluster = Cluster(outside, insync_min=2)
    cluster.lead([ME], replicas=[ME])
    assert cluster.partition.is_alone
    cluster.partition.check_replicas()
    assert cluster.partition.acknowledged(cluster.append()) is None


async def test_a_new_epoch_begins_in_the_log_before_its_first_record(outside: Outside) -> None:
    """A follower with records of an epoch that was lost learns where its log diverges."""
    cluster = Cluster(outside)
    assert cluster.lead(epoch=3)
    cluster.append()
    assert cluster.lead(epoch=7, partition_epoch=11)
    assert cluster.log.epochs.entries == (
        EpochEntry(LeaderEpoch(3), Offset(0)),
        EpochEntry(LeaderEpoch(7), Offset(1)),
    )
    diverging = cluster.partition.divergence(Offset(5), LeaderEpoch(4))
    assert diverging == (3, 1)


async def test_a_state_that_is_known_changes_nothing(outside: Outside) -> None:
    """An older image, or the same one again, begins no epoch and takes nothing back."""
    cluster = Cluster(outside)
    assert cluster.lead(partition_epoch=10)
    assert not cluster.lead(partition_epoch=10, epoch=6)
    assert not cluster.follow(partition_epoch=9)
    assert cluster.partition.is_leader
    assert cluster.partition.leader_epoch == 5
    assert not cluster.lead([ME], partition_epoch=11)
    assert cluster.partition.leadership is not None
    assert cluster.partition.leadership.isr == {ME}


async def test_the_end_of_leadership_ends_what_waits(outside: Outside) -> None:
    """A producer gets NOT_LEADER_OR_FOLLOWER at once, and a waiting fetch looks again."""
    cluster = Cluster(outside)
    cluster.lead()
    waiting, signal = cluster.partition.acknowledged(cluster.append()), Signal()
    cluster.partition.appended.add(signal)
    assert waiting is not None
    assert cluster.follow()
    assert signal.take_changed() == [cluster.partition.appended]
    with pytest.raises(NotLeaderError, match="broker 2 in leader epoch 6"):
        await waiting
    with pytest.raises(NotLeaderError):
        cluster.append()
    with pytest.raises(NotLeaderError):
        cluster.partition.acknowledged(Offset(1))
    with pytest.raises(NotLeaderError):
        cluster.fetch(SECOND, 0)
    assert cluster.log.end_offset == 1


async def test_a_record_wakes_followers_and_then_consumers(outside: Outside) -> None:
    """A consumer may have it once all in sync do, of which followers hear with their next fetch."""
    cluster = Cluster(outside)
    cluster.lead()
    appended = cluster.partition.appended
    follower, consumer = Signal(has_watermarks=False), Signal(has_log_ends=False)
    for each in (follower, consumer):
        appended.add(each)
    now_s = outside.loop.time()
    cluster.append()
    assert await follower.wait_until(now_s + 1)
    assert not await consumer.wait_until(now_s)
    assert follower.take_changed() == [appended]
    cluster.fetch(SECOND, 1)
    cluster.fetch(THIRD, 1)
    assert await consumer.wait_until(now_s + 1)
    assert not await follower.wait_until(now_s)
    assert follower.take_changed() == consumer.take_changed() == [appended]


async def test_requests_keep_waiting_in_a_new_epoch_of_the_same_leader(outside: Outside) -> None:
    """Its log was not cut, so that the record can still be committed."""
    cluster = Cluster(outside)
    cluster.lead()
    waiting = cluster.partition.acknowledged(cluster.append())
    assert waiting is not None
    cluster.lead(epoch=6, partition_epoch=11)
    cluster.fetch(SECOND, 1)
    cluster.fetch(THIRD, 1)
    await waiting


async def test_nothing_waits_when_the_followers_leave(outside: Outside) -> None:
    """A leader that becomes the only replica has committed all that it has."""
    cluster = Cluster(outside)
    cluster.lead()
    waiting = cluster.partition.acknowledged(cluster.append())
    assert waiting is not None
    cluster.lead([ME], replicas=[ME], partition_epoch=11)
    await waiting


async def test_too_few_in_sync_take_no_append(outside: Outside) -> None:
    """`min.insync.replicas` is asked of the ISR that the controller has confirmed."""
    cluster = Cluster(outside, insync_min=2)
    cluster.lead([ME])
    with pytest.raises(NotEnoughReplicasError, match=r"1 replicas in sync \(1\).* is 2"):
        cluster.partition.check_replicas()
    cluster.fetch(SECOND, 0)
    [change] = cluster.proposed
    with pytest.raises(NotEnoughReplicasError):
        cluster.partition.check_replicas()
    cluster.partition.confirm(
        change, change.isr, leader_epoch=5, partition_epoch=11, now_ms=cluster.now_ms
    )
    cluster.partition.check_replicas()
    # The image comes later, with the state that the answer had.
    assert not cluster.lead([ME, SECOND], partition_epoch=11)


async def test_the_end_of_a_reassignment_has_the_replicas_from_the_image(outside: Outside) -> None:
    """An answer has brought the partition epoch before, with the ISR and without the replicas."""
    cluster = Cluster(outside)
    adding = replace(
        state_of([ME, SECOND], epoch=5, partition_epoch=10), adding_replicas=(SECOND, THIRD)
    )
    cluster.partition.lead(adding, now_ms=cluster.now_ms)
    cluster.fetch(THIRD, 0)
    [change] = cluster.proposed
    cluster.partition.confirm(
        change, change.isr, leader_epoch=5, partition_epoch=11, now_ms=cluster.now_ms
    )
    assert not cluster.lead(ALL, partition_epoch=11)
    cluster.now_ms += LAG_MS + 1
    cluster.append()
    cluster.partition.check_followers(cluster.now_ms)
    change = cluster.proposed[-1]
    cluster.partition.confirm(
        change, change.isr, leader_epoch=5, partition_epoch=12, now_ms=cluster.now_ms
    )
    assert cluster.partition.leadership is not None
    assert cluster.partition.leadership.isr == {ME}
    assert cluster.partition.leadership.is_under_replicated


async def test_below_the_minimum_nothing_is_committed(outside: Outside) -> None:
    """The high watermark stays while the ISR is smaller than the minimum (KIP-966)."""
    cluster = Cluster(outside, insync_min=2)
    cluster.lead([ME, SECOND])
    waiting = cluster.partition.acknowledged(cluster.append())
    assert waiting is not None
    cluster.lead([ME], partition_epoch=11)
    assert (cluster.watermark, waiting.done()) == (0, False)


async def test_a_proposed_member_that_is_refused_counts_no_more(outside: Outside) -> None:
    """Until the answer the watermark waits for it, then it moves."""
    cluster = Cluster(outside)
    cluster.lead([ME])
    cluster.fetch(SECOND, 0)
    [change] = cluster.proposed
    waiting = cluster.partition.acknowledged(cluster.append())
    assert waiting is not None
    cluster.alive.pop(SECOND)
    cluster.partition.check_followers(cluster.now_ms)
    assert not waiting.done()
    answer = cluster.partition.reject(change, ErrorCode.INELIGIBLE_REPLICA, now_ms=cluster.now_ms)
    assert answer is Rejection.UNDONE
    await waiting


async def test_a_member_that_stops_is_proposed_to_leave(outside: Outside) -> None:
    """After the lag the leader asks for an ISR without it; it commits when that is confirmed."""
    cluster = Cluster(outside)
    cluster.lead([ME, SECOND])
    waiting = cluster.partition.acknowledged(cluster.append())
    assert waiting is not None
    cluster.now_ms += LAG_MS
    cluster.partition.check_followers(cluster.now_ms)
    assert not cluster.proposed
    cluster.now_ms += 1
    cluster.partition.check_followers(cluster.now_ms)
    [change] = cluster.proposed
    assert list(change.isr) == [ME]
    assert not waiting.done()
    cluster.partition.confirm(
        change, [ME], leader_epoch=5, partition_epoch=11, now_ms=cluster.now_ms
    )
    await waiting


async def test_a_stranger_is_no_follower(outside: Outside) -> None:
    """A broker that is no replica learns that its leader epoch is unknown here."""
    cluster = Cluster(outside)
    cluster.lead([ME], replicas=[ME])
    with pytest.raises(NotReplicaError):
        cluster.fetch(SECOND, 0)


async def test_a_client_that_has_gone_holds_up_nobody(outside: Outside) -> None:
    """Waiting can be cancelled; those that wait for the same offset are acknowledged."""
    cluster = Cluster(outside)
    cluster.lead([ME, SECOND])
    end = cluster.append()
    first, second = cluster.partition.acknowledged(end), cluster.partition.acknowledged(end)
    assert first is not None
    assert second is not None
    first.cancel()
    cluster.fetch(SECOND, 1)
    await second


async def test_requests_that_have_timed_out_take_no_memory(outside: Outside) -> None:
    """A watermark may stand still for hours, while producers send the same batch again."""
    cluster = Cluster(outside)
    cluster.lead([ME, SECOND])
    end = cluster.append()
    staying = [cluster.partition.acknowledged(end) for _ in range(10)]
    known = WeakSet[object]()
    for _ in range(10_000):
        waiting = cluster.partition.acknowledged(end)
        assert waiting is not None
        known.add(waiting)
        waiting.cancel()
    assert len(known) < 200
    cluster.fetch(SECOND, 1)
    assert all(each is not None and each.done() and not each.cancelled() for each in staying)


async def test_a_lower_minimum_commits_what_has_waited(outside: Outside) -> None:
    """A change of `min.insync.replicas` counts for records that are there already."""
    cluster = Cluster(outside, insync_min=2)
    cluster.lead([ME])
    waiting = cluster.partition.acknowledged(cluster.append())
    assert waiting is not None
    cluster.log.config = settings(min_insync_replicas=1)
    cluster.partition.move_watermark(cluster.now_ms)
    await waiting


async def test_a_follower_begins_again_in_each_epoch(outside: Outside) -> None:
    """Also where the leader is the same; another state of the epoch is no beginning."""
    cluster = Cluster(outside)
    assert cluster.follow(epoch=6, partition_epoch=11)
    assert not cluster.follow(epoch=6, partition_epoch=12)
    assert cluster.follow(epoch=7, partition_epoch=13)
    assert not cluster.follow(epoch=8, partition_epoch=13)
    assert not cluster.follow(epoch=5, partition_epoch=9)
    assert (cluster.partition.leader_epoch, cluster.partition.leader_id) == (7, SECOND)
    assert cluster.partition.leadership is None


async def test_an_epoch_begins_once(outside: Outside) -> None:
    """A new state of the same epoch moves neither its start nor the progress of followers."""
    cluster = Cluster(outside)
    cluster.lead(epoch=5)
    end = cluster.append()
    cluster.fetch(SECOND, end)
    assert not cluster.lead([ME, SECOND], epoch=5, partition_epoch=11)
    assert cluster.log.epochs.entries == (EpochEntry(LeaderEpoch(5), Offset(0)),)
    assert cluster.watermark == end


@pytest.mark.parametrize(
    ("isr", "insync_min", "spare", "is_under_replicated"),
    [(ALL, 2, 1, False), ((ME, SECOND), 2, 0, True), ((ME,), 2, -1, True), ((ME,), 1, 0, True)],
)
async def test_members_above_the_minimum_are_counted(
    outside: Outside, isr: Sequence[int], insync_min: int, spare: int, *, is_under_replicated: bool
) -> None:
    """The ISR that the controller has confirmed counts, not what is proposed."""
    cluster = Cluster(outside, insync_min=insync_min)
    cluster.lead(isr)
    for each in (SECOND, THIRD):
        cluster.fetch(each, 0)
    assert cluster.partition.insync_spare == spare
    assert cluster.partition.leadership is not None
    assert cluster.partition.leadership.is_under_replicated is is_under_replicated


async def test_changes_of_the_isr_are_logged(
    outside: Outside, caplog: pytest.LogCaptureFixture
) -> None:
    """Proposals, the controller's answers, and what follows from a refusal."""
    caplog.set_level("INFO")
    cluster = Cluster(outside)
    cluster.lead([ME])
    cluster.fetch(SECOND, 0)
    cluster.partition.reject(
        cluster.proposed[0], ErrorCode.INELIGIBLE_REPLICA, now_ms=cluster.now_ms
    )
    cluster.fetch(SECOND, 0)
    cluster.partition.confirm(
        cluster.proposed[1], [ME, SECOND], leader_epoch=5, partition_epoch=11, now_ms=NOW
    )
    proposed = "isr_change_proposed partition=flights-0 isr=1,2 joining=2 leader_epoch=5 "
    refused = "isr_change_refused partition=flights-0 isr=1,2 code=INELIGIBLE_REPLICA "
    assert caplog.messages == [
        f"{proposed}partition_epoch=10",
        f"{refused}consequence=the committed ISR counts again",
        f"{proposed}partition_epoch=10",
        "isr_changed partition=flights-0 isr=1,2 partition_epoch=11",
    ]
