"""A broker over several log directories: one of them fails, at the start or while it serves."""

import asyncio
import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tailrace.broker.broker import RunningBroker
from tailrace.broker.config import broker_config
from tailrace.broker.start import start_broker
from tailrace.errors import ConfigError, DirectoryError
from tailrace.model import TopicPartition
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from tailrace.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
)
from tailrace.replication.replicas import Replicas, ReplicaStatistics
from tailrace.testing import DiskFault, MemoryFiles, Outside, Peer, virtual_runtime
from tailrace.testing.files import move_content
from tailrace.testing.outside import InlineThreads
from tests.unit.broker.brokers import (
    batch,
    connect,
    create_topic,
    fetch,
    fetch_request,
    produce,
    running,
)
from tests.unit.storage.test_manager import create, manager

TWO = {"log.dirs": "a,b"}


@asynccontextmanager
async def with_two_topics(outside: Outside) -> AsyncIterator[tuple[RunningBroker, Peer]]:
    """A broker with topic `here` in directory a and `there` in b, a record in each."""
    async with running(outside, TWO) as broker:
        peer = connect(outside, broker)
        for name in ("here", "there"):
            await create_topic(peer, name)
            assert (await produce(peer, name, batch(b"x"))).error_code == ErrorCode.NONE
        assert outside.files.exists("a/here-0")
        assert outside.files.exists("b/there-0")
        yield broker, peer


def filled_disk() -> MemoryFiles:
    """The disk that such a broker leaves."""

    async def scenario(outside: Outside) -> None:
        async with with_two_topics(outside):
            pass

    with virtual_runtime() as outside:
        outside.run(scenario(outside))
        return outside.files.crash()


async def partition_of(peer: Peer, topic: str) -> MetadataResponsePartition:
    """Partition 0 in the broker's metadata."""
    request = MetadataRequest(topics=(MetadataRequestTopic(name=topic),))
    response = await peer.ask(ApiKey.METADATA, request, MetadataResponse)
    return response.topics[0].partitions[0]


async def is_served(peer: Peer, topic: str) -> bool:
    """Whether a topic is written, read and led; checks that it is all or nothing."""
    written = await produce(peer, topic, batch(b"more"))
    read = await fetch(peer, fetch_request(topic, max(written.base_offset, 0)))
    led = await partition_of(peer, topic)
    if written.error_code == ErrorCode.NONE:
        assert (read.error_code, led.error_code) == (ErrorCode.NONE, ErrorCode.NONE)
        assert (led.leader_id, led.offline_replicas) == (1, ())
        return True
    assert written.error_code == read.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert (led.error_code, led.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    assert (led.replica_nodes, led.offline_replicas) == ((1,), (1,))
    return False


FAULTS = {
    "append": DiskFault(operation="write", path_part="b/there-0"),
    "checkpoint": DiskFault(operation="write", path_part="b/recovery-point"),
    "log start checkpoint": DiskFault(operation="write", path_part="b/log-start"),
    "flush": DiskFault(operation="sync", path_part="b/there-0/0"),
    "flush on a full disk": DiskFault(
        operation="sync", path_part="b/there-0/0", error=errno.ENOSPC
    ),
    "retention": DiskFault(operation="rename", path_part="b/there-0"),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
async def test_a_failing_device_takes_its_directory_and_no_other(
    outside: Outside, fault: DiskFault, caplog: pytest.LogCaptureFixture
) -> None:
    """Any failed call takes it out of service; it is logged once, and the disk is left alone."""
    async with running(outside, TWO) as broker:
        peer = connect(outside, broker)
        short = {"retention.ms": "1000", "flush.ms": "1000", "internal.segment.bytes": "200"}
        for name in ("here", "there"):
            await create_topic(peer, name, configs=short)
        outside.files.faults.append(fault)
        for number in range(20):
            for name in ("here", "there"):
                await produce(peer, name, batch(b"%d" % number))
            await outside.pass_time(30)
        assert await is_served(peer, "here")
        assert not await is_served(peer, "there")
        assert not broker.failed.is_set()
        told = [line for line in caplog.messages if line.startswith("directory_failed path=b")]
        assert len(told) == 1
        before = [path for _, path in outside.files.operations if path.startswith("b/")]
        await outside.pass_time(3600)
        after = [path for _, path in outside.files.operations if path.startswith("b/")]
        assert after == before


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT])
async def test_a_full_disk_is_no_failure(outside: Outside, error: int) -> None:
    """Records and checkpoints are refused, and taken again when there is room."""
    async with with_two_topics(outside) as (broker, peer):
        outside.files.faults.append(DiskFault(operation="write", path_part="b/", error=error))
        assert (await produce(peer, "there", batch(b"x"))).error_code == 56
        await outside.pass_time(500)
        outside.files.faults.clear()
        assert await is_served(peer, "there")
        assert broker.logs.is_complete


def test_a_waiting_fetch_is_told_that_its_directory_has_failed() -> None:
    """The fetch is answered at once, not at its deadline."""

    async def scenario(outside: Outside) -> None:
        async with with_two_topics(outside) as (broker, peer):
            request = fetch_request("there", 1, max_wait_ms=60_000)
            waiting = asyncio.ensure_future(fetch(connect(outside, broker), request))
            await outside.pass_time(1)
            outside.files.faults.append(FAULTS["append"])
            await produce(peer, "there", batch(b"x"))
            assert (await waiting).error_code == ErrorCode.KAFKA_STORAGE_ERROR

    with virtual_runtime() as outside:
        outside.run(scenario(outside))
        assert outside.loop.time() < 2


def test_a_topic_on_a_failed_directory_can_be_deleted() -> None:
    """Its folder goes when the next start finds it again."""

    async def delete(outside: Outside) -> None:
        async with with_two_topics(outside) as (_, peer):
            outside.files.faults.append(FAULTS["append"])
            await produce(peer, "there", batch(b"x"))
            request = DeleteTopicsRequest(topics=(DeleteTopicState(name="there"),))
            answer = await peer.ask(ApiKey.DELETE_TOPICS, request, DeleteTopicsResponse)
            assert answer.responses[0].error_code == ErrorCode.NONE
            assert (await create_topic(peer, "there")).error_code == ErrorCode.NONE
            assert outside.files.exists("b/there-0")
            await peer.ask(ApiKey.DELETE_TOPICS, request, DeleteTopicsResponse)

    async def look(outside: Outside) -> None:
        async with running(outside, TWO) as broker:
            assert set(broker.controller.image.topics) == {"here"}
            assert not outside.files.exists("b/there-0")

    with virtual_runtime() as outside:
        outside.run(delete(outside))
        disk = outside.files.crash()
    with virtual_runtime(files=disk) as outside:
        outside.run(look(outside))


def test_a_topic_that_was_deleted_while_its_disk_was_away_stays_deleted() -> None:
    """The topic stays deleted, even if the broker was started once without that disk."""

    async def delete(outside: Outside) -> None:
        async with running(outside, TWO) as broker:
            request = DeleteTopicsRequest(topics=(DeleteTopicState(name="there"),))
            peer = connect(outside, broker)
            answer = await peer.ask(ApiKey.DELETE_TOPICS, request, DeleteTopicsResponse)
            assert answer.responses[0].error_code == ErrorCode.NONE

    async def look(outside: Outside) -> None:
        async with running(outside, TWO) as broker:
            assert set(broker.controller.image.topics) == {"here"}

    disk = filled_disk()
    for step, is_away in ((delete, True), (look, True), (look, False)):
        fault = DiskFault(operation="remove", path_part="b/.kafka_cleanshutdown")
        disk.faults = [fault] if is_away else []
        with virtual_runtime(files=disk) as outside:
            outside.run(step(outside))
            disk = outside.files.crash()
    assert not disk.exists("b/there-0")


async def test_new_partitions_go_to_the_directories_that_are_left(outside: Outside) -> None:
    """The failed directory gets none, although it has the fewest partitions."""
    async with with_two_topics(outside) as (_, peer):
        outside.files.faults.append(FAULTS["append"])
        await produce(peer, "there", batch(b"x"))
        await create_topic(peer, "new", partitions=4)
        assert await is_served(peer, "new")
        assert outside.files.exists("a/new-3")


@pytest.mark.parametrize("directories", ["a", "a,b"])
async def test_a_broker_ends_with_its_first_directory(outside: Outside, directories: str) -> None:
    """The only one, or that with the cluster's state: the answer leaves, then the port closes."""
    async with running(outside, {"log.dirs": directories}) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t")
        outside.files.faults.append(DiskFault(operation="write", path_part="a/t-0"))
        answer = await produce(peer, "t", batch(b"x"))
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        async with asyncio.timeout(1):
            await broker.failed.wait()
        assert await peer.is_closed()


@pytest.mark.parametrize(
    "fault",
    [
        DiskFault(operation="make_directory", path_part="b", error=errno.EACCES),
        DiskFault(operation="open", path_part="b/.lock"),
        DiskFault(operation="exists", path_part="b/"),
        DiskFault(operation="remove", path_part="b/.kafka_cleanshutdown"),
        DiskFault(operation="sync_directory", path_part="b"),
    ],
    ids=lambda fault: fault.operation,
)
def test_a_directory_that_is_unusable_at_the_start_is_left_out(
    fault: DiskFault, caplog: pytest.LogCaptureFixture
) -> None:
    """It is one error line; its partitions are not created elsewhere, and return with the disk."""

    class Refusing(MemoryFiles):
        """A disk of which one directory refuses, whatever is there."""

        def make_directory(self, path: str, *, is_private: bool = False) -> None:
            """Make a directory; one that exists may be refused too."""
            if fault.operation == "make_directory" and path == "b":
                self.count("make_directory", path)
            super().make_directory(path, is_private=is_private)

        def lock(self, path: str):  # type: ignore[no-untyped-def] # noqa: ANN202
            """Lock a file; one that exists may be refused too."""
            self.count("open", path)
            return super().lock(path)

    async def without(outside: Outside) -> None:
        outside.files.faults.append(fault)
        async with running(outside, TWO) as broker:
            peer = connect(outside, broker)
            assert await is_served(peer, "here")
            assert not await is_served(peer, "there")
            assert not outside.files.exists("a/there-0")
            told = [line for line in caplog.messages if "path=b reason=cannot use b" in line]
            assert len(told) == 1
            assert told[0].startswith(("directory_left_out", "directory_failed"))
            assert not broker.failed.is_set()
        outside.files.faults.clear()

    async def again(outside: Outside) -> None:
        async with running(outside, TWO) as broker:
            peer = connect(outside, broker)
            assert await is_served(peer, "here")
            assert await is_served(peer, "there")

    disk = filled_disk()
    refusing = Refusing()
    move_content(disk, refusing)
    with virtual_runtime(files=refusing) as outside:
        outside.run(without(outside))
        disk = outside.files.crash()
    with virtual_runtime(files=disk) as outside:
        outside.run(again(outside))


def test_a_directory_that_fails_while_its_logs_are_opened_is_left_out() -> None:
    """The other one's logs are opened, and the broker serves them."""

    async def scenario(outside: Outside) -> None:
        async with running(outside, TWO) as broker:
            peer = connect(outside, broker)
            assert await is_served(peer, "here")
            assert not await is_served(peer, "there")
            assert broker.logs.directories[1].failure is not None

    disk = filled_disk()
    disk.remove("b/there-0/00000000000000000000.index")
    disk.faults.append(DiskFault(operation="open", path_part="b/there-0"))
    with virtual_runtime(files=disk) as outside:
        outside.run(scenario(outside))


@pytest.mark.parametrize(
    ("path", "meta", "said"),
    [
        ("b", b"version=1\nnode.id=9\ncluster.id=x\n", "belongs to node 9"),
        ("b", b"version=1\nnode.id=1\ncluster.id=x\n", "belongs to cluster"),
        ("a", b"version=1\nnode.id=9\ncluster.id=x\n", "belongs to node 9"),
    ],
)
def test_a_foreign_directory_stops_the_start(path: str, meta: bytes, said: str) -> None:
    """Unlike a broken one: somebody has mixed up the settings."""
    disk = filled_disk()
    disk.overwrite(f"{path}/meta.properties", meta)
    with (
        virtual_runtime(files=disk) as outside,
        pytest.raises(DirectoryError, match=said),
    ):
        outside.run(start_broker(broker_config(TWO), outside.runtime))


def test_a_start_with_no_usable_directory_is_refused() -> None:
    """One line names the first of them."""
    disk = MemoryFiles()
    disk.faults.append(DiskFault(operation="make_directory", error=errno.EROFS))
    with (
        virtual_runtime(files=disk) as outside,
        pytest.raises(DirectoryError, match=r"cannot use a .* read-only"),
    ):
        outside.run(start_broker(broker_config(TWO), outside.runtime))


def test_directories_are_given_by_either_name() -> None:
    """`log.dirs` wins over `log.dir`; spaces around commas do not matter."""
    assert broker_config({"log.dir": "one"}).directories == ("one",)
    assert broker_config({"log.dir": "x", "log.dirs": "a, b"}).directories == ("a", "b")


def test_a_directory_that_is_given_twice_is_a_fault() -> None:
    """A log directory that is given twice is refused, even under another spelling."""
    with pytest.raises(ConfigError, match="data/ is there twice"):
        broker_config({"log.dirs": "data,b,data/"})


def test_statistics_count_the_partitions_of_a_failed_directory_as_offline() -> None:
    """The others are still served."""
    logs = manager(MemoryFiles(), "a", "b")
    replicas = Replicas(logs, InlineThreads())
    logs.on_failure = replicas.directory_failed
    for number in range(4):
        replicas.add(create(logs, TopicPartition("t", number)))
    found = replicas.statistics()
    assert (found.partition_count, found.offline_count) == (4, 0)
    logs.fail(logs.directories[0], OSError("gone"))
    assert replicas.statistics() == ReplicaStatistics(
        partition_count=2,
        offline_count=2,
        leader_count=2,
        under_replicated_count=0,
        at_min_count=2,
        under_min_count=0,
    )
