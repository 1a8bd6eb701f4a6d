"""OpenTelemetry metrics: instruments of producers and consumers, and how long sends take."""

import gc
from collections.abc import Mapping
from typing import Any, cast

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    Gauge,
    Histogram,
    HistogramDataPoint,
    InMemoryMetricReader,
    Metric,
    NumberDataPoint,
    Sum,
)

from tailrace.client.consumer.metrics import METRICS as CONSUMER_METRICS
from tailrace.client.opentelemetry import ClientMetrics
from tailrace.client.producer.metrics import METRICS
from tailrace.client.producer.opentelemetry import SendDurations
from tailrace.client.producer.plugins import BatchInfo
from tailrace.model import TopicPartition
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.testing import virtual_runtime
from tailrace.testing.script import FaultKind
from tests.simulation.stage import T0, Stage, play
from tests.unit.client.consumer.stage import on_stage, read

SENT, CONSUMED = "messaging.client.sent.messages", "messaging.client.consumed.messages"
DURATION = "messaging.client.operation.duration"


class Exported:
    """A provider of meters, and what it exports."""

    def __init__(self) -> None:
        self._reader = InMemoryMetricReader()
        self.provider = MeterProvider([self._reader])

    def metrics(self) -> dict[str, Metric]:
        """All instruments that have points, by name."""
        found = self._reader.get_metrics_data()
        if found is None:
            return {}
        return {
            each.name: each
            for resource in found.resource_metrics
            for scope in resource.scope_metrics
            for each in scope.metrics
        }

    def points(self, name: str) -> dict[tuple[str, ...], float]:
        """The numbers of an instrument, by client, topic and error."""
        return {
            _labels(point.attributes or {}): cast("NumberDataPoint", point).value
            for point in self.metrics()[name].data.data_points
        }


def _labels(attributes: Mapping[str, Any]) -> tuple[str, ...]:
    names = ("messaging.client.id", "messaging.destination.name", "error.type")
    return tuple(str(attributes.get(each, "")) for each in names)


def test_the_figures_of_producers_are_exported_under_the_names_of_conventions() -> None:
    """Records by topic, client and error; their sum is the total, of which no record is lost."""
    exported = Exported()

    async def main(stage: Stage) -> None:
        stage.cluster.create_topic("u", partitions=1)
        figures = ClientMetrics(exported.provider)
        settings: dict[str, Any] = {"max_request_size": 1000, "max_block_ms": 100}
        async with (
            stage.producer(client_id="a", **settings) as first,
            stage.producer(client_id="b") as second,
        ):
            figures.observe(first)
            figures.observe(second)
            figures.observe(second)
            for topic in ("t", "t", "u"):
                await first.send(topic, b"x", partition=0)
            first.send("t", bytes(2000))
            first.send("nowhere", b"x")
            await first.flush()
            await second.send("u", b"x", partition=0)
            assert exported.points(SENT) == {
                ("a", "t", ""): 2,
                ("a", "u", ""): 1,
                ("a", "", ""): 0,
                ("a", "t", "_OTHER"): 1,
                ("a", "u", "_OTHER"): 0,
                ("a", "", "_OTHER"): 1,
                ("b", "u", ""): 1,
                ("b", "", ""): 0,
                ("b", "u", "_OTHER"): 0,
                ("b", "", "_OTHER"): 0,
            }

    play(main)


def test_topics_that_are_forgotten_stay_in_the_sum() -> None:
    """After metadata.max.idle.ms a topic's count moves to the figure without a topic."""
    exported = Exported()

    async def main(stage: Stage) -> None:
        stage.cluster.create_topic("u", partitions=1)
        figures = ClientMetrics(exported.provider)
        settings: dict[str, Any] = {"metadata_max_idle_ms": 5000, "metadata_max_age_ms": 1000}
        async with stage.producer(client_id="a", **settings) as producer:
            figures.observe(producer)
            await producer.send("t", b"x", partition=0)
            for _ in range(20):
                await stage.pass_time(1)
                await producer.send("u", b"x", partition=0)
            found = exported.points(SENT)
            assert ("a", "t", "") not in found
            assert found["a", "", ""] == 1
            assert found["a", "u", ""] == 20

    play(main)


def test_every_figure_has_an_instrument_with_its_unit() -> None:
    """Totals are counters and the rest gauges, for producers and consumers; names have no dash."""
    exported = Exported()
    with virtual_runtime() as outside:

        async def main() -> None:
            async with on_stage(outside) as stage:
                await stage.topic()
                figures = ClientMetrics(exported.provider)
                async with (
                    stage.producer(client_id="a") as producer,
                    stage.consumer(client_id="c", group_id="g") as consumer,
                ):
                    figures.observe(producer)
                    figures.observe(consumer)
                    await producer.send("t", b"x")
                    consumer.assign(TopicPartition("t", 0))
                    await read(consumer, 1)
                    _check(exported)

        outside.run(main())


def _check(exported: Exported) -> None:
    found = exported.metrics()
    others = {f"kafka.producer.{each.replace('-', '_')}" for each in METRICS}
    others |= {f"kafka.consumer.{each.replace('-', '_')}" for each in CONSUMER_METRICS}
    others -= {
        "kafka.producer.record_send_total",
        "kafka.producer.record_error_total",
        "kafka.consumer.records_consumed_total",
    }
    assert found.keys() == others | {SENT, CONSUMED}
    for name, each in found.items():
        is_count = name.endswith("_total") or name in {SENT, CONSUMED}
        assert isinstance(each.data, Sum if is_count else Gauge), name
        assert each.description
    units = {name: each.unit for name, each in found.items()}
    assert units[SENT] == units[CONSUMED] == "{message}"
    assert units["kafka.producer.byte_total"] == "By"
    assert units["kafka.producer.request_latency_avg"] == "ms"
    assert units["kafka.producer.compression_rate_avg"] == "1"
    assert units["kafka.consumer.fetch_total"] == "{request}"
    (point,) = found[CONSUMED].data.data_points
    assert cast("NumberDataPoint", point).value == 1
    assert point.attributes == {
        "messaging.system": "kafka",
        "messaging.operation.name": "poll",
        "messaging.client.id": "c",
        "messaging.consumer.group.name": "g",
    }


def test_a_client_that_was_dropped_is_exported_no_more() -> None:
    """Closed ones are, with their last figures; the instruments do not keep a client alive."""
    exported = Exported()
    figures = ClientMetrics(exported.provider)

    async def main(stage: Stage) -> None:
        producer = stage.producer(client_id="a")
        figures.observe(producer)
        await producer.send("t", b"x", partition=0)
        await producer.close()
        assert exported.points(SENT)["a", "t", ""] == 1
        del producer
        gc.collect()
        assert SENT not in exported.metrics()

    play(main)


def test_what_is_no_client_is_refused() -> None:
    """The error names its type."""
    with pytest.raises(TypeError, match="client is a str"):
        ClientMetrics(Exported().provider).observe("producer")  # type: ignore[arg-type]


def test_the_time_of_a_send_is_measured_over_its_attempts() -> None:
    """Seconds from the first attempt to the outcome, with its error if there is one."""
    exported = Exported()

    async def main(stage: Stage) -> None:
        hook = SendDurations(exported.provider, clock=lambda: stage.now)
        settings: dict[str, Any] = {"hooks": [hook], "retry_backoff_ms": 100}
        async with stage.producer(**settings) as producer:
            await producer.send("t", b"x", partition=0)
            stage.cluster.script.add(
                ApiKey.PRODUCE, FaultKind.ERROR, error=ErrorCode.NOT_ENOUGH_REPLICAS, times=3
            )
            await producer.send("t", b"x", partition=0)
            stage.cluster.script.add(
                ApiKey.PRODUCE, FaultKind.ERROR, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED
            )
            producer.send("t", b"x", partition=0)
            await producer.flush()
            await producer.close(0)

    play(main)
    found = exported.metrics()[DURATION]
    assert found.unit == "s"
    assert isinstance(found.data, Histogram)
    points: dict[tuple[str, ...], HistogramDataPoint] = {
        _labels(each.attributes or {}): each for each in found.data.data_points
    }
    written, refused = points["", "t", ""], points["", "t", "AuthorizationError"]
    assert (written.count, refused.count) == (2, 1)
    assert 0.3 < written.sum < 2
    assert written.explicit_bounds[0] == 0.005


def test_a_batch_that_was_never_sent_has_no_duration() -> None:
    """Its outcome alone records nothing."""
    exported = Exported()
    hook = SendDurations(exported.provider)
    hook.on_done(BatchInfo(0, T0, 1, byte_count=100, attempt=0), ValueError())
    assert DURATION not in exported.metrics()
