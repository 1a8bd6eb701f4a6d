"""A kill or a power loss at every file operation of a broker that creates topics.

Clients are told of a topic before its folders are made, so some of these are behind the answer.
"""

import copy
from collections.abc import Collection
from dataclasses import dataclass, field

from tailrace.model import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, TopicPartition
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from tailrace.testing import MemoryFiles, Outside, virtual_runtime
from tests.crash.workloads import crash_all_ways
from tests.steps import Steps
from tests.unit.broker.brokers import batch, connect, create_topic, produce, running
from tests.unit.broker.test_groups import commit, find
from tests.unit.broker.transactional import Client

ROOTS = ("data", "more")
SETTINGS = {
    "log.dirs": ",".join(ROOTS),
    "log.index.size.max.bytes": "1000",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
}
SIZES = {"t": {3, 5}, OFFSETS_TOPIC: {4}, TRANSACTIONS_TOPIC: {4}}
"""The numbers of partitions that each topic may have."""
CONFIGS = {"retention.ms": "5000"}


@dataclass
class Told:
    """The least number of partitions that clients were told of, by topic."""

    sizes: dict[str, int] = field(default_factory=dict)

    def is_ahead_of(self, disk: MemoryFiles) -> bool:
        """Whether they were told of a partition that has no folder yet."""
        return any(
            not any(disk.is_directory(f"{root}/{topic}-{number}") for root in ROOTS)
            for topic, count in self.sizes.items()
            for number in range(count)
        )


async def work(outside: Outside, told: Told) -> None:
    """Create a topic, let it grow, and have the topics of both coordinators created."""
    # Answers are faster than threads.
    outside.threads.seconds_per_run = 0.001
    async with running(outside, SETTINGS) as broker:
        peer = connect(outside, broker)
        assert (await create_topic(peer, "t", partitions=3, configs=CONFIGS)).error_code == 0
        told.sizes["t"] = 3
        wanted = CreatePartitionsTopic(name="t", count=5, assignments=None)
        grown = CreatePartitionsRequest(topics=(wanted,))
        answer = await peer.ask(ApiKey.CREATE_PARTITIONS, grown, CreatePartitionsResponse)
        assert answer.results[0].error_code == ErrorCode.NONE, answer
        told.sizes["t"] = 5
        for kind, name in enumerate((OFFSETS_TOPIC, TRANSACTIONS_TOPIC)):
            await find(peer, kind)
            told.sizes[name] = 4


async def check(outside: Outside, told: Told) -> None:
    """Each topic is there whole or not at all, and clients find what they were told of."""
    async with running(outside, SETTINGS) as broker:
        topics = broker.controller.image.topics
        assert topics.keys() >= told.sizes.keys()
        for topic in topics.values():
            count = topic.partition_count
            assert topic.partitions == tuple(range(count))
            assert count in SIZES[topic.name]
            assert count >= told.sizes.get(topic.name, 0)
            for number in topic.partitions:
                assert broker.replicas.is_led(TopicPartition(topic.name, number))
        if "t" in topics:
            assert topics["t"].configs == CONFIGS
            peer = connect(outside, broker)
            for number in topics["t"].partitions:
                sent = await produce(peer, "t", batch(b"x"), partition=number)
                assert sent.error_code == ErrorCode.NONE
            for kind in (0, 1):
                await find(peer, kind)
            await outside.pass_time(1)
            # Their hashes name all four partitions.
            for name in ("g", "h", "i", "j"):
                assert await commit(peer, 7, group_id=name) == ErrorCode.NONE
                assert await Client(peer, name).init() is ErrorCode.NONE


def crashes(stop_at: Collection[int]) -> tuple[range, list[int], list[tuple[MemoryFiles, Told]]]:
    """The operations of the work, and the disks that crashes at some of them leave.

    In between, the operations at which an answer is ahead of the disk.
    """
    with virtual_runtime() as outside:
        files, told = outside.files, Told()
        ahead: list[int] = []
        found: dict[object, tuple[MemoryFiles, Told]] = {}

        def look(_operation: str, _path: str) -> None:
            number = len(files.operations) - 1
            if told.is_ahead_of(files):
                ahead.append(number)
            if number in stop_at:
                for _, disk in crash_all_ways(files, seed=number):
                    key = hash(disk.state()), repr(told)
                    found.setdefault(key, (disk, copy.deepcopy(told)))

        files.on_call = look
        outside.run(work(outside, told))
        return range(len(files.operations)), ahead, [*found.values()]


def test_a_crash_at_any_operation_leaves_topics_whole(steps: Steps) -> None:
    """After a start a topic has all of its partitions with its settings, or does not exist."""
    operations, ahead, _ = crashes(())
    assert len(operations) > 200
    assert len(ahead) > 10
    *_, found = crashes({*steps(operations), *steps(ahead)})
    for disk, told in found:
        with virtual_runtime(files=disk) as outside:
            outside.run(check(outside, told))
