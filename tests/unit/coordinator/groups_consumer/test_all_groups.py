"""Groups of both protocols on one shard: who has an id, and where commits and deletions go."""

import random
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from tailrace.coordinator.groups.commits import (
    Commit,
    Committer,
    FetchedOffset,
    MemberAtEpoch,
    OffsetToCommit,
)
from tailrace.coordinator.groups.machine import GroupMachine
from tailrace.coordinator.groups.settings import ConsumerSettings, GroupSettings
from tailrace.coordinator.machine import Client, Decision, TransactionalProducer
from tailrace.coordinator.shard import Shard
from tailrace.model import LeaderEpoch, ProducerEpoch, ProducerId, TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tailrace.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tailrace.testing.coordinator_log import MemoryPartitionLog
from tailrace.testing.outside import Outside, virtual_runtime
from tests.unit.coordinator.groups_consumer.assigning import topic_id
from tests.unit.coordinator.groups_consumer.codec import GroupCodec
from tests.unit.coordinator.groups_consumer.group_shard import (
    GROUP,
    MemoryTopics,
    beating,
    joining,
    kinds,
)

T = TypeVar("T")
A0, B0 = TopicPartition("a", 0), TopicPartition("b", 0)
NOBODY = MemberAtEpoch(None, -1)
CLIENT = Client("client", "127.0.0.1", 1)
PRODUCER = TransactionalProducer(ProducerId(7), ProducerEpoch(0))
RETENTION_MS = 20 * 60_000


class Broker:
    """One shard with groups of both protocols."""

    def __init__(self, outside: Outside) -> None:
        self.outside = outside
        self.log = MemoryPartitionLog(TopicPartition("__consumer_offsets", 0))
        self.topics = MemoryTopics(a=3, b=3)
        self.consumer_settings = ConsumerSettings()
        self._shard = self._new_shard()

    def _new_shard(self) -> Shard[GroupMachine]:
        return Shard(
            self.log,
            lambda: GroupMachine(
                GroupSettings(retention_ms=RETENTION_MS, initial_delay_ms=0),
                self.topics,
                consumer_settings=lambda _: self.consumer_settings,
                threads=self.outside.runtime.threads,
                chance=random.Random(1),
            ),
            GroupCodec,
            clock=self.outside.runtime.clock,
        )

    async def restart(self) -> None:
        """Load another shard on the same log."""
        self._shard.stop()
        self._shard = self._new_shard()
        await self._shard.load()

    @property
    def machine(self) -> GroupMachine:
        """The state."""
        return self._shard.machine

    async def run(self, decide: Callable[[GroupMachine, int], Decision[T]]) -> T:
        """The reply to a request."""
        return await self._shard.run(decide)

    async def beat(self, request: Any) -> Any:
        """A heartbeat of the consumer protocol."""
        return await self.run(lambda machine, ms: machine.consumer_heartbeat(CLIENT, request, ms))

    async def commit(
        self,
        member: MemberAtEpoch,
        *partitions: TopicPartition,
        metadata: str = "",
        producer: TransactionalProducer | None = None,
    ) -> list[ErrorCode]:
        """Commit offset 5."""
        commit = Commit(
            group_id=GROUP,
            committer=Committer(member.epoch, member.member_id or "", None),
            offsets=[
                OffsetToCommit(each, topic_id(each.topic), 5, -1, metadata) for each in partitions
            ],
            version=9,
            producer=producer,
        )
        return await self.run(lambda machine, now_ms: machine.commit(commit, now_ms))

    async def end_transaction(self) -> None:
        """Write the marker that commits the transaction of `PRODUCER`."""
        await self._shard.end_transaction(
            PRODUCER, is_commit=True, coordinator_epoch=LeaderEpoch(0)
        )

    async def delete_offsets(self, *partitions: TopicPartition) -> list[ErrorCode]:
        """The codes of an OffsetDelete."""
        found = await self.run(lambda machine, _: machine.delete_offsets(GROUP, partitions))
        assert isinstance(found, list)
        return found

    async def fetch(self, fetcher: MemberAtEpoch) -> ErrorCode | list[FetchedOffset]:
        """All offsets of the group, or why not."""
        return await self.run(
            lambda machine, _: machine.fetch_offsets(GROUP, None, fetcher=fetcher, is_stable=True)
        )

    async def committed(self) -> dict[TopicPartition, int]:
        """The committed offsets."""
        found = await self.fetch(NOBODY)
        assert isinstance(found, list)
        return {
            each.partition: each.committed.offset for each in found if each.committed is not None
        }

    async def join_classic(self) -> ErrorCode:
        """A member of the classic protocol joins."""
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            member_id="",
            group_instance_id="i1",
            protocol_type="consumer",
            protocols=(JoinGroupRequestProtocol(name="range", metadata=bytes(8)),),
        )
        client = Client("client", "127.0.0.1", 9)
        response = await self.run(lambda machine, ms: machine.join(client, request, ms))
        return ErrorCode(response.error_code)


def run(scenario: Callable[[Broker], Awaitable[None]]) -> None:
    """Run a scenario on virtual time."""
    with virtual_runtime() as outside:

        async def main() -> None:
            broker = Broker(outside)
            await broker.restart()
            await scenario(broker)

        outside.run(main())


def test_a_member_commits_and_the_offsets_are_there_after_a_restart() -> None:
    """The group stays a consumer group; other members and epochs are refused by partition."""

    async def scenario(broker: Broker) -> None:
        await broker.beat(joining("m1"))
        assert await broker.commit(MemberAtEpoch("m1", 2), A0, B0) == [ErrorCode.NONE] * 2
        stale, unknown = ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID
        assert await broker.commit(MemberAtEpoch("m1", 3), A0) == [stale]
        assert await broker.commit(MemberAtEpoch("m1", 1), A0, B0) == [stale] * 2
        assert await broker.commit(NOBODY, A0) == [unknown]
        for _ in range(2):
            assert await broker.committed() == {A0: 5, B0: 5}
            assert kinds(broker.machine) == {GROUP: "consumer"}
            await broker.restart()

    run(scenario)


def test_offsets_of_a_members_transaction_count_from_its_marker_on() -> None:
    """A member of another epoch, and one that is not known, cannot commit in it."""

    async def scenario(broker: Broker) -> None:
        await broker.beat(joining("m1"))
        for member, code in (
            (MemberAtEpoch("m2", 2), ErrorCode.UNKNOWN_MEMBER_ID),
            (MemberAtEpoch("m1", 1), ErrorCode.ILLEGAL_GENERATION),
            (MemberAtEpoch("m1", 3), ErrorCode.ILLEGAL_GENERATION),
            (MemberAtEpoch("m1", 2), ErrorCode.NONE),
        ):
            assert await broker.commit(member, A0, producer=PRODUCER) == [code]
        assert await broker.committed() == {}
        await broker.end_transaction()
        for _ in range(2):
            assert await broker.committed() == {A0: 5}
            await broker.restart()

    run(scenario)


def test_to_delete_an_offset_of_a_member_drops_the_pending_one_too() -> None:
    """Its transaction may commit afterwards: the offset stays deleted."""

    async def scenario(broker: Broker) -> None:
        await broker.beat(joining("m1"))
        member = MemberAtEpoch("m1", 2)
        assert await broker.commit(member, B0, producer=PRODUCER) == [ErrorCode.NONE]
        assert await broker.delete_offsets(B0) == [ErrorCode.NONE]
        await broker.end_transaction()
        assert await broker.committed() == {}

    run(scenario)


def test_metadata_of_a_members_commit_has_a_limit() -> None:
    """4,096 characters; what is longer is refused and not stored."""

    async def scenario(broker: Broker) -> None:
        await broker.beat(joining("m1"))
        for length, code in (
            (4_097, ErrorCode.OFFSET_METADATA_TOO_LARGE),
            (4_096, ErrorCode.NONE),
        ):
            assert await broker.committed() == {}
            found = await broker.commit(MemberAtEpoch("m1", 2), A0, metadata="x" * length)
            assert found == [code]

    run(scenario)


def test_a_consumer_group_takes_the_id_of_a_simple_group() -> None:
    """Its offsets stay, also where the commit comes before the group in the log."""

    async def scenario(broker: Broker) -> None:
        assert await broker.commit(NOBODY, A0) == [ErrorCode.NONE]
        assert kinds(broker.machine) == {GROUP: "classic"}
        assert (await broker.beat(joining("m1"))).member_epoch == 2
        for _ in range(2):
            assert kinds(broker.machine) == {GROUP: "consumer"}
            assert await broker.committed() == {A0: 5}
            await broker.restart()

    run(scenario)


def test_a_group_with_members_keeps_its_protocol() -> None:
    """Under the policy `disabled` members of the other are refused."""

    async def scenario(broker: Broker) -> None:
        broker.consumer_settings = ConsumerSettings(migration_policy="disabled")
        await broker.beat(joining("m1"))
        assert await broker.join_classic() is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        await broker.beat(beating("m1", -1))
        assert await broker.join_classic() is ErrorCode.NONE
        response = await broker.beat(joining("m1"))
        assert response.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert "online upgrade is disabled" in response.error_message

    run(scenario)


def test_a_group_without_members_takes_the_protocol_of_its_first_member() -> None:
    """In both directions; a restart finds the same one."""

    async def scenario(broker: Broker) -> None:
        await broker.beat(joining("m1"))
        await broker.beat(beating("m1", -1))
        assert await broker.join_classic() is ErrorCode.NONE
        assert kinds(broker.machine) == {GROUP: "classic"}
        await broker.outside.pass_time(30)  # It never syncs, and is dropped.
        assert (await broker.beat(joining("m2"))).member_epoch == 2
        for _ in range(2):
            group = broker.machine.groups.consumer(GROUP)
            assert group is not None
            assert list(group.members) == ["m2"]
            await broker.restart()

    run(scenario)


def test_a_group_is_deleted_with_its_offsets_when_it_has_no_members() -> None:
    """And offsets alone, when nobody subscribes to their topic."""

    async def scenario(broker: Broker) -> None:
        await broker.beat(joining("m1"))
        await broker.commit(MemberAtEpoch("m1", 2), A0, B0)
        assert await broker.run(lambda machine, _: machine.delete_offsets(GROUP, [A0, B0])) == [
            ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE,
        ]  # fmt: skip
        assert await broker.committed() == {A0: 5}
        code = await broker.run(lambda machine, _: machine.delete_group(GROUP))
        assert code is ErrorCode.NON_EMPTY_GROUP
        await broker.beat(beating("m1", -1))
        assert await broker.run(lambda machine, _: machine.delete_group(GROUP)) is ErrorCode.NONE
        for _ in range(2):
            assert kinds(broker.machine) == {}
            assert await broker.committed() == {}
            await broker.restart()

    run(scenario)


def test_offsets_expire_and_then_the_group() -> None:
    """Offsets of topics that nobody subscribes to expire, and with the last one an empty group."""

    async def scenario(broker: Broker) -> None:
        await broker.beat(joining("m1"))
        await broker.commit(MemberAtEpoch("m1", 2), A0, B0)
        for _ in range(60):
            await broker.outside.pass_time(30)
            await broker.beat(beating("m1", 2))
        assert await broker.committed() == {A0: 5}
        await broker.outside.pass_time(1200)
        assert kinds(broker.machine) == {}
        assert await broker.committed() == {}

    run(scenario)


def test_an_operator_removes_members_by_their_ids() -> None:
    """With LeaveGroup, as members of the classic protocol leave: by the id of either kind."""

    async def scenario(broker: Broker) -> None:
        for number in (1, 2):
            await broker.beat(joining(f"m{number}", instance_id=f"i{number}"))
        members = tuple(
            MemberIdentity(member_id=member_id, group_instance_id=instance_id)
            for member_id, instance_id in (
                ("", "i1"), ("", "i9"), ("m2", None), ("m9", "i2"), ("m2", "i2"),
            )
        )  # fmt: skip
        request = LeaveGroupRequest(group_id=GROUP, members=members)
        response = await broker.run(lambda machine, ms: machine.leave(request, ms))
        unknown = ErrorCode.UNKNOWN_MEMBER_ID
        assert [each.error_code for each in response.members] == [
            ErrorCode.NONE, unknown, ErrorCode.NONE, ErrorCode.FENCED_INSTANCE_ID, ErrorCode.NONE,
        ]  # fmt: skip
        group = broker.machine.groups.consumer(GROUP)
        assert group is not None
        assert not group.members

    run(scenario)


def test_a_member_at_another_epoch_does_not_fetch() -> None:
    """The consumer looks its epoch up with a heartbeat first."""

    async def scenario(broker: Broker) -> None:
        await broker.beat(joining("m1"))
        for epoch, expected in ((2, []), (1, ErrorCode.STALE_MEMBER_EPOCH)):
            found = await broker.fetch(MemberAtEpoch("m1", epoch))
            assert found == expected

    run(scenario)
