"""Cordoned log directories (KIP-1066): no new logs, and controllers that know it."""

from uuid import UUID

import pytest

from tailrace.broker.config import broker_config
from tailrace.cluster.control.state import RefusedError
from tailrace.errors import ConfigError
from tailrace.model import TopicPartition
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.config_resources import ConfigOperation
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from tailrace.testing import Outside, Peer, virtual_runtime
from tests.unit.broker.brokers import connect, create_topic, running
from tests.unit.broker.clusters import Cluster, running_cluster
from tests.unit.broker.test_configs import BROKER, alter_all, resource
from tests.unit.broker.test_moves import FIRST_FLUSH, alter, filled

CORDONED = "cordoned.log.dirs"
TWO_DISKS = {"log.dirs": "one,two"}


async def cordon(peer: Peer, value: str | None, *, name: str = "1") -> tuple[int, str | None]:
    """Change the setting of a broker that runs; the code and the words of the answer."""
    operation = ConfigOperation.DELETE if value is None else ConfigOperation.SET
    (answer,) = await alter_all(
        peer, resource((CORDONED, operation, value), name=name, kind=BROKER)
    )
    return answer.error_code, answer.error_message


def known_to_controllers(cluster: Cluster) -> set[UUID]:
    """The directories of broker 1 that the controllers do not place partitions in."""
    return set(cluster.controller.image.brokers[1].cordoned_log_dirs or ())


def ids(cluster: Cluster) -> list[UUID]:
    return [each.directory.directory_id for each in cluster.brokers[1].logs.directories]


async def described(peer: Peer) -> dict[str, bool]:
    """Whether each directory is cordoned, as DescribeLogDirs has it."""
    answer = await peer.ask(
        ApiKey.DESCRIBE_LOG_DIRS,
        DescribeLogDirsRequest(topics=None),
        DescribeLogDirsResponse,
        version=5,
    )
    return {each.log_dir: each.is_cordoned for each in answer.results}


async def test_a_directory_is_cordoned_while_the_broker_runs(
    outside: Outside, caplog: pytest.LogCaptureFixture
) -> None:
    """The controllers hear of it at once, new logs go elsewhere, and what is there is served."""
    caplog.set_level("INFO")
    async with running_cluster(outside) as cluster:
        broker = await cluster.start(1, TWO_DISKS)
        one, two = broker.logs.directories
        await cluster.add_topic("before", replicas=(1,))
        assert (len(one), known_to_controllers(cluster)) == (1, set())
        assert await cordon(cluster.peer(1), "two") == (ErrorCode.NONE, None)
        await cluster.controller.until(lambda _: known_to_controllers(cluster) == {ids(cluster)[1]})
        for number in range(4):
            await cluster.add_topic(f"t{number}", replicas=(1,))
        assert (len(one), len(two)) == (5, 0)
        assert await described(cluster.peer(1)) == {"one": False, "two": True}
        assert await cordon(cluster.peer(1), None) == (ErrorCode.NONE, None)
        await cluster.controller.until(lambda _: not known_to_controllers(cluster))
        await cluster.add_topic("after", replicas=(1,))
        assert len(two) == 1
        assert [each for each in caplog.messages if each.startswith("directories_cordoned")] == [
            "directories_cordoned paths=two usable=one",
            "directories_cordoned paths=none usable=one,two",
        ]


async def test_a_broker_with_all_directories_cordoned_gets_no_replicas(outside: Outside) -> None:
    """The controllers place new ones on others, and refuse what only this broker could have."""
    async with running_cluster(outside, 2) as cluster:
        await cluster.start(1, {**TWO_DISKS, CORDONED: "*"})
        await cluster.controller.until(lambda _: known_to_controllers(cluster) == set(ids(cluster)))
        cluster.controller.add_topic("t", partitions=4, replication_factor=1)
        assert {cluster.state(TopicPartition("t", number)).replicas for number in range(4)} == {
            (2,)
        }
        with pytest.raises(RefusedError, match="INVALID_REPLICATION_FACTOR"):
            cluster.controller.add_topic("u", partitions=1, replication_factor=2)


async def test_a_start_takes_the_setting_from_the_metadata(outside: Outside) -> None:
    """It was changed while the broker ran; logs that a start makes are placed by it too."""
    async with running_cluster(outside, 2) as cluster:
        await cluster.start(1, TWO_DISKS)
        await cordon(cluster.peer(1), "one")
        known = set(ids(cluster)[:1])
        await cluster.controller.until(lambda _: known_to_controllers(cluster) == known)
        await cluster.stop(1)
        # A topic that is placed there while the broker is away.
        cluster.controller.add_topic("t", assignments=[[2, 1]])
        await cluster.start(1, TWO_DISKS)
        one, two = cluster.brokers[1].logs.directories
        await cluster.until(lambda: (len(one), len(two)) == (0, 1))
        assert known_to_controllers(cluster) == known


@pytest.mark.parametrize(
    ("value", "name", "told"),
    [
        ("three", "1", "three must be entries of log.dirs or log.dir"),
        ("one,*", "1", "others are named beside it"),
        ("one,one", "1", "twice"),
        ("one", "", "Cannot update these configs at default cluster level"),
    ],
)
async def test_what_is_no_directory_of_the_broker_is_refused(
    outside: Outside, value: str, name: str, told: str
) -> None:
    """A start with it, and a change; each broker has directories of its own."""
    async with running(outside, TWO_DISKS) as broker:
        code, message = await cordon(connect(outside, broker), value, name=name)
        assert code == ErrorCode.INVALID_REQUEST
        assert told in str(message)
    if name:
        with pytest.raises(ConfigError, match=told.replace("*", r"\*")):
            broker_config({**TWO_DISKS, CORDONED: value})


async def test_nothing_is_moved_into_a_cordoned_directory(outside: Outside) -> None:
    """A move out of one is welcome."""
    async with filled(outside, TWO_DISKS) as (broker, peer):
        await cordon(peer, "two")
        assert await alter(peer, "two") == ErrorCode.INVALID_REPLICA_ASSIGNMENT
        await cordon(peer, "one")
        assert await alter(peer, "two") == ErrorCode.NONE
        await outside.pass_time(5)
        assert len(broker.logs.directories[1]) == 1


def test_a_move_that_was_interrupted_continues_into_a_cordoned_directory() -> None:
    """It was asked for before the directory was cordoned."""

    async def begin(outside: Outside) -> None:
        async with filled(outside) as (_, peer):
            assert await alter(peer, "two") == ErrorCode.NONE
            hanging = outside.hang(FIRST_FLUSH)
            await outside.pass_time(1)
            outside.loop.call_later(1, hanging.release)

    async def look(outside: Outside) -> None:
        async with running(outside, {**TWO_DISKS, CORDONED: "two"}):
            await outside.pass_time(5)
            assert outside.files.is_directory("two/t-0")

    with virtual_runtime() as outside:
        outside.run(begin(outside))
        disk = outside.files.crash()
    with virtual_runtime(files=disk) as outside:
        outside.run(look(outside))


async def test_a_broker_alone_places_by_it_too(outside: Outside) -> None:
    """Without controllers elsewhere it counts for new logs all the same."""
    async with running(outside, {**TWO_DISKS, CORDONED: "one"}) as broker:
        await create_topic(connect(outside, broker), "t", partitions=4)
        assert [len(each) for each in broker.logs.directories] == [0, 4]
        assert await described(connect(outside, broker)) == {"one": True, "two": False}
