"""A kill or a power loss at every file operation of a node that becomes the first of a cluster.

It is alone, then controller and broker in one process, twice. Its metadata log is continued in
both roles. What was answered is there at the next start: topics, and records on the device.
"""

import asyncio
from typing import Final

from tailrace.broker.broker import RunningBroker
from tailrace.broker.config import broker_config
from tailrace.broker.start import start_broker
from tailrace.model import TopicPartition
from tailrace.testing import Outside, virtual_runtime
from tests.crash.workloads import crashes_of
from tests.steps import Steps
from tests.unit.broker.brokers import batch, connect, create_topic, produce
from tests.unit.storage.builders import values

ALONE: Final = {
    "log.dirs": "data",
    "listeners": "memory:0",
    "log.index.size.max.bytes": "1000",
    "tailrace.durability": "sync",
    # So that snapshots and retention are among what a crash may cut.
    "metadata.log.max.record.bytes.between.snapshots": "700",
    "metadata.max.retention.bytes": "1500",
    "metadata.log.segment.ms": "100",
}
BOTH: Final = ALONE | {
    "listeners": "PLAINTEXT://memory:0,CONTROLLER://memory:0",
    "controller.listener.names": "CONTROLLER",
}
WAIT_S: Final = 60

Told = dict[str, list[bytes]]
"""The values that were acknowledged, by the topics that were created."""


async def start(outside: Outside, settings: dict[str, str]) -> RunningBroker:
    """Start the node, and return when it serves."""
    async with asyncio.timeout(WAIT_S):
        broker = await start_broker(broker_config(settings), outside.runtime)
        node = broker.controller_node
        while node is not None and node.image.brokers[1].fenced:
            await outside.pass_time(0.01)
    return broker


async def work(outside: Outside, told: Told) -> None:
    """Three starts: each creates a topic, and appends to all that there are."""
    for number, settings in enumerate((ALONE, BOTH, BOTH)):
        broker = await start(outside, settings)
        await create_topic(connect(outside, broker), f"t{number}")
        told[f"t{number}"] = []
        for name, acknowledged in told.items():
            await append(outside, broker, name, b"%d" % number)
            acknowledged.append(b"%d" % number)
        await outside.pass_time(2)
        await broker.stop()


async def append(outside: Outside, broker: RunningBroker, name: str, value: bytes) -> None:
    """Have a record acknowledged."""
    async with asyncio.timeout(WAIT_S):
        while (await produce(connect(outside, broker), name, batch(value))).error_code:
            await outside.pass_time(0.1)


async def check(outside: Outside, told: Told) -> None:
    """Each topic and record that was answered is there, at most one more, and the node serves."""
    broker = await start(outside, BOTH)
    topics = broker.cluster.image.topics
    assert topics.keys() >= told.keys()
    assert len(topics) <= len(told) + 1
    for name in topics:
        await append(outside, broker, name, b"last")
        found = values(broker.replicas.find_replica(TopicPartition(name, 0)).log)
        acknowledged = told.get(name, [])
        assert found[: len(acknowledged)] == acknowledged
        assert found[-1] == b"last"
        assert len(found) <= len(acknowledged) + 2
    assert not [each for each in outside.files.list("data") if each.endswith("-stray")]
    await broker.stop()


def test_a_crash_at_any_operation_loses_nothing_that_was_answered(steps: Steps) -> None:
    """Alone, as the first node of a cluster, and while it turns from the one into the other."""
    operations, _ = crashes_of(work, Told(), ())
    assert len(operations) > 200
    _, found = crashes_of(work, Told(), {*steps(operations)})
    for disk, told in found:
        # Another seed: ids of topics must not come again.
        with virtual_runtime(files=disk, seed=1) as outside:
            outside.run(check(outside, told))
