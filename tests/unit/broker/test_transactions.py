"""Transactions on a broker on doubles, by the requests that producers send."""

import asyncio
from dataclasses import replace

import pytest

from tailrace.coordinator.transactions.records import TransactionCodec, transaction_record
from tailrace.coordinator.transactions.state import Transaction, TransactionStatus
from tailrace.model import (
    TRANSACTIONS_TOPIC,
    AppendOrigin,
    ProducerEpoch,
    ProducerId,
    TopicPartition,
)
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from tailrace.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from tailrace.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from tailrace.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tailrace.records.builder import BatchBuilder
from tailrace.testing import DiskFault, MemoryFiles, Outside, virtual_runtime
from tests.unit.broker.brokers import connect, create_topic, fetch, running
from tests.unit.broker.transactional import (
    NOW,
    Client,
    begin,
    committed_request,
    committed_values,
    find,
    group_offset,
    values_of,
)

FEW = {"transaction.state.log.num.partitions": "3", "offsets.topic.num.partitions": "3"}


async def test_the_topic_of_transactions_is_made_by_the_first_who_asks(outside: Outside) -> None:
    """It has Kafka's name, partitions and settings."""
    async with running(outside) as broker:
        peers = [connect(outside, broker) for _ in range(3)]
        for answer in await asyncio.gather(*(find(each, 1) for each in peers)):
            assert answer.coordinators[0].node_id == 1
        topic = broker.controller.image.topics[TRANSACTIONS_TOPIC]
        assert len(topic.partitions) == 50
        assert topic.configs == {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "segment.bytes": "104857600",
            "unclean.leader.election.enable": "false",
        }


@pytest.mark.parametrize("knows_epochs", [False, True])
async def test_committed_readers_see_whole_transactions(
    outside: Outside,
    knows_epochs: bool,  # noqa: FBT001
) -> None:
    """Nothing of an open one, everything of a committed one, nothing of an aborted one."""
    async with running(outside, FEW) as broker:
        client = await begin(outside, broker, knows_epochs=knows_epochs)
        for value, is_commit in ((b"a", True), (b"b", False), (b"c", True)):
            before = await committed_values(client.peer)
            if not knows_epochs:
                assert await client.add(0) == [ErrorCode.NONE]
            assert (await client.send(value)).error_code == ErrorCode.NONE
            assert await committed_values(client.peer) == before
            epoch = client.epoch
            assert await client.end(is_commit=is_commit) is ErrorCode.NONE
            assert client.epoch == epoch + knows_epochs
            await outside.pass_time(1)
        assert await committed_values(client.peer) == [b"a", b"c"]


async def test_a_fetch_of_a_committed_reader_waits_for_the_marker(outside: Outside) -> None:
    """Records of an open transaction do not wake it; the marker does, at once."""
    async with running(outside, FEW) as broker:
        client = await begin(outside, broker)
        reader = connect(outside, broker)
        waiting = asyncio.ensure_future(fetch(reader, committed_request(max_wait_ms=60_000)))
        await client.add(0)
        await client.send(b"a")
        await outside.pass_time(5)
        assert not waiting.done()
        await client.end()
        await outside.pass_time(0.1)
        assert waiting.done()
        assert values_of(await waiting) == [b"a"]


async def test_a_new_producer_fences_the_one_before(outside: Outside) -> None:
    """Its open transaction is aborted, and every request of it is refused, as Kafka refuses it."""
    async with running(outside, FEW) as broker:
        old = await begin(outside, broker)
        await old.add(0)
        await old.send(b"lost")
        new = Client(connect(outside, broker))
        assert await new.init() is ErrorCode.CONCURRENT_TRANSACTIONS
        await outside.pass_time(1)
        assert await new.init() is ErrorCode.NONE
        assert (new.producer_id, new.epoch) == (old.producer_id, old.epoch + 2)
        assert (await old.send(b"late")).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
        assert await old.add(0, version=1) == [ErrorCode.INVALID_PRODUCER_EPOCH]
        assert await old.add(0, version=2) == [ErrorCode.PRODUCER_FENCED]
        assert await old.end(version=1) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert await old.end(version=2) is ErrorCode.PRODUCER_FENCED
        assert await new.add(0) == [ErrorCode.NONE]
        assert (await new.send(b"kept")).error_code == ErrorCode.NONE
        assert await new.end() is ErrorCode.NONE
        await outside.pass_time(1)
        assert await committed_values(new.peer) == [b"kept"]


@pytest.mark.parametrize(
    ("version", "code"),
    [
        (3, ErrorCode.INVALID_TXN_STATE),
        (10, ErrorCode.INVALID_TXN_STATE),
        (11, ErrorCode.TRANSACTION_ABORTABLE),
        (12, ErrorCode.NONE),
    ],
)
async def test_a_partition_has_to_be_in_the_transaction(
    outside: Outside, version: int, code: ErrorCode
) -> None:
    """Before version 12 the producer adds it; since then the broker does (KIP-890)."""
    async with running(outside, FEW) as broker:
        client = await begin(outside, broker, partitions=2)
        await client.add(1)
        assert (await client.send(b"a", version=version)).error_code == code
        end = broker.replicas.find(TopicPartition("d", 0)).log.end_offset
        assert (end == 1) is (code is ErrorCode.NONE)


async def test_a_batch_that_comes_after_its_transaction_opens_none(outside: Outside) -> None:
    """No marker would follow it, and committed readers would stop there for ever (KIP-890)."""
    async with running(outside, FEW) as broker:
        client = await begin(outside, broker)
        await client.add(0)
        await client.send(b"a")
        await client.end()
        await outside.pass_time(1)
        assert (await client.send(b"late")).error_code == ErrorCode.TRANSACTION_ABORTABLE
        assert await committed_values(client.peer) == [b"a"]
        log = broker.replicas.find(TopicPartition("d", 0)).log
        assert log.positions.last_stable == log.end_offset


async def test_without_verification_the_coordinator_is_not_asked(outside: Outside) -> None:
    """The operator has turned it off: such a batch opens a transaction, as before KIP-890."""
    settings = FEW | {"transaction.partition.verification.enable": "false"}
    async with running(outside, settings) as broker:
        client = await begin(outside, broker)
        assert (await client.send(b"a")).error_code == ErrorCode.NONE


async def test_without_verification_partitions_and_groups_are_still_added(
    outside: Outside,
) -> None:
    """A producer of KIP-890 adds nothing itself: its transaction would have no end."""
    settings = FEW | {"transaction.partition.verification.enable": "false"}
    async with running(outside, settings) as broker:
        client = await begin(outside, broker, knows_epochs=True)
        assert (await client.send(b"a")).error_code == ErrorCode.NONE
        assert await client.commit_offset(7) is ErrorCode.NONE
        assert await client.end() is ErrorCode.NONE
        await outside.pass_time(1)
        assert await committed_values(client.peer) == [b"a"]
        assert await group_offset(client.peer) == 7


async def test_the_next_transaction_waits_a_short_time_for_the_one_before(
    outside: Outside,
) -> None:
    """A producer of KIP-890 sends at once after EndTxn, while the markers are still written."""
    async with running(outside, FEW) as broker:
        client = await begin(outside, broker, knows_epochs=True)
        for number in range(5):
            assert (await client.send(b"%d" % number)).error_code == ErrorCode.NONE
            assert await client.end() is ErrorCode.NONE
        await outside.pass_time(1)
        assert await committed_values(client.peer) == [b"0", b"1", b"2", b"3", b"4"]


async def test_a_request_has_the_records_of_one_transaction(outside: Outside) -> None:
    """A request without a transactional id, or with two producers in it, appends nothing."""
    async with running(outside, FEW) as broker:
        client = await begin(outside, broker)
        await client.add(0)
        other = replace(client, producer_id=client.producer_id + 1)
        assert (await other.send(b"x")).error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert (await replace(client, transactional_id="u").send(b"x")).error_code == (
            ErrorCode.INVALID_PRODUCER_ID_MAPPING
        )
        assert await committed_values(client.peer) == []


async def send_at_once(client: Client, *batches: bytes) -> list[ErrorCode]:
    """The codes of a request with a batch for each partition from 0 on."""
    data = tuple(
        PartitionProduceData(index=number, records=each) for number, each in enumerate(batches)
    )
    request = ProduceRequest(
        transactional_id=client.transactional_id,
        acks=-1,
        timeout_ms=1000,
        topic_data=(TopicProduceData(name="d", partition_data=data),),
    )
    answer = await client.peer.ask(ApiKey.PRODUCE, request, ProduceResponse, version=12)
    return [ErrorCode(each.error_code) for each in answer.responses[0].partition_responses]


def sequenced(producer_id: int) -> bytes:
    """The first batch of an idempotent producer."""
    builder = BatchBuilder(producer_id=producer_id, producer_epoch=0, base_sequence=0)
    builder.append(b"k", b"v", timestamp=NOW)
    return builder.build()


async def test_one_request_may_have_several_partitions_of_a_transaction(outside: Outside) -> None:
    """Each begins it in its partition, and each gets its end."""
    async with running(outside, FEW) as broker:
        client = await begin(outside, broker, partitions=2, knows_epochs=True)
        assert await send_at_once(client, client.batch(b"a"), client.batch(b"b")) == [0, 0]
        assert await client.end() is ErrorCode.NONE
        await outside.pass_time(1)
        for number in range(2):
            log = broker.replicas.find(TopicPartition("d", number)).log
            assert log.positions.last_stable == log.end_offset == 2


async def test_only_batches_of_a_transaction_are_verified(outside: Outside) -> None:
    """One of an idempotent producer beside it is appended, though no coordinator answers."""
    async with running(outside, FEW) as broker:
        client = Client(connect(outside, broker), producer_id=7, epoch=0)
        await create_topic(client.peer, "d", partitions=2)
        assert await send_at_once(client, client.batch(b"a"), sequenced(7)) == [
            ErrorCode.NOT_ENOUGH_REPLICAS,
            ErrorCode.NONE,
        ]


async def test_a_transaction_has_one_producer(outside: Outside) -> None:
    """Batches of two in one request are refused, and the coordinator is asked about neither."""
    async with running(outside, FEW) as broker:
        client = await begin(outside, broker, partitions=2, knows_epochs=True)
        other = replace(client, producer_id=client.producer_id + 1)
        assert await send_at_once(client, client.batch(b"a"), other.batch(b"b")) == [
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ]
        assert await committed_values(client.peer) == []
        assert broker.replicas.find(TopicPartition("d", 0)).log.end_offset == 0


async def test_partitions_that_cannot_be_added_are_named(outside: Outside) -> None:
    """Beside an unknown one the others are not attempted; internal topics are for brokers."""
    async with running(outside, FEW) as broker:
        client = await begin(outside, broker)
        assert await client.add(0, 7) == [
            ErrorCode.OPERATION_NOT_ATTEMPTED,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        assert await client.add(0, topic="__consumer_offsets") == [
            ErrorCode.TOPIC_AUTHORIZATION_FAILED
        ]
        transaction = AddPartitionsToTxnTransaction(
            transactional_id="t",
            producer_id=client.producer_id,
            producer_epoch=client.epoch,
            verify_only=True,
            topics=(AddPartitionsToTxnTopic(name="d", partitions=(0,)),),
        )
        asked = AddPartitionsToTxnRequest(
            transactions=(transaction, replace(transaction, transactional_id="u"))
        )
        await client.add_offsets()
        answer = await client.peer.ask(
            ApiKey.ADD_PARTITIONS_TO_TXN, asked, AddPartitionsToTxnResponse
        )
        assert [
            each.topic_results[0].results_by_partition[0].partition_error_code
            for each in answer.results_by_transaction
        ] == [ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_PRODUCER_ID_MAPPING]


@pytest.mark.parametrize("knows_epochs", [False, True])
async def test_offsets_count_with_their_transaction(
    outside: Outside,
    knows_epochs: bool,  # noqa: FBT001
) -> None:
    """They are pending until the marker, count with a commit and vanish with an abort."""
    async with running(outside, FEW) as broker:
        client = await begin(outside, broker, knows_epochs=knows_epochs)
        offsets = []
        for offset, is_commit in ((5, True), (9, False)):
            if not knows_epochs:
                assert await client.add_offsets() is ErrorCode.NONE
            assert await client.commit_offset(offset) is ErrorCode.NONE
            assert await group_offset(client.peer) is ErrorCode.UNSTABLE_OFFSET_COMMIT
            offsets.append(await group_offset(client.peer, is_stable=False))
            assert await client.end(is_commit=is_commit) is ErrorCode.NONE
            await outside.pass_time(1)
            offsets.append(await group_offset(client.peer))
        assert offsets == [-1, 5, 5, 5]


async def test_offsets_are_refused_as_kafka_refuses_them(outside: Outside) -> None:
    """Without the group in the transaction, for an unknown topic, by a fenced or foreign member."""
    async with running(outside, FEW) as broker:
        client = await begin(outside, broker)
        await client.add(0)
        assert await client.commit_offset(1, version=3) is ErrorCode.INVALID_TXN_STATE
        assert await client.commit_offset(1, version=4) is ErrorCode.TRANSACTION_ABORTABLE
        await client.add_offsets()
        unknown = await client.commit_offset(1, topic="gone")
        assert unknown is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await client.commit_offset(1, generation=3) is ErrorCode.ILLEGAL_GENERATION
        assert await client.commit_offset(1) is ErrorCode.NONE
        stranger = await client.commit_offset(1, generation=3, member_id="m")
        assert stranger is ErrorCode.UNKNOWN_MEMBER_ID
        old = replace(client, epoch=client.epoch)
        await Client(client.peer).init()
        await outside.pass_time(1)
        assert await old.commit_offset(2) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert await group_offset(client.peer) == -1


async def test_the_coordinator_aborts_what_is_open_for_too_long(outside: Outside) -> None:
    """Readers go on, and the producer learns that it is fenced."""
    async with running(outside, FEW) as broker:
        client = await begin(outside, broker)
        await client.init(timeout_ms=5_000)
        await client.add(0)
        await client.send(b"a")
        await outside.pass_time(21)
        log = broker.replicas.find(TopicPartition("d", 0)).log
        assert log.positions.last_stable == log.end_offset
        assert await committed_values(client.peer) == []
        assert (await client.send(b"b")).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
        assert await client.end() is ErrorCode.PRODUCER_FENCED


async def test_an_abort_at_the_last_epoch_takes_a_producer_id_that_is_new(
    outside: Outside,
) -> None:
    """Its client goes on with that id, after all that the cluster has given out."""
    one = {**FEW, "transaction.state.log.num.partitions": "1"}
    async with running(outside, one) as broker:
        client = await begin(outside, broker)
        used_up = Transaction(
            transactional_id="t",
            producer_id=ProducerId(client.producer_id),
            producer_epoch=ProducerEpoch(32_766),
            previous_producer_id=ProducerId(client.producer_id),
            timeout_ms=5_000,
            status=TransactionStatus.ONGOING,
            partitions=frozenset({TopicPartition("d", 0)}),
            updated_ms=NOW,
            start_ms=NOW,
            client_version=2,
        )
        builder = BatchBuilder()
        key, value = TransactionCodec().encode(transaction_record(used_up))
        builder.append(key, value, timestamp=NOW)
        broker.replicas.find(TopicPartition(TRANSACTIONS_TOPIC, 0)).append(
            memoryview(bytearray(builder.build())), now_ms=NOW, origin=AppendOrigin.COORDINATOR
        )
    async with running(outside, one) as broker:
        await outside.pass_time(21)
        assert broker.statistics().coordinators.transactions.by_state == {"CompleteAbort": 1}
        peer = connect(outside, broker)
        request = InitProducerIdRequest(
            transactional_id="t",
            transaction_timeout_ms=5_000,
            producer_id=client.producer_id,
            producer_epoch=32_766,
        )
        answer = await peer.ask(ApiKey.INIT_PRODUCER_ID, request, InitProducerIdResponse)
        assert (answer.error_code, answer.producer_epoch) == (ErrorCode.NONE, 0)
        assert answer.producer_id > client.producer_id
        again = Client(peer, producer_id=answer.producer_id, epoch=0)
        await again.add(0)
        assert (await again.send(b"a")).error_code == ErrorCode.NONE
        assert await again.end() is ErrorCode.NONE
        await outside.pass_time(1)
        assert await committed_values(peer) == [b"a"]


async def test_no_id_is_coordinated_before_the_topic_exists(outside: Outside) -> None:
    """The answer sends the client to look for the coordinator, which creates the topic."""
    async with running(outside, FEW) as broker:
        client = Client(connect(outside, broker))
        assert await client.init() is ErrorCode.NOT_COORDINATOR
        assert await client.end() is ErrorCode.NOT_COORDINATOR
        client.producer_id, client.epoch = 1, 0
        await create_topic(client.peer, "d")
        answer = await client.send(b"a")
        assert answer.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert "NOT_COORDINATOR" in (answer.error_message or "")


async def test_a_topic_that_is_deleted_holds_up_no_transaction(outside: Outside) -> None:
    """The markers of the other partitions are written, and the next transaction begins."""
    async with running(outside, FEW) as broker:
        client = await begin(outside, broker)
        await create_topic(client.peer, "gone")
        await client.add(0, topic="gone")
        await client.add(0)
        await client.send(b"a")
        asked = DeleteTopicsRequest(topic_names=("gone",))
        await client.peer.ask(ApiKey.DELETE_TOPICS, asked, DeleteTopicsResponse, version=5)
        assert await client.end() is ErrorCode.NONE
        await outside.pass_time(1)
        assert await committed_values(client.peer) == [b"a"]
        assert await client.add(0) == [ErrorCode.NONE]


def test_a_transaction_waits_for_a_failed_directory_until_it_is_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The other partitions have their markers, the operator is told once, and a restart ends it."""
    one = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
    settings = {**one, "log.dirs": "a,b"}

    async def fail(outside: Outside) -> None:
        async with running(outside, settings) as broker:
            client = await begin(outside, broker)
            assert outside.files.exists("b/__consumer_offsets-0")
            await client.add(0)
            await client.send(b"x")
            await client.add_offsets()
            assert await client.commit_offset(5) is ErrorCode.NONE
            outside.files.faults.append(DiskFault(operation="write", path_part="b/"))
            assert await client.end() is ErrorCode.NONE
            await outside.pass_time(200)
            assert await committed_values(client.peer) == [b"x"]
            assert await client.add(0) == [ErrorCode.CONCURRENT_TRANSACTIONS]

    async def look(outside: Outside) -> None:
        async with running(outside, settings) as broker:
            await outside.pass_time(1)
            assert await group_offset(connect(outside, broker)) == 5

    with virtual_runtime() as outside:
        outside.run(fail(outside))
        disk = outside.files.crash(keep_unsynced=True)
    assert caplog.text.count("transaction_markers_delayed") == 1
    with virtual_runtime(files=disk) as outside:
        outside.run(look(outside))


async def test_a_partition_that_is_deleted_holds_up_no_transaction(outside: Outside) -> None:
    """Its topic has been created again with fewer partitions."""
    async with running(outside, FEW) as broker:
        client = await begin(outside, broker)
        await create_topic(client.peer, "gone", partitions=2)
        await client.add(1, topic="gone")
        await client.add(0)
        await client.send(b"a")
        asked = DeleteTopicsRequest(topic_names=("gone",))
        await client.peer.ask(ApiKey.DELETE_TOPICS, asked, DeleteTopicsResponse, version=5)
        await create_topic(client.peer, "gone")
        assert await client.end() is ErrorCode.NONE
        await outside.pass_time(1)
        assert await client.add(0) == [ErrorCode.NONE]


@pytest.mark.parametrize("knows_epochs", [False, True])
def test_an_end_that_was_decided_survives_a_crash(knows_epochs: bool) -> None:  # noqa: FBT001
    """The markers are written by the next start, for data and for pending offsets."""

    async def before(outside: Outside) -> Client:
        async with running(outside, FEW) as broker:
            client = await begin(outside, broker, knows_epochs=knows_epochs)
            await client.add(0)
            await client.add_offsets()
            await client.send(b"a")
            await client.commit_offset(3)
            await client.end()
            disks.append(outside.files.crash(keep_unsynced=True))
            return client

    async def after(outside: Outside) -> None:
        async with running(outside, FEW) as broker:
            await outside.pass_time(1)
            peer = connect(outside, broker)
            assert await committed_values(peer) == [b"a"]
            assert await group_offset(peer) == 3
            again = replace(client, peer=peer)
            assert await again.add(0) == [ErrorCode.NONE]

    disks: list[MemoryFiles] = []
    with virtual_runtime() as outside:
        client = outside.run(before(outside))
    with virtual_runtime(files=disks[0]) as outside:
        outside.run(after(outside))
