"""`MetadataFetch`: the log of a scripted quorum, followed through elections, snapshots and lies."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest

from tailrace.broker.kraft.metadata_fetch import (
    OtherClusterError,
)
from tailrace.client.nodes import Node
from tailrace.cluster.metadata.batches import BatchPlace, RecordToWrite, data_batch
from tailrace.cluster.metadata.delta import MetadataFaultError
from tailrace.cluster.metadata.image import EVERYTHING_CHANGED, MetadataImage
from tailrace.cluster.metadata.observer import DivergedError
from tailrace.cluster.metadata.snapshot_files import find_snapshots
from tailrace.errors import DirectoryError
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import Records
from tailrace.protocol.messages.fetch import (
    EpochEndOffset,
    FetchResponse,
    LeaderIdAndEpoch,
    SnapshotId,
)
from tailrace.protocol.messages.fetch_snapshot import FetchSnapshotResponse
from tailrace.protocol.metadata_records import (
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    NoOpRecord,
    RemoveTopicRecord,
)
from tailrace.testing import Outside
from tailrace.testing.controller import ScriptedController
from tailrace.testing.script import FaultKind
from tailrace.values import replace
from tests.unit.broker.kraft.metadata_followers import MetadataFollower
from tests.unit.cluster.metadata_logs import FOLDER, setting, value_in

NO_OP = RecordToWrite(NoOpRecord(), 0)


def append(quorum: ScriptedController, *records: RecordToWrite) -> None:
    """Append and commit records past the rules of the controller."""
    quorum.log.append(records, epoch=quorum.epoch, now_ms=0)
    quorum.log.commit(quorum.log.end_offset)
    quorum.wake()


@pytest.fixture
def quorum(outside: Outside) -> Iterator[ScriptedController]:
    """A quorum of three, the first of which leads."""
    controller = ScriptedController(outside, nodes=3)
    controller.start()
    yield controller
    outside.run(controller.close())


async def test_a_broker_that_starts_with_nothing_gets_the_image(
    outside: Outside, quorum: ScriptedController
) -> None:
    """One image when all that is committed is in it, then one for each change, with what it is."""
    quorum.append([setting(1)])
    following = MetadataFollower(outside, quorum)
    async with following.running() as fetch:
        await fetch.caught_up.wait()
        [(image, change, offset)] = following.published
        assert change == EVERYTHING_CHANGED
        assert image == quorum.image
        assert offset == fetch.applied_offset == quorum.log.watermark - 1
        assert fetch.leader == Node(100, quorum.host, quorum.nodes[100].port)
        assert (fetch.epoch, following.leaders) == (1, [fetch.leader])
        quorum.append([setting(2)])
        await following.until_equal()
        [_, (_, change, offset)] = following.published
        assert [each.name for each in change.configs or ()] == ["t"]
        assert change.topics == frozenset()
        assert offset == quorum.log.watermark - 1


async def test_nothing_is_published_before_the_committed_end(
    outside: Outside, quorum: ScriptedController
) -> None:
    """A long log comes in many answers, and there is no image of its beginning."""
    for value in range(200):
        quorum.append([setting(value, f"t{value}")])
    following = MetadataFollower(outside, quorum)
    async with following.running(bytes_max=1000) as fetch:
        await fetch.caught_up.wait()
        assert len(following.published) == 1
        assert following.image == quorum.image
    assert quorum.counts[ApiKey.FETCH] > 10


async def test_an_empty_log_is_not_published(outside: Outside) -> None:
    """MetadataLoaderTest.testNoPublishEmptyImage: a leader alone is no cluster yet."""
    quorum = ScriptedController(outside)
    quorum._first = MetadataImage()
    quorum.start()
    following = MetadataFollower(outside, quorum)
    async with following.running() as fetch:
        await following.until(lambda: following.log.high_watermark == 1)
        await outside.pass_time(5)
        assert not fetch.caught_up.is_set()
        quorum.append(
            [RecordToWrite(FeatureLevelRecord(name="metadata.version", feature_level=30), 0)]
        )
        await fetch.caught_up.wait()
    await quorum.close()


async def test_uncommitted_records_are_fetched_and_not_published(
    outside: Outside, quorum: ScriptedController
) -> None:
    """They count as soon as the watermark has passed them, which the leader says at once."""
    following = MetadataFollower(outside, quorum)
    async with following.running():
        await following.until_equal()
        quorum.hold_commits()
        quorum.append([setting(1)])
        await following.until(lambda: following.log.end_offset == quorum.log.end_offset)
        await outside.pass_time(3)
        assert len(following.published) == 1
        start_s = outside.loop.time()
        quorum.release_commits()
        await following.until_equal()
        assert outside.loop.time() - start_s < 0.1
        assert value_in(following.image) == 1


async def test_an_offset_without_a_change_is_published_too(
    outside: Outside, quorum: ScriptedController
) -> None:
    """MetadataLoaderTest.testLastAppliedOffset: heartbeats carry it, and a NoOp moves it."""
    following = MetadataFollower(outside, quorum)
    async with following.running() as fetch:
        await following.until_equal()
        before = following.image
        quorum.append([NO_OP])
        await following.until(lambda: len(following.published) == 2)
        assert following.image is before
        assert fetch.applied_offset == quorum.log.watermark - 1
        await outside.pass_time(5)
        assert len(following.published) == 2


async def test_a_transaction_is_published_as_one(
    outside: Outside, quorum: ScriptedController
) -> None:
    """MetadataLoaderTest.testPublishTransaction: its records come with its end (KIP-868)."""
    following = MetadataFollower(outside, quorum)
    async with following.running() as fetch:
        await following.until_equal()
        before = fetch.applied_offset
        begin = RecordToWrite(BeginTransactionRecord(), 0)
        append(quorum, setting(1, "before"), begin)
        append(quorum, setting(2))
        await following.until(lambda: following.log.next_offset == quorum.log.watermark)
        assert value_in(following.image, "before") == 1
        assert value_in(following.image) is None
        assert fetch.applied_offset == before
        append(quorum, RecordToWrite(EndTransactionRecord(), 0))
        await following.until_equal()
        assert value_in(following.image) == 2


async def test_a_new_leader_is_found_by_any_server_of_the_settings(
    outside: Outside, quorum: ScriptedController
) -> None:
    """Killed, moved, restarted: records go on, and each epoch was noted before it counted."""
    following = MetadataFollower(outside, quorum)
    servers = [Node(-1 - n, quorum.host, each.port) for n, each in enumerate(quorum.nodes.values())]
    async with following.running(*servers) as fetch:
        await following.until_equal()
        for number, next_leader in enumerate((101, 102, 102, 100)):
            # From a live leader, from one that is gone, and from one that has restarted.
            if number in (1, 2):
                quorum.kill()
            quorum.move(next_leader)
            quorum.append([setting(number)])
            await following.until_equal()
            assert fetch.leader is not None
            assert (fetch.leader.id, fetch.epoch) == (quorum.leader_id, quorum.epoch)
            assert value_in(following.image) == number
    assert [each.id for each in following.leaders if each] == [100, 101, 102, 100]


async def test_voters_of_the_settings_are_followed_without_addresses_in_answers(
    outside: Outside, quorum: ScriptedController
) -> None:
    """`controller.quorum.voters` has ids and addresses; an answer then needs the id alone."""
    quorum.script.add(
        ApiKey.FETCH, FaultKind.EDIT, times=99, edit=lambda found: replace(found, node_endpoints=())
    )
    following = MetadataFollower(outside, quorum)
    servers = [Node(each.id, quorum.host, each.port) for each in quorum.nodes.values()]
    async with following.running(*servers) as fetch:
        await following.until_equal()
        quorum.move(102)
        await following.until(lambda: fetch.leader == servers[2])
        quorum.append([setting(3)])
        await following.until_equal()


async def test_a_silent_leader_is_left_after_its_time(
    outside: Outside, quorum: ScriptedController
) -> None:
    """Its connection stays open; another server knows the next leader (2 s as in Kafka)."""
    following = MetadataFollower(outside, quorum)
    servers = [Node(-1 - n, quorum.host, each.port) for n, each in enumerate(quorum.nodes.values())]
    async with following.running(*servers) as fetch:
        await following.until_equal()
        quorum.script.add(ApiKey.FETCH, FaultKind.LOSE)
        start_s = outside.loop.time()
        quorum.append([setting(1)])
        quorum.move(101)
        await following.until_equal()
        assert outside.loop.time() - start_s < 4
        assert fetch.leader is not None
        assert fetch.leader.id == 101


async def test_an_uncommitted_end_is_cut_after_an_election(
    outside: Outside, quorum: ScriptedController
) -> None:
    """The leader says where its log differs, and that is all that is fetched again."""
    following = MetadataFollower(outside, quorum)
    async with following.running():
        await following.until_equal()
        quorum.hold_commits()
        quorum.append([setting(1)])
        quorum.append([setting(2)])
        await following.until(lambda: following.log.end_offset == quorum.log.end_offset)
        quorum.restart(loses_uncommitted=True)
        quorum.append([setting(3)])
        quorum.release_commits()
        await following.until_equal()
        assert [value_in(image) for image, _, _ in following.published] == [None, 3]


async def test_a_snapshot_is_fetched_in_parts(outside: Outside, quorum: ScriptedController) -> None:
    """At a first start, and when the leader has removed what is missing here."""
    following = MetadataFollower(outside, quorum)
    for value in range(50):
        quorum.append([setting(value, f"t{value}")])
    quorum.snapshot()
    async with following.running(snapshot_bytes_max=300):
        await following.until_equal()
        assert following.published[0][2] == quorum.log.watermark - 1
    parts = quorum.counts[ApiKey.FETCH_SNAPSHOT]
    assert parts > 5
    quorum.append([setting(1)])
    quorum.snapshot()
    quorum.append([setting(2)])
    async with following.running():
        await following.until_equal()
    assert quorum.counts[ApiKey.FETCH_SNAPSHOT] > parts
    assert following.published[1][1] == EVERYTHING_CHANGED


async def test_a_snapshot_goes_on_when_the_leader_was_lost(
    outside: Outside, quorum: ScriptedController
) -> None:
    """MetadataLoaderTest.testReloadSnapshot: parts that have come are not fetched twice."""
    following = MetadataFollower(outside, quorum)
    for value in range(50):
        quorum.append([setting(value, f"t{value}")])
    key = quorum.snapshot()
    quorum.script.add(ApiKey.FETCH_SNAPSHOT, FaultKind.CUT_AFTER, skip=3)
    async with following.running(snapshot_bytes_max=300):
        await following.until_equal()
    size = len(quorum.log.snapshots[key])
    assert quorum.counts[ApiKey.FETCH_SNAPSHOT] == -(-size // 300) + 1


async def test_a_snapshot_that_is_gone_is_asked_for_anew(
    outside: Outside, quorum: ScriptedController
) -> None:
    """Kafka 4.3.1 answers -1 there; the next Fetch names the snapshot that there is."""
    following = MetadataFollower(outside, quorum)
    quorum.append([setting(1)])
    old = quorum.snapshot()
    quorum.script.add(
        ApiKey.FETCH_SNAPSHOT,
        FaultKind.EDIT,
        skip=1,
        edit=lambda found: replace(found, error_code=-1, topics=()),
    )
    async with following.running(snapshot_bytes_max=100):
        await following.until(lambda: quorum.counts.get(ApiKey.FETCH_SNAPSHOT, 0) == 2)
        quorum.append([setting(2)])
        del quorum.log.snapshots[old]
        new = quorum.snapshot()
        await following.until_equal()
    assert value_in(following.image) == 2
    assert new.end_offset in {each.next_offset for each in find_snapshots(outside.files, FOLDER)}
    assert not [each for each in outside.files.list(FOLDER) if each.endswith(".part")]


async def test_own_snapshots_follow_the_settings(
    outside: Outside, quorum: ScriptedController
) -> None:
    """The next start begins with one, and fetches no record again."""
    following = MetadataFollower(outside, quorum, snapshot_bytes=500)
    async with following.running():
        for value in range(30):
            quorum.append([setting(value)])
            await following.until_equal()
    assert find_snapshots(outside.files, FOLDER)
    end = following.log.end_offset
    async with following.running():
        assert following.log.next_offset > 10
        assert following.log.end_offset == end
        await following.until_equal()


async def test_the_next_start_continues_with_its_log(
    outside: Outside, quorum: ScriptedController
) -> None:
    """Nothing is published before the leader has said what is committed."""
    following = MetadataFollower(outside, quorum)
    async with following.running():
        await following.until_equal()
    count = len(following.published)
    quorum.cut_off(following.node_id)
    async with following.running() as fetch:
        await outside.pass_time(10)
        assert len(following.published) == count
        assert not fetch.caught_up.is_set()
        quorum.reconnect()
        quorum.append([setting(5)])
        await following.until_equal()
    assert following.told == []


async def test_a_short_time_limit_shortens_the_wait_of_the_leader(
    outside: Outside, quorum: ScriptedController
) -> None:
    """Kafka's leader waits half a second for news; an idle one would seem to be silent."""
    following = MetadataFollower(outside, quorum)
    async with following.running(request_timeout_ms=100) as fetch:
        await following.until_equal()
        await outside.pass_time(5)
        assert fetch.statistics().failures == 0


async def test_a_step_on_a_thread_is_waited_for(
    outside: Outside, quorum: ScriptedController
) -> None:
    """The owner closes the log after the task, which no thread may be writing to then."""
    following = MetadataFollower(outside, quorum)
    async with following.running():
        await following.until_equal()
        outside.threads.seconds_per_run = 7.0
        quorum.append([setting(1)])
        await outside.pass_time(1)
        start_s = outside.loop.time()
        following.task.cancel()
        await asyncio.wait([following.task])
        assert 5 < outside.loop.time() - start_s < 7
        assert following.log.end_offset == quorum.log.end_offset
        outside.threads.seconds_per_run = 0.0
    async with following.running():
        await following.until_equal()
    assert following.told == []


# -- lies and damage --------------------------------------------------------------------------


def with_part(found: FetchResponse, **changes: Any) -> FetchResponse:
    """The answer with other fields of its partition."""
    [topic] = found.responses
    [part] = topic.partitions
    return replace(found, responses=(replace(topic, partitions=(replace(part, **changes),)),))


def octets(records: Records) -> bytes:
    """The bytes of an answer that was made in this test."""
    assert isinstance(records, bytes)
    return records


def damaged(found: FetchResponse) -> FetchResponse:
    """The answer with a flipped bit in its last record."""
    records = octets(found.responses[0].partitions[0].records or b"") or bytes(70)
    return with_part(found, records=records[:-1] + bytes([records[-1] ^ 1]))


LIES: dict[str, Callable[[FetchResponse], FetchResponse]] = {
    "damage": damaged,
    "an offset again": lambda found: with_part(
        found, records=data_batch([setting(9)], BatchPlace(0, 1, 0))
    ),
    "a gap": lambda found: with_part(found, records=data_batch([setting(9)], BatchPlace(99, 1, 0))),
    "a later epoch": lambda found: with_part(
        found,
        records=data_batch(
            [setting(9)], BatchPlace(found.responses[0].partitions[0].high_watermark, 7, 0)
        ),
    ),
    "no batch": lambda found: with_part(found, records=b"HTTP/1.1 400 Bad Request\r\n" * 9),
    "half a batch": lambda found: with_part(
        found, records=data_batch([setting(9)], BatchPlace(3, 1, 0))[:70]
    ),
    "a watermark that goes back": lambda found: with_part(found, high_watermark=1),
    "an older epoch": lambda found: with_part(
        found, current_leader=LeaderIdAndEpoch(leader_id=100, leader_epoch=0)
    ),
    "another leader": lambda found: with_part(
        found, current_leader=LeaderIdAndEpoch(leader_id=101, leader_epoch=1)
    ),
    "no leader": lambda found: with_part(
        found, current_leader=LeaderIdAndEpoch(leader_id=-1, leader_epoch=1)
    ),
    "this node as leader": lambda found: with_part(
        found, current_leader=LeaderIdAndEpoch(leader_id=2, leader_epoch=2)
    ),
    "no id as leader": lambda found: with_part(
        found, current_leader=LeaderIdAndEpoch(leader_id=-7, leader_epoch=2)
    ),
    "another partition": lambda found: with_part(found, partition_index=1),
    "no partition": lambda found: replace(found, responses=()),
    "two partitions": lambda found: replace(found, responses=found.responses * 2),
    "a log that does not differ": lambda found: with_part(
        found, diverging_epoch=EpochEndOffset(epoch=1, end_offset=1 << 40)
    ),
    "an old snapshot": lambda found: with_part(
        found, snapshot_id=SnapshotId(end_offset=1, epoch=1)
    ),
    "a snapshot of an epoch to come": lambda found: with_part(
        found, snapshot_id=SnapshotId(end_offset=1 << 40, epoch=9)
    ),
    "a snapshot above the watermark": lambda found: with_part(
        found, snapshot_id=SnapshotId(end_offset=1 << 40, epoch=1)
    ),
    "a snapshot that is not there": lambda found: with_part(
        found, snapshot_id=SnapshotId(end_offset=1 << 40, epoch=1), high_watermark=-1
    ),
    "a wrong request": lambda found: replace(
        found, error_code=ErrorCode.INVALID_REQUEST, responses=()
    ),
    "an error of the partition": lambda found: with_part(
        found, error_code=ErrorCode.UNKNOWN_SERVER_ERROR
    ),
    "itself as the wrong leader": lambda found: with_part(
        found, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER
    ),
}


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("skip", [0, 2])
async def test_an_answer_that_cannot_be_right_changes_nothing(
    outside: Outside, quorum: ScriptedController, lie: str, skip: int
) -> None:
    """It is logged, and asked again after a pause, of all servers in turn: nothing is lost."""
    following = MetadataFollower(outside, quorum)
    quorum.append([setting(1)])
    async with following.running() as fetch:
        await following.until_equal()
        quorum.script.add(ApiKey.FETCH, FaultKind.EDIT, edit=LIES[lie], times=5, skip=skip)
        before = quorum.counts[ApiKey.FETCH]
        for value in range(2, 6):
            quorum.append([setting(value)])
            await outside.pass_time(0.2)
        await following.until(lambda: not quorum.script.faults)
        quorum.append([setting(6)])
        await following.until_equal()
        assert value_in(following.image) == 6
        assert quorum.counts[ApiKey.FETCH] - before < 40
        assert fetch.statistics().failures == 0
    found = [value_in(image) for image, _, _ in following.published]
    assert found == sorted(found, key=lambda each: each or 0)
    offsets = [offset for _, _, offset in following.published]
    assert offsets == sorted(offsets)


async def test_a_lie_that_lasts_is_asked_about_rarely(
    outside: Outside, quorum: ScriptedController, caplog: pytest.LogCaptureFixture
) -> None:
    """Each pause is longer, up to a second, and one line says so."""
    following = MetadataFollower(outside, quorum)
    async with following.running():
        await following.until_equal()
        quorum.script.add(ApiKey.FETCH, FaultKind.EDIT, edit=damaged, times=10**6)
        # The Fetch that waits now is answered before.
        await outside.pass_time(1)
        quorum.append([setting(1)])
        before = quorum.counts[ApiKey.FETCH]
        await outside.pass_time(100)
        assert quorum.counts[ApiKey.FETCH] - before < 250
        assert len(following.published) == 1
    lines = [each for each in caplog.messages if each.startswith("metadata_not_fetched")]
    assert len(lines) == 1
    assert "has sent records that cannot be right" in lines[0]


def part_of(found: FetchSnapshotResponse, **changes: Any) -> FetchSnapshotResponse:
    """The answer with other fields of its partition."""
    [topic] = found.topics
    [part] = topic.partitions
    return replace(found, topics=(replace(topic, partitions=(replace(part, **changes),)),))


SNAPSHOT_LIES: dict[str, Callable[[FetchSnapshotResponse], FetchSnapshotResponse]] = {
    "another size": lambda found: part_of(found, size=10**6),
    "another place": lambda found: part_of(found, position=5),
    "nothing": lambda found: part_of(found, unaligned_records=b""),
    "too much": lambda found: part_of(found, unaligned_records=bytes(10**4)),
    "damage": lambda found: part_of(
        found,
        unaligned_records=octets(found.topics[0].partitions[0].unaligned_records)[:-1] + b"\xff",
    ),
    "an endless one": lambda found: part_of(found, size=1 << 40),
    "another snapshot": lambda found: part_of(
        found, snapshot_id=replace(found.topics[0].partitions[0].snapshot_id, epoch=0)
    ),
    "an error": lambda found: part_of(found, error_code=ErrorCode.POSITION_OUT_OF_RANGE),
    "another partition": lambda found: part_of(found, index=3),
    "no partition": lambda found: replace(found, topics=()),
}


@pytest.mark.parametrize("lie", SNAPSHOT_LIES)
@pytest.mark.parametrize("skip", [0, 2])
async def test_a_snapshot_that_cannot_be_right_is_fetched_again(
    outside: Outside, quorum: ScriptedController, lie: str, skip: int
) -> None:
    """The parts that have come are removed, and nothing of them is published."""
    following = MetadataFollower(outside, quorum)
    for value in range(20):
        quorum.append([setting(value, f"t{value}")])
    quorum.snapshot()
    quorum.script.add(
        ApiKey.FETCH_SNAPSHOT, FaultKind.EDIT, edit=SNAPSHOT_LIES[lie], times=3, skip=skip
    )
    async with following.running(snapshot_bytes_max=400):
        await following.until_equal()
        assert following.image == quorum.image
        assert not [each for each in outside.files.list(FOLDER) if each.endswith(".part")]


# -- what ends it -----------------------------------------------------------------------------


async def test_another_cluster_ends_it(outside: Outside, quorum: ScriptedController) -> None:
    """No retry makes it right: the sentence names the id and the two files to correct."""
    following = MetadataFollower(outside, quorum)
    following.cluster_id = "another"
    async with following.running():
        with pytest.raises(OtherClusterError, match=r"id than another.*bootstrap\.servers"):
            await following.task
    assert following.published == []


async def test_committed_records_that_the_quorum_has_lost_end_it(
    outside: Outside, quorum: ScriptedController
) -> None:
    """A quorum that was restored from an older copy is not the one that this broker has served."""
    following = MetadataFollower(outside, quorum)
    quorum.append([setting(1)])
    async with following.running():
        await following.until_equal()
        quorum.log.batches.pop()
        quorum.log.watermark = quorum.log.end_offset
        quorum.restart()
        with pytest.raises(DivergedError, match="older copy"):
            await following.task
    assert value_in(following.image) == 1


@pytest.mark.parametrize(
    ("record", "error"),
    [
        (RemoveTopicRecord(topic_id=UUID(int=5)), MetadataFaultError),
        (FeatureLevelRecord(name="metadata.version", feature_level=99), DirectoryError),
    ],
)
@pytest.mark.parametrize("is_first", [True, False])
async def test_a_committed_record_that_cannot_be_applied_ends_it(
    outside: Outside,
    quorum: ScriptedController,
    record: Any,
    error: type[Exception],
    *,
    is_first: bool,
) -> None:
    """Kafka's brokers go on without it once they have started; here nothing wrong is served."""
    following = MetadataFollower(outside, quorum)
    bad = RecordToWrite(record, 0)
    async with following.running():
        if not is_first:
            await following.until_equal()
        append(quorum, setting(1), bad)
        with pytest.raises(error):
            await following.task
    assert len(following.published) == (not is_first)


async def test_a_full_disk_ends_nothing(outside: Outside, quorum: ScriptedController) -> None:
    """The image stays, and follows again once there is room."""
    following = MetadataFollower(outside, quorum)
    async with following.running():
        await following.until_equal()
        outside.files.capacity_bytes = 0
        quorum.append([setting(1)])
        await outside.pass_time(10)
        assert len(following.published) == 1
        outside.files.capacity_bytes = None
        await following.until_equal()
        assert value_in(following.image) == 1
