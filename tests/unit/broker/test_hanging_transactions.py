"""Transactions that nobody ends: an operator finds them and aborts them."""

import asyncio
import errno
from dataclasses import replace

import pytest

from tailrace.model import TopicPartition
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    TopicRequest,
)
from tailrace.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from tailrace.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from tailrace.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tailrace.testing import DiskFault, Outside, Peer
from tests.unit.broker.brokers import batch, connect, create_topic, produce, running
from tests.unit.broker.test_transactions import FEW
from tests.unit.broker.transactional import Client, begin, committed_values, group_offset

UNVERIFIED = FEW | {"transaction.partition.verification.enable": "false"}


async def producers_of(
    peer: Peer, topic: str = "d", *partitions: int
) -> tuple[PartitionResponse, ...]:
    """The answer of DescribeProducers for partitions of a topic, or for its first one."""
    asked = DescribeProducersRequest(
        topics=(TopicRequest(name=topic, partition_indexes=partitions or (0,)),)
    )
    answer = await peer.ask(ApiKey.DESCRIBE_PRODUCERS, asked, DescribeProducersResponse)
    return answer.topics[0].partitions


async def listed(peer: Peer, **filters: object) -> ListTransactionsResponse:
    """The answer of ListTransactions."""
    request = ListTransactionsRequest(**filters)  # type: ignore[arg-type]
    return await peer.ask(ApiKey.LIST_TRANSACTIONS, request, ListTransactionsResponse)


async def mark(
    peer: Peer,
    client: Client,
    *,
    topic: str = "d",
    partition: int = 0,
    epoch: int | None = None,
    coordinator_epoch: int = 0,
    is_commit: bool = False,
    transaction_version: int = 0,
) -> ErrorCode:
    """The code of a WriteTxnMarkers for one partition."""
    marker = WritableTxnMarker(
        producer_id=client.producer_id,
        producer_epoch=client.epoch if epoch is None else epoch,
        transaction_result=is_commit,
        topics=(WritableTxnMarkerTopic(name=topic, partition_indexes=(partition,)),),
        coordinator_epoch=coordinator_epoch,
        transaction_version=transaction_version,
    )
    request = WriteTxnMarkersRequest(markers=(marker,))
    answer = await peer.ask(ApiKey.WRITE_TXN_MARKERS, request, WriteTxnMarkersResponse)
    [result] = answer.markers[0].topics[0].partitions
    return ErrorCode(result.error_code)


async def test_a_hanging_transaction_is_found_and_aborted(outside: Outside) -> None:
    """The steps of kafka-transactions.sh: the producer's state, no such transaction, a marker."""
    async with running(outside, UNVERIFIED) as broker:
        client = await begin(outside, broker)
        await client.send(b"hanging")
        peer = connect(outside, broker)
        await produce(peer, "d", batch(b"behind"))
        assert await committed_values(peer) == []
        [found] = await producers_of(peer)
        [producer] = found.active_producers
        assert producer.current_txn_start_offset == 0
        assert (producer.producer_id, producer.producer_epoch) == (client.producer_id, 0)
        assert (producer.last_sequence, producer.coordinator_epoch) == (0, -1)
        states = await listed(peer, producer_id_filters=(client.producer_id,))
        assert [each.transaction_state for each in states.transaction_states] == ["Empty"]
        assert await mark(peer, client) is ErrorCode.NONE
        assert await committed_values(peer) == [b"behind"]
        [found] = await producers_of(peer)
        [producer] = found.active_producers
        assert (producer.current_txn_start_offset, producer.coordinator_epoch) == (-1, 0)


async def test_a_marker_of_an_operator_ends_pending_offsets_too(outside: Outside) -> None:
    """A hanging transaction in `__consumer_offsets` would keep a group from its offsets."""
    async with running(outside, FEW | {"offsets.topic.num.partitions": "1"}) as broker:
        client = await begin(outside, broker)
        await client.add_offsets()
        await client.commit_offset(4)
        assert await group_offset(client.peer) is ErrorCode.UNSTABLE_OFFSET_COMMIT
        peer = connect(outside, broker)
        code = await mark(peer, client, topic="__consumer_offsets", is_commit=True)
        assert code is ErrorCode.NONE
        assert await group_offset(client.peer) == 4


async def test_markers_are_refused_as_kafka_refuses_them(outside: Outside) -> None:
    """By a partition that is not here, of old epochs, and late ones of KIP-1228."""
    async with running(outside, FEW) as broker:
        client = await begin(outside, broker)
        await client.add(0)
        await client.send(b"a")
        peer = connect(outside, broker)
        assert await mark(peer, client, topic="gone") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await mark(peer, client, partition=9) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        code = await mark(peer, client, topic="__consumer_offsets", partition=9)
        assert code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert await mark(peer, client, epoch=-1) is ErrorCode.INVALID_REQUEST
        assert await mark(peer, client, transaction_version=2) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert await mark(peer, client, epoch=1, coordinator_epoch=5) is ErrorCode.NONE
        assert await mark(peer, client, epoch=0) is ErrorCode.INVALID_PRODUCER_EPOCH
        code = await mark(peer, client, epoch=1, coordinator_epoch=4)
        assert code is ErrorCode.TRANSACTION_COORDINATOR_FENCED


async def test_producers_of_a_partition_that_is_not_there(outside: Outside) -> None:
    """Each partition has its own error; one that is named often is answered once."""
    async with running(outside, FEW) as broker:
        client = await begin(outside, broker)
        answers = await producers_of(client.peer, "d", 0, 7, 0, 0)
        assert [(each.partition_index, each.error_code) for each in answers] == [
            (0, ErrorCode.NONE),
            (7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]
        [refused] = await producers_of(client.peer, "..")
        assert refused.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_transactions_are_described(outside: Outside) -> None:
    """With their partitions while they are open; an unknown id has an error of its own."""
    async with running(outside, FEW) as broker:
        client = await begin(outside, broker, partitions=2)
        await client.add(1, 0)
        request = DescribeTransactionsRequest(transactional_ids=("t", "u", "", "t"))
        answer = await client.peer.ask(
            ApiKey.DESCRIBE_TRANSACTIONS, request, DescribeTransactionsResponse
        )
        known, unknown, empty = answer.transaction_states
        assert (known.transaction_state, known.producer_id) == ("Ongoing", client.producer_id)
        assert [(each.topic, each.partitions) for each in known.topics] == [("d", (0, 1))]
        assert unknown.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        assert empty.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("filters", "ids"),
    [
        ({}, ["t", "t.2"]),
        ({"state_filters": ("Ongoing",)}, ["t"]),
        ({"transactional_id_pattern": "t"}, ["t"]),
        ({"transactional_id_pattern": "t.*"}, ["t", "t.2"]),
        ({"transactional_id_pattern": ""}, ["t", "t.2"]),
        ({"duration_filter": 1_000}, ["t"]),
    ],
)
async def test_transactions_are_listed_by_filters(
    outside: Outside, filters: dict[str, object], ids: list[str]
) -> None:
    """By state, duration, and a pattern of RE2 that matches the whole id."""
    async with running(outside, FEW) as broker:
        client = await begin(outside, broker)
        other = Client(client.peer, "t.2")
        await other.init()
        await client.add(0)
        await outside.pass_time(2)
        await other.add(0)
        await other.end()
        answer = await listed(client.peer, **filters)
        assert sorted(each.transactional_id for each in answer.transaction_states) == ids


async def test_a_list_with_filters_that_cannot_be(outside: Outside) -> None:
    """Unknown states are named, and a pattern that is none is refused."""
    async with running(outside, FEW) as broker:
        client = await begin(outside, broker)
        answer = await listed(client.peer, state_filters=("Open",))
        assert (answer.unknown_state_filters, answer.transaction_states) == (("Open",), ())
        refused = await listed(client.peer, transactional_id_pattern="(")
        assert refused.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
        log = broker.replicas.find(TopicPartition("d", 0)).log
        assert log.end_offset == 0


async def test_a_batch_that_waits_for_its_transaction_to_end_is_refused_as_late(
    outside: Outside,
) -> None:
    """An operator writes the marker, whose epoch is newer, between two tries of the broker."""
    patient = {"add.partitions.to.txn.retry.backoff.max.ms": "1000"}
    async with running(outside, FEW | patient) as broker:
        client = await begin(outside, broker, knows_epochs=True)
        await create_topic(client.peer, "full")
        full = DiskFault(operation="write", path_part="/full-0", error=errno.ENOSPC)
        outside.files.faults.append(full)
        late = replace(client, peer=connect(outside, broker))
        assert await client.add(0, topic="full") == [ErrorCode.NONE]
        assert await client.end() is ErrorCode.NONE
        waiting = asyncio.ensure_future(late.send(b"late"))
        await outside.pass_time(0.1)
        assert not waiting.done()
        assert await mark(client.peer, client, transaction_version=2) is ErrorCode.NONE
        assert (await waiting).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
        outside.files.faults.clear()
