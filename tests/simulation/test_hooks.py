"""Tests of what hears about batches: hooks, spans of OpenTelemetry, and progress."""

import logging

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tailrace.client.producer.opentelemetry import BatchSpans, TraceHeaders
from tailrace.client.producer.plugins import BatchHook, BatchInfo
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.testing.script import FaultKind
from tests.simulation.stage import T0, Stage, play


class Listening(BatchHook):
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, BatchInfo, Exception | None]] = []

    def on_send(self, batch: BatchInfo) -> None:
        """Note it."""
        self.told.append(("send", batch, None))

    def on_done(self, batch: BatchInfo, error: Exception | None) -> None:
        """Note it."""
        self.told.append(("done", batch, error))


class Failing(BatchHook):
    """Fails."""

    def on_send(self, batch: BatchInfo) -> None:
        """Fail."""
        raise ValueError(batch)

    def on_done(self, batch: BatchInfo, error: Exception | None) -> None:
        """Fail."""
        raise ValueError(batch, error)


def test_a_hook_hears_of_each_attempt_and_of_the_outcome() -> None:
    """A batch keeps its number over its attempts; the outcome has its offset."""
    hook = Listening()

    async def scene(stage: Stage) -> None:
        async with stage.producer(hooks=[hook]) as producer:
            await producer.send("t", b"first", partition=0)
            stage.cluster.script.add(
                ApiKey.PRODUCE, FaultKind.ERROR, error=ErrorCode.NOT_ENOUGH_REPLICAS
            )
            await producer.send("t", b"second", partition=0)

    play(scene)
    seen = [(what, info.number, info.attempt, info.base_offset) for what, info, _ in hook.told]
    assert seen == [
        ("send", 0, 1, -1),
        ("done", 0, 1, 0),
        ("send", 1, 1, -1),
        ("send", 1, 2, -1),
        ("done", 1, 2, 1),
    ]
    assert {(info.partition, info.record_count) for _, info, _ in hook.told} == {(T0, 1)}
    assert all(info.byte_count > len(b"second") for _, info, _ in hook.told)


def test_a_hook_hears_why_a_batch_failed() -> None:
    """The error is the one that the receipt has."""
    hook = Listening()

    async def scene(stage: Stage) -> None:
        async with stage.producer(hooks=[hook]) as producer:
            stage.cluster.script.add(
                ApiKey.PRODUCE, FaultKind.ERROR, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED
            )
            receipt = producer.send("t", b"x", partition=0)
            await producer.flush()
            assert hook.told[-1][2] is receipt.exception() is not None

    play(scene)


def test_a_failing_hook_harms_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Its exception is logged, and the next hook is still called."""
    hook = Listening()

    async def scene(stage: Stage) -> None:
        async with stage.producer(hooks=[Failing(), hook]) as producer:
            assert (await producer.send("t", b"x", partition=0)).offset == 0

    with caplog.at_level(logging.ERROR):
        play(scene)
    assert [what for what, _, _ in hook.told] == ["send", "done"]
    assert "user_code_failed name=Failing.on_send" in caplog.text
    assert "user_code_failed name=Failing.on_done" in caplog.text


def test_a_batch_has_a_span() -> None:
    """A span ends with the outcome, has OpenTelemetry's names, and says why its batch failed."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))

    async def scene(stage: Stage) -> None:
        async with stage.producer(hooks=[BatchSpans(provider)]) as producer:
            stage.cluster.script.add(
                ApiKey.PRODUCE, FaultKind.ERROR, error=ErrorCode.NOT_ENOUGH_REPLICAS
            )
            await producer.send("t", b"x", partition=0)
            stage.cluster.script.add(
                ApiKey.PRODUCE, FaultKind.ERROR, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED
            )
            producer.send("t", b"x", partition=0)
            await producer.flush()

    play(scene)
    written, refused = exporter.get_finished_spans()
    assert (written.name, written.kind) == ("send t", trace.SpanKind.PRODUCER)
    assert written.attributes is not None
    assert written.attributes["messaging.destination.partition.id"] == "0"
    assert written.attributes["messaging.batch.message_count"] == 1
    assert written.attributes["messaging.kafka.offset"] == 0
    assert [event.name for event in written.events] == ["sent again"]
    assert refused.attributes is not None
    assert refused.attributes["error.type"] == "AuthorizationError"
    assert refused.status.status_code is trace.StatusCode.ERROR


def test_a_record_carries_the_trace_it_was_sent_in() -> None:
    """Its header names the trace of the caller; without a trace there is none."""
    tracer = TracerProvider().get_tracer("test")

    async def scene(stage: Stage) -> None:
        async with stage.producer(interceptors=[TraceHeaders()]) as producer:
            with tracer.start_as_current_span("request") as span:
                await producer.send("t", b"in", partition=0, headers={"mine": b"1"})
            await producer.send("t", b"out", partition=0)
        inside, outside = stage.cluster.log("t", 0).records
        (mine, parent) = inside.headers
        assert mine == ("mine", b"1")
        assert parent[0] == "traceparent"
        assert f"{span.get_span_context().trace_id:032x}".encode() in (parent[1] or b"")
        assert not outside.headers

    play(scene)


def test_a_record_that_is_sent_on_carries_one_trace() -> None:
    """The caller's trace takes the place of the one that it came with; other headers stay."""
    tracer = TracerProvider().get_tracer("test")
    parent = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    old = [("traceparent", parent), ("tracestate", b"vendor=1")]

    async def scene(stage: Stage) -> None:
        async with stage.producer(interceptors=[TraceHeaders()]) as producer:
            with tracer.start_as_current_span("request") as span:
                await producer.send("t", b"x", partition=0, headers=[*old, ("mine", b"1")])
            await producer.send("t", b"x", partition=0, headers=old)
        inside, outside = stage.cluster.log("t", 0).records
        (mine, (name, found)) = inside.headers
        assert (mine, name) == (("mine", b"1"), "traceparent")
        assert f"{span.get_span_context().trace_id:032x}".encode() in (found or b"")
        assert outside.headers == tuple(old)

    play(scene)


def test_producers_may_share_a_hook() -> None:
    """Each batch has a span of its own, although both producers send at the same time."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    hooks = [BatchSpans(provider)]

    async def scene(stage: Stage) -> None:
        stage.cluster.create_topic("u", partitions=1)
        async with (
            stage.producer(client_id="a", hooks=hooks) as first,
            stage.producer(client_id="b", hooks=hooks) as second,
        ):
            receipts = [first.send("t", b"x", partition=0), second.send("u", b"x", partition=0)]
            for each in receipts:
                await each

    play(scene)
    spans = exporter.get_finished_spans()
    assert sorted(each.name for each in spans) == ["send t", "send u"]
    assert not [event.name for each in spans for event in each.events]


def test_send_many_shows_its_progress() -> None:
    """The numbers add up to the rows, those that failed included, and come bit by bit."""
    shown: list[int] = []

    async def scene(stage: Stage) -> None:
        settings = {"batch_size": 1000, "max_request_size": 2000}
        async with stage.producer(**settings) as producer:
            rows = [b"x" * 300] * 99 + [b"too large" * 1000]
            summary = await producer.send_many("t", rows, progress=shown.append)
        assert (summary.acknowledged_count, list(summary.errors)) == (99, [99])

    play(scene)
    assert sum(shown) == 100
    assert len(shown) > 3
