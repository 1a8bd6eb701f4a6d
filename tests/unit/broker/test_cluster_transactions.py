"""Transactions and groups on brokers of one cluster, request by request."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from tailrace.model import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, TopicPartition
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import Records
from tailrace.protocol.frames import Caller
from tailrace.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tailrace.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from tailrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tailrace.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from tailrace.server.dispatch import ConnectionRepeats, Dispatch
from tailrace.testing import Outside, Peer
from tests.unit.broker.clusters import Cluster, running_cluster
from tests.unit.broker.transactional import GROUP, Client, committed_values, group_offset

RETRIED = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    }
)
Lose = Callable[[Cluster, int], None]


def cut_off(cluster: Cluster, broker_id: int) -> None:
    """The controller hears nothing of a broker, which serves on, and does not know that."""
    cluster.controller.cut_off(broker_id)


def kill(cluster: Cluster, broker_id: int) -> None:
    """A broker is killed."""
    cluster.kill(broker_id)


LOSSES = [cut_off, kill]
DATA = [TopicPartition("d", each) for each in range(2)]
TRANSACTIONS = TopicPartition(TRANSACTIONS_TOPIC, 0)
OFFSETS = TopicPartition(OFFSETS_TOPIC, 0)


async def with_topics(cluster: Cluster) -> Client:
    """A producer in a cluster whose brokers lead: 1 transactions, 2 groups and data, 3 data."""
    for name, assignments in (
        (TRANSACTIONS_TOPIC, [[1, 2, 3]]),
        (OFFSETS_TOPIC, [[2, 3, 1]]),
        ("d", [[2, 3, 1], [3, 2, 1]]),
    ):
        cluster.controller.add_topic(name, assignments=assignments)
    await cluster.until(
        lambda: all(
            cluster.end(broker, each) >= 0
            for broker in cluster.brokers
            for each in (TRANSACTIONS, OFFSETS, *DATA)
        )
    )
    client = Client(cluster.peer(1), knows_epochs=True)
    assert await asked(cluster, client, TRANSACTIONS, client.init) is ErrorCode.NONE
    return client


async def asked(
    cluster: Cluster,
    client: Client,
    partition: TopicPartition,
    ask: Callable[[], Awaitable[ErrorCode]],
) -> ErrorCode:
    """The code of a request to the leader of a partition, as a client repeats it."""
    code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    for _ in range(200):
        leader = cluster.state(partition).leader
        if leader in cluster.brokers:
            client.peer = cluster.peer(leader)
            code = await ask()
        if code not in RETRIED:
            break
        await cluster.outside.pass_time(0.1)
    return code


async def send(cluster: Cluster, client: Client, number: int, value: bytes) -> ErrorCode:
    """Produce a batch to a partition of the data, which adds it to the transaction."""

    async def ask() -> ErrorCode:
        answer = await client.send(value, partition=number, sequence=0)
        return ErrorCode(answer.error_code)

    return await asked(cluster, client, DATA[number], ask)


async def read(cluster: Cluster, client: Client, number: int, count: int) -> list[bytes]:
    """The committed values of a partition of the data, when there are as many as expected."""
    found: list[bytes] = []
    for _ in range(200):
        client.peer = cluster.peer(cluster.state(DATA[number]).leader)
        found = await committed_values(client.peer, partition=number)
        if len(found) >= count:
            return found
        await cluster.outside.pass_time(0.1)
    return found


async def offset_of(cluster: Cluster, client: Client, *, group: str = GROUP) -> int:
    """The offset that a group has committed."""

    async def ask() -> ErrorCode:
        found = await group_offset(client.peer, group=group)
        known.append(found)
        return found if isinstance(found, ErrorCode) else ErrorCode.NONE

    known: list[ErrorCode | int] = []
    assert await asked(cluster, client, OFFSETS, ask) is ErrorCode.NONE
    return int(known[-1])


async def test_a_transaction_ends_on_three_brokers(outside: Outside) -> None:
    """Its coordinator, its partitions and its group have leaders of their own."""
    async with running_cluster(outside, 1, 2, 3) as cluster:
        client = await with_topics(cluster)
        for is_commit, value in ((True, b"kept"), (False, b"dropped"), (True, b"last")):
            for number in range(2):
                assert await send(cluster, client, number, value) is ErrorCode.NONE
            offset = len(value)
            code = await asked(cluster, client, OFFSETS, lambda: client.commit_offset(offset))  # noqa: B023
            assert code is ErrorCode.NONE
            code = await asked(
                cluster,
                client,
                TRANSACTIONS,
                lambda: client.end(is_commit=is_commit),  # noqa: B023
            )
            assert code is ErrorCode.NONE
        for number in range(2):
            assert await read(cluster, client, number, 2) == [b"kept", b"last"]
        assert await offset_of(cluster, client) == 4


async def test_a_marker_that_overtakes_a_verification_refuses_nothing(outside: Outside) -> None:
    """The marker of the transaction before comes while the coordinator is asked for the next one.

    It takes the guard of the verification that has begun, and the coordinator says yes.
    """
    async with running_cluster(outside, 3) as cluster:
        markers, questions = ApiKey.WRITE_TXN_MARKERS, ApiKey.ADD_PARTITIONS_TO_TXN
        await cluster.start(1, wrap_dispatch=partial(delayed, outside, questions, 0.5))
        await cluster.start(2, wrap_dispatch=partial(delayed, outside, markers, 0.2))
        client = await with_topics(cluster)
        for value in (b"a", b"b", b"c"):
            assert await send(cluster, client, 0, value) is ErrorCode.NONE
            assert await asked(cluster, client, TRANSACTIONS, client.end) is ErrorCode.NONE
        assert await read(cluster, client, 0, 3) == [b"a", b"b", b"c"]
        for offset in (1, 2, 3):
            code = await asked(cluster, client, OFFSETS, lambda: client.commit_offset(offset))  # noqa: B023
            assert code is ErrorCode.NONE
            assert await asked(cluster, client, TRANSACTIONS, client.end) is ErrorCode.NONE
        assert await offset_of(cluster, client) == 3


async def test_a_partition_that_is_led_only_after_the_question_is_sent_again(
    outside: Outside,
) -> None:
    """Its leadership comes while the coordinator is asked for the other batch of a request.

    Nobody has verified it then: NOT_LEADER_OR_FOLLOWER has the producer send it again, and
    INVALID_TXN_STATE would end its transaction.
    """
    async with running_cluster(outside, 2, 3) as cluster:
        questions = ApiKey.ADD_PARTITIONS_TO_TXN
        await cluster.start(1, wrap_dispatch=partial(delayed, outside, questions, 20))
        client = await with_topics(cluster)
        client.peer = cluster.peer(2)
        codes = asyncio.ensure_future(client.send_to(0, 1))
        await outside.pass_time(1)
        cluster.kill(3)
        await cluster.until(lambda: cluster.state(DATA[1]).leader == 2)
        assert await codes == [ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER]


def delayed(outside: Outside, api: ApiKey, seconds: float, dispatch: Dispatch) -> Dispatch:
    """A dispatch that is slow with the requests of one API."""

    async def later(frame: memoryview, caller: Caller) -> list[Records]:
        await outside.pass_time(seconds)
        found = dispatch(frame, caller, None)
        return found if isinstance(found, list) else await found

    def answer(
        frame: memoryview, caller: Caller, repeats: ConnectionRepeats | None
    ) -> list[Records] | Awaitable[list[Records]]:
        if int.from_bytes(frame[:2], "big") != api:
            return dispatch(frame, caller, repeats)
        # A copy, since the frame's memory belongs to the connection.
        return later(memoryview(bytes(frame)), caller)

    return answer


@pytest.mark.parametrize("lose", LOSSES)
async def test_a_transaction_outlives_its_coordinator(outside: Outside, lose: Lose) -> None:
    """One that the controller hears nothing of has a successor, which ends the open transaction."""
    async with running_cluster(outside, 1, 2, 3) as cluster:
        client = await with_topics(cluster)
        for number in range(2):
            assert await send(cluster, client, number, b"value") is ErrorCode.NONE
        code = await asked(cluster, client, OFFSETS, lambda: client.commit_offset(7))
        assert code is ErrorCode.NONE
        lose(cluster, 1)
        await cluster.until(lambda: cluster.state(TRANSACTIONS).leader == 2)
        assert await asked(cluster, client, TRANSACTIONS, client.end) is ErrorCode.NONE
        for number in range(2):
            assert await read(cluster, client, number, 1) == [b"value"]
        assert await offset_of(cluster, client) == 7


@pytest.mark.parametrize("lose", LOSSES)
async def test_an_end_outlives_the_leaders_of_its_partitions(outside: Outside, lose: Lose) -> None:
    """A partition and the group lose their leader before their markers: the next one gets them."""
    async with running_cluster(outside, 1, 2, 3) as cluster:
        client = await with_topics(cluster)
        for number in range(2):
            assert await send(cluster, client, number, b"value") is ErrorCode.NONE
        code = await asked(cluster, client, OFFSETS, lambda: client.commit_offset(7))
        assert code is ErrorCode.NONE
        lose(cluster, 2)
        assert await asked(cluster, client, TRANSACTIONS, client.end) is ErrorCode.NONE
        await cluster.until(lambda: cluster.state(DATA[0]).leader == 3)
        for number in range(2):
            assert await read(cluster, client, number, 1) == [b"value"]
        assert await offset_of(cluster, client) == 7


async def test_coordinators_are_handed_over_by_a_broker_that_stops(outside: Outside) -> None:
    """The next ones have all that was acknowledged."""
    async with running_cluster(outside, 1, 2, 3) as cluster:
        client = await with_topics(cluster)
        assert await send(cluster, client, 0, b"value") is ErrorCode.NONE
        code = await asked(cluster, client, OFFSETS, lambda: client.commit_offset(7))
        assert code is ErrorCode.NONE
        for each in (2, 1):
            await cluster.stop(each)
        assert await asked(cluster, client, TRANSACTIONS, client.end) is ErrorCode.NONE
        assert await read(cluster, client, 0, 1) == [b"value"]
        assert await offset_of(cluster, client) == 7


@pytest.mark.parametrize("lose", LOSSES)
async def test_a_member_of_a_group_outlives_its_coordinator(outside: Outside, lose: Lose) -> None:
    """The next coordinator knows its generation: it goes on without joining again."""
    async with running_cluster(outside, 1, 2, 3) as cluster:
        client = await with_topics(cluster)
        joined = await joined_group(cluster.peer(2))
        member_id, generation = joined.member_id, joined.generation_id

        async def sync() -> ErrorCode:
            request = SyncGroupRequest(
                group_id="m",
                member_id=member_id,
                generation_id=generation,
                assignments=(SyncGroupRequestAssignment(member_id=member_id, assignment=b"all"),),
            )
            answer = await client.peer.ask(ApiKey.SYNC_GROUP, request, SyncGroupResponse, version=3)
            return ErrorCode(answer.error_code)

        async def beat() -> ErrorCode:
            request = HeartbeatRequest(group_id="m", member_id=member_id, generation_id=generation)
            answer = await client.peer.ask(ApiKey.HEARTBEAT, request, HeartbeatResponse, version=3)
            return ErrorCode(answer.error_code)

        async def commit(offset: int) -> ErrorCode:
            request = OffsetCommitRequest(
                group_id="m",
                member_id=member_id,
                generation_id_or_member_epoch=generation,
                topics=(
                    OffsetCommitRequestTopic(
                        name="d",
                        partitions=(
                            OffsetCommitRequestPartition(
                                partition_index=0,
                                committed_offset=offset,
                                committed_metadata=None,
                            ),
                        ),
                    ),
                ),
            )
            answer = await client.peer.ask(
                ApiKey.OFFSET_COMMIT, request, OffsetCommitResponse, version=7
            )
            return ErrorCode(answer.topics[0].partitions[0].error_code)

        assert await asked(cluster, client, OFFSETS, sync) is ErrorCode.NONE
        assert await asked(cluster, client, OFFSETS, lambda: commit(3)) is ErrorCode.NONE
        lose(cluster, 2)
        await cluster.until(lambda: cluster.state(OFFSETS).leader == 3)
        assert await asked(cluster, client, OFFSETS, beat) is ErrorCode.NONE
        assert await asked(cluster, client, OFFSETS, lambda: commit(4)) is ErrorCode.NONE
        assert await offset_of(cluster, client, group="m") == 4


async def joined_group(peer: Peer) -> JoinGroupResponse:
    """The answer to the only member of group m; while the group is loaded it asks again."""
    request = JoinGroupRequest(
        group_id="m",
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        member_id="",
        protocol_type="consumer",
        protocols=(JoinGroupRequestProtocol(name="range", metadata=b""),),
    )
    answer = await peer.ask(ApiKey.JOIN_GROUP, request, JoinGroupResponse, version=3)
    while answer.error_code in RETRIED:
        answer = await peer.ask(ApiKey.JOIN_GROUP, request, JoinGroupResponse, version=3)
    assert answer.error_code == ErrorCode.NONE
    return answer
