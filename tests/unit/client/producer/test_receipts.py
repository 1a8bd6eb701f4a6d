"""Tests of receipts before and after the record's end, with both kinds of producers."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from tailrace.client.producer.errors import ClosedProducerError, MetadataTimeoutError
from tailrace.client.producer.outcome import RecordMetadata
from tailrace.client.producer.producer import Producer
from tailrace.client.producer.receipts import Receipt
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.testing.script import FaultKind
from tests.simulation.stage import Stage, play

NOWHERE = "127.0.0.1:1"
"""Address on which nobody listens."""


def test_a_receipt_of_an_event_loop_is_awaited_and_not_waited_for() -> None:
    """Before its end result() raises TypeError with advice; after it, it has the outcome."""

    async def main(stage: Stage) -> None:
        async with stage.producer() as producer:
            receipt = producer.send("t", b"v", partition=1, timestamp=5)
            assert not receipt.done()
            for call in (receipt.result, receipt.exception, lambda: receipt.offset):
                with pytest.raises(TypeError, match="await it"):
                    call()
            assert "on its way" in repr(receipt)
            assert await receipt == await receipt == ("t", 1, 0, 5)
            assert receipt.done()
            assert receipt.result() == receipt.result(timeout=0) == ("t", 1, 0, 5)
            assert receipt.exception() is None
            assert (receipt.topic, receipt.partition) == ("t", 1)
            assert (receipt.offset, receipt.timestamp) == (0, 5)
            assert repr(receipt) == (
                "<Receipt of t-1: RecordMetadata(topic='t', partition=1, offset=0, timestamp=5)>"
            )

    play(main)


def test_a_failure_is_raised_and_returned_again_and_again() -> None:
    """The same error comes from await, result() and exception(), and stands in the repr."""

    async def main(stage: Stage) -> None:
        stage.cluster.script.add(ApiKey.PRODUCE, FaultKind.ERROR, error=ErrorCode.INVALID_RECORD)
        async with stage.producer() as producer:
            receipt = producer.send("t", b"v", partition=0)
            with pytest.raises(ValueError, match="INVALID_RECORD") as awaited:
                await receipt
            with pytest.raises(ValueError, match="INVALID_RECORD") as waited:
                receipt.result()
            assert awaited.value is waited.value is receipt.exception()
            assert "INVALID_RECORD" in repr(receipt)
            assert (receipt.topic, receipt.partition) == ("t", 0)

    play(main)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("error", [ErrorCode.NONE, ErrorCode.INVALID_RECORD])
def test_each_callback_is_called_once(when: str, error: ErrorCode) -> None:
    """However late it is added, with the record's place, and with its error if it has one."""
    heard: list[tuple[str, RecordMetadata, Exception | None]] = []

    async def main(stage: Stage) -> None:
        if error:
            stage.cluster.script.add(ApiKey.PRODUCE, FaultKind.ERROR, error=error)
        async with stage.producer() as producer:
            receipt = producer.send(
                "t",
                b"v",
                partition=0,
                on_delivery=lambda *outcome: heard.append(("given", *outcome)),
            )
            if when == "after":
                await producer.flush()
                assert receipt.done()
            receipt.add_done_callback(lambda *outcome: heard.append(("added", *outcome)))
            assert "added" not in [each[0] for each in heard], "called by add_done_callback"
            await producer.flush()
            await stage.pass_time(1)
            assert [each[0] for each in heard] == ["given", "added"]
            for _, metadata, failure in heard:
                assert metadata[:2] == ("t", 0)
                assert failure is receipt.exception()
                assert metadata.offset == (-1 if error else 0)

    play(main)


def test_a_callback_that_raises_harms_no_other(caplog: pytest.LogCaptureFixture) -> None:
    """Its error is logged, and those behind it are called."""
    heard: list[str] = []

    def failing(*_: object) -> None:
        raise RuntimeError("of the user's")

    async def main(stage: Stage) -> None:
        async with stage.producer() as producer:
            receipt = producer.send("t", b"v", partition=0, on_delivery=failing)
            receipt.add_done_callback(lambda *_: heard.append("second"))
            await producer.flush()

    play(main)
    assert heard == ["second"]
    assert "of the user's" in caplog.text


def test_awaiting_with_a_timeout_leaves_the_record_on_its_way() -> None:
    """A wait that times out changes nothing for the record or for other waiting callers."""

    async def main(stage: Stage) -> None:
        stage.cluster.script.add(ApiKey.PRODUCE, FaultKind.DELAY, delay_s=5)
        async with stage.producer() as producer:
            receipt = producer.send("t", b"v", partition=0)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(awaited(receipt), 1)
            other = asyncio.ensure_future(awaited(receipt))
            assert (await other).offset == (await receipt).offset == 0

    def awaited(receipt: Receipt) -> Coroutine[Any, Any, RecordMetadata]:
        async def wait() -> RecordMetadata:
            return await receipt

        return wait()

    play(main)


def test_a_record_that_was_refused_has_an_outcome_at_once() -> None:
    """Without a broker the receipt ends after max.block.ms, with advice; callbacks are called."""
    heard: list[Exception | None] = []
    with Producer(bootstrap_servers=NOWHERE, max_block_ms=50) as producer:
        receipt = producer.send("t", b"v", on_delivery=lambda _, error: heard.append(error))
        assert receipt.done()
        error = receipt.exception(timeout=0)
        assert isinstance(error, MetadataTimeoutError)
        assert "bootstrap.servers" in str(error)
        receipt.add_done_callback(lambda _, error: heard.append(error))
        assert error in heard
        assert (receipt.topic, receipt.partition) == ("t", -1)
        with pytest.raises(MetadataTimeoutError):
            receipt.result()
        assert producer.send("t", b"v", receipt=False) is None
    # The first was called by the own thread, which ends with the close.
    assert heard == [error, error]


def test_a_closed_producer_gives_no_receipts() -> None:
    """Send raises at once after close, and close may be called again."""
    producer = Producer(bootstrap_servers=NOWHERE)
    producer.close()
    producer.close()
    with pytest.raises(ClosedProducerError):
        producer.send("t", b"v")
