"""A shard of consumer groups on a log in memory, and what its members say."""

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import UUID

from tailrace.coordinator.groups.consumer_group import (
    ConsumerGroup,
    ConsumerState,
    Partitions,
)
from tailrace.coordinator.groups.machine import GroupMachine
from tailrace.coordinator.groups.settings import ConsumerSettings, GroupSettings
from tailrace.coordinator.groups.topics import Topic
from tailrace.coordinator.machine import Client, CoordinatorRecord, Origin
from tailrace.coordinator.shard import Shard, ShardState
from tailrace.model import TopicPartition
from tailrace.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from tailrace.records.batch import Batch
from tailrace.records.builder import BatchBuilder, records_of
from tailrace.testing.coordinator_log import MemoryPartitionLog
from tailrace.testing.outside import InlineThreads, Outside
from tests.unit.coordinator.groups_consumer.assigning import partitions, text, topic_id
from tests.unit.coordinator.groups_consumer.codec import GroupCodec, type_of

GROUP = "g"
TIMEOUT_MS = 30_000


class MemoryTopics:
    """Topics by letter."""

    def __init__(self, **counts: int) -> None:
        self.version = 1
        self._topics: dict[str, Topic] = {}
        for letter, count in counts.items():
            self.put(letter, count)

    def put(
        self, letter: str, count: int, *, name: str | None = None, rack: str | None = None
    ) -> None:
        """Create a topic, give it more partitions, or move all of its replicas to a rack."""
        self.version += 1
        racks = () if rack is None else ((rack,),) * count
        self._topics[name or letter] = Topic(name or letter, topic_id(letter), count, racks)

    def remove(self, name: str) -> None:
        """Delete a topic."""
        self.version += 1
        del self._topics[name]

    def by_name(self, name: str) -> Topic | None:
        return self._topics.get(name)

    def by_id(self, wanted: UUID) -> Topic | None:
        return next((each for each in self._topics.values() if each.topic_id == wanted), None)

    def names(self) -> list[str]:
        return list(self._topics)


def kinds(machine: GroupMachine) -> dict[str, str]:
    """The protocol of each group."""
    return {
        group_id: "consumer" if isinstance(group, ConsumerGroup) else "classic"
        for group_id, group in machine.groups.by_id.items()
    }


def new_machine(
    topics: MemoryTopics, settings: Callable[[str], ConsumerSettings] = lambda _: ConsumerSettings()
) -> GroupMachine:
    """A machine that has replayed nothing, and starts no threads."""
    return GroupMachine(
        GroupSettings(),
        topics,
        consumer_settings=settings,
        threads=InlineThreads(),
        chance=random.Random(1),
    )


class Coordinator:
    """A broker with one shard; `restart` begins anew on the same log."""

    def __init__(self, outside: Outside, topics: MemoryTopics, **settings: Any) -> None:
        self.outside = outside
        self.topics = topics
        self.settings = {"*": ConsumerSettings(**settings)}
        self.log = MemoryPartitionLog(TopicPartition("__consumer_offsets", 0))
        self._shard = self._new_shard()
        self._seen = 0

    def _new_shard(self) -> Shard[GroupMachine]:
        def settings_of(group_id: str) -> ConsumerSettings:
            return self.settings.get(group_id, self.settings["*"])

        make = partial(new_machine, self.topics, settings_of)
        return Shard(self.log, make, GroupCodec, clock=self.outside.runtime.clock)

    async def restart(self) -> None:
        """Stop the shard if there is one, and load another."""
        self._shard.stop()
        self._shard = self._new_shard()
        await self._shard.load()
        assert self._shard.state is ShardState.ACTIVE

    @property
    def machine(self) -> GroupMachine:
        """The state."""
        return self._shard.machine

    @property
    def group(self) -> ConsumerGroup:
        """The group."""
        group = self.machine.groups.consumer(GROUP)
        assert group is not None
        return group

    async def send(
        self, request: ConsumerGroupHeartbeatRequest, *, version: int = 1
    ) -> ConsumerGroupHeartbeatResponse:
        """Send a heartbeat; afterwards a restart would find the same groups."""
        response = await self.machine_reply(request, version=version)
        self.check_restart()
        return response

    async def machine_reply(
        self, request: ConsumerGroupHeartbeatRequest, *, version: int = 1
    ) -> ConsumerGroupHeartbeatResponse:
        """Send a heartbeat, where the groups are not those of the log."""
        client = Client("client", "127.0.0.1", version)
        return await self._shard.run(
            lambda machine, now_ms: machine.consumer_heartbeat(client, request, now_ms)
        )

    def check_restart(self) -> None:
        """A shard that replays the log comes to the same groups as this one."""
        machine = new_machine(self.topics)
        for record in self.records():
            machine.replay(record, Origin(0))
        assert machine.groups.by_id == self.machine.groups.by_id

    def records(self) -> list[CoordinatorRecord]:
        """All records in the log."""
        return [record for batch in self.batches() for record in batch]

    def batches(self) -> list[list[CoordinatorRecord]]:
        """The records of each batch in the log."""
        found = []
        for each in self.log.content:
            decoded = []
            for stored in records_of(Batch(memoryview(each))):
                assert stored.key is not None
                record = GroupCodec().decode(bytes(stored.key), stored.value)
                assert record is not None
                decoded.append(record)
            found.append(decoded)
        return found

    def store(self, *records: CoordinatorRecord) -> None:
        """Append records that this coordinator has not decided; `restart` replays them."""
        builder = BatchBuilder()
        for record in records:
            key, value = GroupCodec().encode(record)
            builder.append(key, value, timestamp=1)
        self.log.append(bytearray(builder.build()))

    def new_types(self) -> list[list[int]]:
        """The types of the records of each batch since the last call; below 0: tombstones."""
        found = [[type_of(each) for each in batch] for batch in self.batches()]
        seen, self._seen = self._seen, len(found)
        return found[seen:]

    def state(self) -> ConsumerState:
        """The state of the group."""
        return self.group.state

    def assignment_epochs(self, member_id: str) -> set[int]:
        """The epochs in which a member was assigned what it has."""
        assigned = self.group.members[member_id].current.assigned
        return {each for epochs in assigned.values() for each in epochs.values()}

    def has(self, member_id: str) -> str:
        """The partitions of a member, as the coordinator sees it."""
        assigned = self.group.members[member_id].current.assigned
        return text({each: frozenset(epochs) for each, epochs in assigned.items()})


def reported(has: Partitions) -> tuple[TopicPartitions, ...]:
    """Partitions, as a member reports them."""
    return tuple(
        TopicPartitions(topic_id=each, partitions=tuple(sorted(numbers)))
        for each, numbers in has.items()
    )


def joining(member_id: str, topics: str = "a", **fields: Any) -> ConsumerGroupHeartbeatRequest:
    """A request to join; `topics` are letters."""
    request = ConsumerGroupHeartbeatRequest(
        group_id=GROUP,
        member_id=member_id,
        member_epoch=0,
        rebalance_timeout_ms=TIMEOUT_MS,
        subscribed_topic_names=tuple(topics),
        topic_partitions=(),
    )
    return replace(request, **fields)


def beating(
    member_id: str, epoch: int, has: str | None = None, **fields: Any
) -> ConsumerGroupHeartbeatRequest:
    """A request of a member that is there; `has` is what it reports."""
    return replace(
        ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=member_id,
            member_epoch=epoch,
            topic_partitions=None if has is None else reported(partitions(has)),
        ),
        **fields,
    )


def told(response: ConsumerGroupHeartbeatResponse) -> str | None:
    """The assignment of a reply as text; None: as before."""
    assert response.error_code == 0, response
    if response.assignment is None:
        return None
    stated = response.assignment.topic_partitions
    return text({each.topic_id: frozenset(each.partitions) for each in stated})
