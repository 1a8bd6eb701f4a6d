"""A broker that coordinates groups, and their members, on virtual time.

@on_stage()
async def test_…(broker: Broker) -> None:
    first, second = await stable(broker, "first", "second")
    joining = first.join()
    await broker.passes(0.001)
    assert not joining.done()
"""

import asyncio
import random
import sys
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Self, TypeVar

from tailrace.coordinator.groups.classic_group import ClassicGroup, ClassicState
from tailrace.coordinator.groups.commits import (
    Commit,
    Committer,
    FetchedOffset,
    MemberAtEpoch,
    OffsetToCommit,
)
from tailrace.coordinator.groups.machine import GroupMachine
from tailrace.coordinator.groups.record_codec import GroupRecordCodec
from tailrace.coordinator.groups.settings import ConsumerSettings, GroupSettings
from tailrace.coordinator.machine import (
    Client,
    CoordinatorRecord,
    Decision,
    TransactionalProducer,
)
from tailrace.coordinator.shard import Shard
from tailrace.coordinator.statistics import GroupCounts
from tailrace.model import LeaderEpoch, TopicPartition
from tailrace.protocol.codec import encode
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import NO_UUID
from tailrace.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from tailrace.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tailrace.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from tailrace.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tailrace.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from tailrace.protocol.records import GroupMetadataValue
from tailrace.records.batch import Batch
from tailrace.records.builder import records_of
from tailrace.testing.coordinator_log import MemoryPartitionLog
from tailrace.testing.outside import Outside, virtual_runtime
from tests.unit.coordinator.groups_consumer.group_shard import MemoryTopics

T = TypeVar("T")
PARTITION = TopicPartition("__consumer_offsets", 0)
FLIGHTS = TopicPartition("flights", 0)
GROUP = "g"
MOMENT = 0.001
"""Long enough for everything that is due now, in seconds; short of every deadline."""
DELAY = 3.0
"""The initial delay of an empty group, in seconds."""
SESSION = 10.0
REBALANCE = 60.0
"""Timeouts of a member, in seconds."""

CODEC = GroupRecordCodec()


def subscription(*topics: str) -> bytes:
    """The metadata that a consumer of these topics sends for each of its assignors."""
    out = bytearray(b"\x00\x00")
    encode(ConsumerProtocolSubscription(topics=topics), 0, out)
    return bytes(out)


class Calls:
    """Counts the calls of functions and the steps of generators in its block."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> Self:
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _note(self, _: FrameType, event: str, __: object) -> None:
        self.count += event == "call"


class Broker:
    """Leads a partition of `__consumer_offsets`, which survives its restarts."""

    def __init__(self, outside: Outside, settings: GroupSettings, **consumer: Any) -> None:
        self.log = MemoryPartitionLog(PARTITION)
        self._outside = outside
        self._settings = settings
        self._chance = random.Random(0)
        self.topics = MemoryTopics(a=4)
        self.consumer_settings = ConsumerSettings(**consumer)
        self.counts = GroupCounts()
        self._shard = self._new_shard()
        self.requests: list[asyncio.Task[Any]] = []
        """All requests that were sent, answered or not."""

    def _new_shard(self) -> Shard[GroupMachine]:
        return Shard(
            self.log,
            lambda: GroupMachine(
                self._settings,
                self.topics,
                consumer_settings=lambda _: self.consumer_settings,
                threads=self._outside.runtime.threads,
                chance=self._chance,
                counts=self.counts,
            ),
            GroupRecordCodec,
            clock=self._outside.runtime.clock,
        )

    async def start(self) -> None:
        """Load the groups."""
        await self._shard.load()

    async def restart(self, *, records: int | None = None) -> None:
        """Stop, and start again on the same log, or on its first batches."""
        self._shard.stop()
        self.log = MemoryPartitionLog(PARTITION, tuple(self.log.content[:records]))
        self._shard = self._new_shard()
        await self.start()

    async def heartbeat(self, request: HeartbeatRequest) -> HeartbeatResponse:
        """The answer to a Heartbeat."""
        return await self.run(lambda machine, now: machine.heartbeat(request, now))

    def stop(self) -> None:
        """Answer all parked requests."""
        self._shard.stop()

    @property
    def machine(self) -> GroupMachine:
        """The groups."""
        return self._shard.machine

    def group(self, group_id: str = GROUP) -> ClassicGroup:
        """The group, which is a classic one."""
        group = self.machine.groups.classic(group_id)
        assert group is not None
        return group

    @property
    def state(self) -> ClassicState:
        """The state of the group."""
        return self.group().state

    @property
    def now_ms(self) -> int:
        """The time of day."""
        return self._outside.clock.now_ms()

    async def passes(self, seconds: float) -> None:
        """Let time pass."""
        await self._outside.pass_time(seconds)

    async def run(self, decide: Callable[[GroupMachine, int], Decision[T]]) -> T:
        """The reply to a request."""
        return await self._shard.run(decide)

    def send(self, request: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Send a request, whose reply may take time."""
        task = asyncio.ensure_future(request)
        self.requests.append(task)
        return task

    async def end_transaction(self, producer: TransactionalProducer, *, is_commit: bool) -> None:
        """Write the marker of a transaction."""
        await self._shard.end_transaction(
            producer, is_commit=is_commit, coordinator_epoch=LeaderEpoch(0)
        )

    async def fetch(
        self, *partitions: TopicPartition, group_id: str = GROUP, is_stable: bool = False
    ) -> list[FetchedOffset]:
        """The committed offsets of these partitions, or of all if none is given."""
        wanted = partitions or None
        found = await self.run(
            lambda machine, _: machine.fetch_offsets(
                group_id, wanted, fetcher=NO_MEMBER, is_stable=is_stable
            )
        )
        assert isinstance(found, list)
        return found

    async def offset(
        self, partition: TopicPartition = FLIGHTS, group_id: str = GROUP
    ) -> int | None:
        """The committed offset of a partition."""
        [found] = await self.fetch(partition, group_id=group_id)
        return None if found.committed is None else found.committed.offset

    def records(self) -> list[CoordinatorRecord]:
        """All records in the log, without markers."""
        found = []
        for each in self.log.content:
            batch = Batch(memoryview(each))
            for record in () if batch.is_control else records_of(batch):
                assert record.key is not None
                decoded = CODEC.decode(record.key, record.value)
                assert decoded is not None
                found.append(decoded)
        return found

    def stored_group(self) -> GroupMetadataValue:
        """The newest record of a group."""
        *_, newest = [
            each.value for each in self.records() if isinstance(each.value, GroupMetadataValue)
        ]
        return newest


@dataclass
class Member:
    """A client of a group, which remembers what it was told."""

    broker: Broker
    client_id: str = "consumer"
    group_id: str = GROUP
    instance_id: str | None = None
    protocols: dict[str, bytes] = field(default_factory=lambda: {"range": subscription("flights")})
    protocol_type: str = "consumer"
    version: int = 9
    session_timeout_ms: int = round(SESSION * 1000)
    rebalance_timeout_ms: int = round(REBALANCE * 1000)
    member_id: str = ""
    generation: int = -1
    joined: JoinGroupResponse = field(default_factory=JoinGroupResponse)
    """The last answer to a JoinGroup that was no error."""
    assignment: bytes = b""

    @property
    def is_leader(self) -> bool:
        """Whether it was told to assign."""
        return self.joined.leader == self.member_id

    def join(self) -> "asyncio.Task[JoinGroupResponse]":
        """Send a JoinGroup; a member without an id gets one, and sends another."""
        return self.broker.send(self._join())

    def join_once(self) -> "asyncio.Task[JoinGroupResponse]":
        """Send one JoinGroup."""
        return self.broker.send(self._join_once())

    async def _join(self) -> JoinGroupResponse:
        reply = await self._join_once()
        if reply.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            reply = await self._join_once()
        return reply

    async def _join_once(self) -> JoinGroupResponse:
        request = JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=self.session_timeout_ms,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=self.protocol_type,
            protocols=tuple(
                JoinGroupRequestProtocol(name=name, metadata=metadata)
                for name, metadata in self.protocols.items()
            ),
        )
        client = Client(self.client_id, "127.0.0.1", self.version)
        reply = await self.broker.run(lambda machine, now: machine.join(client, request, now))
        if reply.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = reply.member_id
        elif reply.error_code == ErrorCode.NONE:
            self.member_id, self.generation = reply.member_id, reply.generation_id
            self.joined = reply
        return reply

    def sync(
        self, assignments: dict[str, bytes] | None = None, **told: str
    ) -> "asyncio.Task[SyncGroupResponse]":
        """Send a SyncGroup; a leader sends assignments by member id."""
        return self.broker.send(self._sync(assignments or {}, told))

    async def _sync(self, assignments: dict[str, bytes], told: dict[str, str]) -> SyncGroupResponse:
        request = SyncGroupRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=told.get("protocol_type"),
            protocol_name=told.get("protocol_name"),
            assignments=tuple(
                SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
                for member_id, assignment in assignments.items()
            ),
        )
        reply = await self.broker.run(lambda machine, now: machine.sync(request, now))
        if reply.error_code == ErrorCode.NONE:
            self.assignment = reply.assignment
        return reply

    async def heartbeat(self) -> int:
        """Send a Heartbeat; returns the error code."""
        request = HeartbeatRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        return (await self.broker.heartbeat(request)).error_code

    async def heartbeats(self, seconds: float) -> None:
        """Send heartbeats for some time."""
        for _ in range(round(seconds)):
            await self.broker.passes(1)
            await self.heartbeat()

    async def leave(self) -> int:
        """Send a LeaveGroup; returns the error code for this member."""
        [code] = await remove(
            self.broker,
            MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id),
        )
        return code

    async def commit(
        self,
        offset: int,
        partition: TopicPartition = FLIGHTS,
        *,
        producer: TransactionalProducer | None = None,
    ) -> ErrorCode:
        """Commit an offset as this member; returns the error code."""
        committer = Committer(self.generation, self.member_id, self.instance_id)
        return await commit(
            self.broker, offset, partition, committer=committer, producer=producer,
            group_id=self.group_id,
        )  # fmt: skip


NO_MEMBER = MemberAtEpoch(None, -1)
NOBODY = Committer(-1, "", None)
"""An operator, or a consumer that chooses its partitions itself."""


async def commit(
    broker: Broker,
    offset: int,
    partition: TopicPartition = FLIGHTS,
    *,
    group_id: str = GROUP,
    committer: Committer = NOBODY,
    producer: TransactionalProducer | None = None,
    version: int = 9,
    **changes: Any,
) -> ErrorCode:
    """Commit an offset; returns the error code."""
    retention_ms = changes.pop("retention_ms", -1)
    told: dict[str, Any] = {"topic_id": NO_UUID, "leader_epoch": 0, "metadata": "", **changes}
    request = Commit(
        group_id=group_id,
        committer=committer,
        offsets=[OffsetToCommit(partition=partition, offset=offset, **told)],
        version=version,
        retention_ms=retention_ms,
        producer=producer,
    )
    [code] = await broker.run(lambda machine, now: machine.commit(request, now))
    return code


async def remove(broker: Broker, *members: MemberIdentity, group_id: str = GROUP) -> list[int]:
    """Send a LeaveGroup for members; returns the error code for each."""
    request = LeaveGroupRequest(group_id=group_id, members=members)
    reply = await broker.run(lambda machine, now: machine.leave(request, now))
    assert reply.error_code == ErrorCode.NONE
    return [each.error_code for each in reply.members]


def assigned_to(members: Sequence[Member]) -> dict[str, bytes]:
    """An assignment that gives each member its own id."""
    return {each.member_id: each.member_id.encode() for each in members}


async def complete(broker: Broker, *members: Member) -> None:
    """Join all members and sync them, as in a rebalance that goes well."""
    known = [each for each in members if each.member_id]
    joining = [each.join() for each in members if each not in known]
    await broker.passes(MOMENT)
    joining += [each.join() for each in known]
    await broker.passes(MOMENT)
    if not all(each.done() for each in joining):
        await broker.passes(DELAY * 2)
    for reply in await asyncio.gather(*joining):
        assert reply.error_code == ErrorCode.NONE
    await synced(broker, *members)


async def synced(broker: Broker, *members: Member) -> None:
    """Sync all members of a generation."""
    syncing = [each.sync(assigned_to(members) if each.is_leader else None) for each in members]
    for reply in await asyncio.gather(*syncing):
        assert reply.error_code == ErrorCode.NONE
    assert broker.state is ClassicState.STABLE


async def stable(broker: Broker, *names: str, **told: Any) -> list[Member]:
    """A stable group with members of these client ids; the first one leads it."""
    members = [Member(broker, name, **told) for name in names]
    await complete(broker, *members)
    return members


async def stable_static(broker: Broker, *names: str, **told: Any) -> list[Member]:
    """A stable group of static members with these instance ids; the first one leads it."""
    members = [Member(broker, name, instance_id=name, **told) for name in names]
    await complete(broker, *members)
    return members


def on_stage(
    settings: GroupSettings | None = None,
) -> Callable[[Callable[[Broker], Awaitable[None]]], Callable[[], None]]:
    """Play a scenario with a broker that has loaded its groups.

    At its end the broker stops, and every request that was sent must have its answer.
    """

    def decorate(scenario: Callable[[Broker], Awaitable[None]]) -> Callable[[], None]:
        async def play(outside: Outside) -> None:
            broker = Broker(outside, settings or GroupSettings())
            await broker.start()
            await scenario(broker)
            broker.stop()
            await broker.passes(MOMENT)
            assert [each for each in broker.requests if not each.done()] == []
            await asyncio.gather(*broker.requests, return_exceptions=True)

        def test() -> None:
            with virtual_runtime() as outside:
                outside.run(play(outside))

        test.__name__, test.__doc__ = scenario.__name__, scenario.__doc__
        return test

    return decorate
