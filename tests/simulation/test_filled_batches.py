"""Batches that the program fills itself: they are sent whole, once, and with a receipt."""

import asyncio
from typing import Any

import pytest

from tailrace.client.producer import BatchReceipt, ProducerBatch, RecordMetadata
from tailrace.client.producer.errors import (
    BufferExhaustedError,
    ClosedBatchError,
    ClosedProducerError,
    InvalidTopicError,
    MetadataTimeoutError,
    RejectedRecordError,
    SerializationError,
    TransactionStateError,
)
from tailrace.client.producer.plugins import ProducerInterceptor, ProducerRecord
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.testing.script import FaultKind
from tests.simulation.stage import T1, Stage, check_empty, play


def fill(batch: ProducerBatch, count: int, *, size: int = 0) -> list[bytes]:
    """Append records that differ, and return their values."""
    values = [b"%d" % number + b"." * size for number in range(count)]
    assert all(batch.append(value) for value in values)
    return values


def test_a_filled_batch_is_written_as_one_batch() -> None:
    """All records arrive in one batch with their fields, and the receipt names each offset."""

    async def main(stage: Stage) -> None:
        async with stage.producer() as producer:
            await producer.send("t", b"before", partition=1)
            batch = producer.create_batch("t")
            assert batch.append(b"a", b"key", headers={"h": b"1"}, timestamp=1000)
            assert batch.append("b", headers=[("i", None)])
            assert batch.append(None, "k")
            assert batch.record_count == 3
            receipt = await producer.send_batch(batch, partition=1)
            found = await receipt
            assert [(each.partition, each.offset) for each in found] == [(1, 1), (1, 2), (1, 3)]
            assert found[0].timestamp == 1000
            assert found[1].timestamp == int(stage.outside.runtime.clock.now_ms())
            assert [await each for each in receipt.receipts()] == found
            check_empty(producer)
        records = stage.cluster.log("t", 1).records[1:]
        assert [(each.key, each.value, each.headers) for each in records] == [
            (b"key", b"a", (("h", b"1"),)),
            (None, b"b", (("i", None),)),
            (b"k", None, ()),
        ]
        assert [each.timestamp for each in records] == [each.timestamp for each in found]
        assert [each.record_count for each in stage.cluster.sent] == [1, 3]

    play(main)


@pytest.mark.parametrize("size", [0, 100])
def test_append_says_when_the_batch_is_full(size: int) -> None:
    """A record without room is not in it, and the batch on the wire is within batch.size."""

    async def main(stage: Stage) -> None:
        async with stage.producer(batch_size=2000) as producer:
            batch = producer.create_batch("t")
            values: list[bytes | None] = []
            while batch.append(value := b"%d" % len(values) + b"." * size):
                values.append(value)
            assert 1900 - size < batch.size <= 2000
            assert batch.record_count == len(values)
            await (await producer.send_batch(batch, partition=0))
            assert 0 < producer.metrics()["batch-size-avg"] <= batch.size
        assert stage.cluster.log().values() == values

    play(main)


def test_a_record_that_is_larger_than_a_batch_is_one_alone() -> None:
    """The first record may have up to max.request.size, and no other fits beside it."""

    async def main(stage: Stage) -> None:
        async with stage.producer(batch_size=100, max_request_size=2000) as producer:
            batch = producer.create_batch("t")
            assert batch.append(bytes(1500))
            assert not batch.append(b"")
            await (await producer.send_batch(batch, partition=0))
        assert stage.cluster.log().values() == [bytes(1500)]

    play(main)


def test_a_record_that_cannot_be_sent_raises_and_leaves_the_others() -> None:
    """A wrong type, size or time has one error at once; the batch keeps what it had."""

    async def main(stage: Stage) -> None:
        async with stage.producer(max_request_size=2000) as producer:
            batch = producer.create_batch("t")
            assert batch.append(b"good")
            wrong: list[tuple[type[Exception], str, dict[str, Any]]] = [
                (TypeError, "value is an int", {"value": 1}),
                (TypeError, "key is a list", {"key": []}),
                (TypeError, "timestamp is a float", {"timestamp": 1.5}),
                (TypeError, "headers is an int", {"headers": 7}),
                (RejectedRecordError, "max.request.size", {"value": bytes(5000)}),
                (RejectedRecordError, "timestamp -", {"timestamp": -(1 << 63)}),
                (RejectedRecordError, "UTF-8", {"headers": {"\udc00": b""}}),
                (SerializationError, "UTF-8", {"value": "\udc00"}),
            ]
            for kind, words, fields in wrong:
                size = batch.size
                with pytest.raises(kind, match=words):
                    batch.append(**fields)
                assert (batch.record_count, batch.size) == (1, size)
            await (await producer.send_batch(batch, partition=0))
        assert stage.cluster.log().values() == [b"good"]

    play(main)


def test_a_batch_is_sent_once_and_takes_nothing_after_that() -> None:
    """A second send and a later record raise, as does a record after close; nothing is written."""

    async def main(stage: Stage) -> None:
        async with stage.producer() as producer:
            batch = producer.create_batch("t")
            fill(batch, 2)
            batch.close()
            batch.close()
            with pytest.raises(ClosedBatchError, match="is closed"):
                batch.append(b"late")
            await (await producer.send_batch(batch, partition=0))
            with pytest.raises(ClosedBatchError, match="was sent"):
                batch.append(b"late")
            with pytest.raises(ClosedBatchError, match="was sent"):
                await producer.send_batch(batch, partition=1)
        assert len(stage.cluster.log("t", 0).records) == 2
        assert not stage.cluster.log("t", 1).records

    play(main)


def test_two_tasks_cannot_send_one_batch() -> None:
    """While one task waits for the topic, the other gets an error; the batch is there once."""

    async def main(stage: Stage) -> None:
        async with stage.producer() as producer:
            batch = producer.create_batch("t")
            fill(batch, 2)
            sends = [producer.send_batch(batch, partition=each) for each in (0, 1)]
            found = await asyncio.gather(*sends, return_exceptions=True)
            assert [type(each) for each in found] == [BatchReceipt, ClosedBatchError]
            await producer.flush()
        assert len(stage.cluster.log("t", 0).records) == 2
        assert not stage.cluster.log("t", 1).records

    play(main)


def test_what_cannot_be_sent_as_a_batch_is_refused() -> None:
    """Wrong arguments raise before anything waits: topic, partition, batch and its producer."""

    async def main(stage: Stage) -> None:
        async with stage.producer() as producer, stage.producer() as other:
            with pytest.raises(TypeError, match="topic is a bytes"):
                producer.create_batch(b"t")  # type: ignore[arg-type]
            with pytest.raises(InvalidTopicError):
                producer.create_batch("no/topic")
            batch = producer.create_batch("t")
            with pytest.raises(ValueError, match="no records"):
                await producer.send_batch(batch, partition=0)
            fill(batch, 1)
            wrong: list[tuple[type[Exception], object]] = [
                (TypeError, None), (TypeError, "0"), (TypeError, True), (TypeError, 0.0),
                (ValueError, -1), (ValueError, 1 << 40),
            ]  # fmt: skip
            for kind, partition in wrong:
                with pytest.raises(kind, match="partition"):
                    await producer.send_batch(batch, partition=partition)  # type: ignore[arg-type]
            with pytest.raises(TypeError, match="send_many"):
                await producer.send_batch([b"x"], partition=0)  # type: ignore[arg-type]
            with pytest.raises(ValueError, match="producer that created it"):
                await other.send_batch(batch, partition=0)
            assert batch.append(b"still open")
            await (await producer.send_batch(batch, partition=0))

    play(main)


def test_a_batch_whose_partition_is_missing_may_be_sent_to_another() -> None:
    """The first send fails after max.block.ms with nothing sent; the second one is as the first."""

    async def main(stage: Stage) -> None:
        async with stage.producer(max_block_ms=500) as producer:
            batch = producer.create_batch("t")
            values = fill(batch, 3)
            with pytest.raises((MetadataTimeoutError, LookupError), match="7"):
                await producer.send_batch(batch, partition=7)
            await (await producer.send_batch(batch, partition=0))
            check_empty(producer)
        assert stage.cluster.log().values() == values

    play(main)


def test_a_batch_takes_memory_and_waits_for_it() -> None:
    """A full buffer holds it back, then fails it; it is sent again when there is room."""

    async def main(stage: Stage) -> None:
        settings = {"batch_size": 4000, "buffer_memory": 4400, "max_block_ms": 1000}
        async with stage.producer(**settings) as producer:
            await producer.send("t", b"known", partition=0)
            stage.cluster.script.add(ApiKey.PRODUCE, FaultKind.DELAY, delay_s=5)
            large, next_one = producer.create_batch("t"), producer.create_batch("t")
            for batch in (large, next_one):
                fill(batch, 40, size=50)
            before = producer.metrics()["buffer-available-bytes"]
            first = await producer.send_batch(large, partition=0)
            taken = before - producer.metrics()["buffer-available-bytes"]
            assert taken == large.size + 40 * 8
            with pytest.raises(BufferExhaustedError, match=r"buffer\.memory"):
                await producer.send_batch(next_one, partition=0)
            await first
            await (await producer.send_batch(next_one, partition=0))
            check_empty(producer)
        assert len(stage.cluster.log().records) == 1 + 80

    play(main)


def test_a_cancelled_send_of_a_batch_sends_nothing() -> None:
    """The task that waits for the topic is cancelled; the same batch can be sent later."""

    async def main(stage: Stage) -> None:
        async with stage.producer() as producer:
            batch = producer.create_batch("new")
            fill(batch, 2)
            sending = asyncio.ensure_future(producer.send_batch(batch, partition=0))
            await stage.pass_time(0.01)
            sending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sending
            stage.cluster.create_topic("new", partitions=1)
            await (await producer.send_batch(batch, partition=0))
            check_empty(producer)
        assert len(stage.cluster.log("new", 0).records) == 2

    play(main)


def test_batches_and_records_keep_their_order() -> None:
    """Records sent before a batch come before it, also those in the queue of a new producer."""

    async def main(stage: Stage) -> None:
        async with stage.producer(linger_ms=1000) as producer:
            producer.send("t", b"first", partition=0)
            batch = producer.create_batch("t")
            fill(batch, 2)
            await producer.send_batch(batch, partition=0)
            producer.send("t", b"last", partition=0)
        assert stage.cluster.log().values() == [b"first", b"0", b"1", b"last"]

    play(main)


@pytest.mark.parametrize(
    "how", [FaultKind.CUT, FaultKind.CUT_AFTER, FaultKind.LOSE_REPLY, FaultKind.TWICE]
)
def test_a_batch_survives_broken_connections(how: FaultKind) -> None:
    """It is written once and in order although answers are lost, as every batch is."""

    async def main(stage: Stage) -> None:
        stage.cluster.script.add(ApiKey.PRODUCE, how, skip=1, times=2)
        async with stage.producer(request_timeout_ms=2000) as producer:
            receipts = []
            for _ in range(4):
                batch = producer.create_batch("t")
                fill(batch, 3)
                receipts.append(await producer.send_batch(batch, partition=0))
            found = [each.offset for receipt in receipts for each in await receipt]
            assert found == list(range(12))
            check_empty(producer)
        assert stage.cluster.log().values() == [b"0", b"1", b"2"] * 4

    play(main)


def test_a_batch_that_the_broker_finds_too_large_arrives_in_parts() -> None:
    """The receipt covers the parts: each record has its offset, in order."""

    async def main(stage: Stage) -> None:
        stage.cluster.log().batch_bytes_max = 600
        async with stage.producer() as producer:
            batch = producer.create_batch("t")
            values = fill(batch, 50, size=20)
            receipt = await producer.send_batch(batch, partition=0)
            assert [each.offset for each in await receipt] == list(range(50))
            assert receipt.done()
            assert producer.metrics()["batch-split-total"] > 0
            check_empty(producer)
        assert stage.cluster.log().values() == values

    play(main)


def test_one_record_of_a_batch_may_fail_alone() -> None:
    """After a split, result raises the error of that record, and receipts has the others."""

    async def main(stage: Stage) -> None:
        stage.cluster.log().batch_bytes_max = 600
        async with stage.producer() as producer:
            batch = producer.create_batch("t")
            assert all(batch.append(value) for value in (b"a", bytes(1000), b"b"))
            receipt = await producer.send_batch(batch, partition=0)
            with pytest.raises(RejectedRecordError, match="MESSAGE_TOO_LARGE"):
                await receipt
            assert isinstance(receipt.exception(), RejectedRecordError)
            failed = [each.exception() is not None for each in receipt.receipts()]
            assert failed == [False, True, False]
            assert "RejectedRecordError" in repr(receipt)
        assert stage.cluster.log().values() == [b"a", b"b"]

    play(main)


def test_a_refused_batch_fails_with_the_error_of_the_broker() -> None:
    """No record is written, and the receipt raises the error."""

    async def main(stage: Stage) -> None:
        stage.cluster.script.add(ApiKey.PRODUCE, FaultKind.ERROR, error=ErrorCode.INVALID_TIMESTAMP)
        async with stage.producer() as producer:
            batch = producer.create_batch("t")
            fill(batch, 2)
            receipt = await producer.send_batch(batch, partition=0)
            with pytest.raises(RejectedRecordError, match="INVALID_TIMESTAMP"):
                await receipt
            check_empty(producer)
        assert not stage.cluster.log().records

    play(main)


def test_a_batch_is_a_part_of_the_transaction() -> None:
    """It commits and aborts with it; without an open transaction it is refused and sent later."""

    async def main(stage: Stage) -> None:
        async with stage.producer(transactional_id="x") as producer:
            batch, lost = producer.create_batch("t"), producer.create_batch("t")
            fill(batch, 2)
            fill(lost, 2)
            with pytest.raises(TransactionStateError):
                await producer.send_batch(batch, partition=0)
            async with producer.transaction():
                receipt = await producer.send_batch(batch, partition=0)
            assert [each.offset for each in await receipt] == [0, 1]
            await producer.begin_transaction()
            await (await producer.send_batch(lost, partition=1))
            await producer.abort_transaction()
            check_empty(producer)
        assert [each.value for each in stage.cluster.log("t", 0).visible()] == [b"0", b"1"]
        assert not stage.cluster.log("t", 1).visible()

    play(main)


class Tracing(ProducerInterceptor):
    """Adds a header, and notes what becomes of the records."""

    def __init__(self) -> None:
        self.told: list[tuple[int, int, str]] = []
        self.changed: dict[str, Any] = {"headers": (("trace", b"7"),)}

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """The record with the changes."""
        return record._replace(**self.changed)

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        """Note it."""
        self.told.append((metadata.partition, metadata.offset, type(error).__name__))


def test_interceptors_and_serializers_are_called_for_each_record() -> None:
    """A header is added, a number becomes text, and each record's end is told to interceptors."""
    tracing = Tracing()

    async def main(stage: Stage) -> None:
        settings: dict[str, Any] = {"value_serializer": str, "interceptors": [tracing]}
        async with stage.producer(**settings) as producer:
            batch = producer.create_batch("t")
            assert batch.append(17)
            assert batch.append(18, timestamp=5)
            await (await producer.send_batch(batch, partition=1))
            tracing.changed = {"topic": "u"}
            with pytest.raises(RejectedRecordError, match="interceptor"):
                producer.create_batch("t").append(19)
            tracing.changed = {"partition": 0}
            with pytest.raises(RejectedRecordError, match="interceptor"):
                producer.create_batch("t").append(19)
        records = stage.cluster.log(T1.topic, 1).records
        assert [each.value for each in records] == [b"17", b"18"]
        assert {each.headers for each in records} == {(("trace", b"7"),)}

    play(main)
    refused = (-1, -1, "RejectedRecordError")
    assert sorted(tracing.told) == [refused, refused, (1, 0, "NoneType"), (1, 1, "NoneType")]


def test_close_in_the_middle_fails_the_batch_and_leaves_nothing() -> None:
    """A send that waits for memory ends when the producer is closed, as does one after that."""

    async def main(stage: Stage) -> None:
        producer = stage.producer(batch_size=4000, buffer_memory=4400)
        await producer.send("t", b"known", partition=0)
        stage.cluster.script.add(ApiKey.PRODUCE, FaultKind.LOSE)
        batches = [producer.create_batch("t") for _ in range(3)]
        for batch in batches:
            fill(batch, 40, size=50)
        receipt = await producer.send_batch(batches[0], partition=0)
        waiting = asyncio.ensure_future(producer.send_batch(batches[1], partition=0))
        await stage.pass_time(0.1)
        assert not waiting.done()
        await producer.close(0)
        for coroutine in (receipt, waiting, producer.send_batch(batches[2], partition=0)):
            with pytest.raises(ClosedProducerError):
                await coroutine
        check_empty(producer)

    play(main)


def test_records_far_apart_in_time_fit_their_bound() -> None:
    """A batch that is filled over hours, or with any timestamps, is within its size."""

    async def main(stage: Stage) -> None:
        async with stage.producer(batch_size=4000) as producer:
            batch = producer.create_batch("t")
            assert batch.append(b"", timestamp=0)
            while batch.append(b""):
                if batch.record_count % 10 == 0:
                    await stage.pass_time(3600)
            await (await producer.send_batch(batch, partition=0))
            assert producer.metrics()["batch-size-avg"] <= batch.size <= 4000
        assert len(stage.cluster.log().records) == batch.record_count

    play(main)
