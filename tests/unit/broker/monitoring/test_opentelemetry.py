"""The metrics of a node as OpenTelemetry's exporters get them."""

import json
import logging
import subprocess
import sys

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from tailrace.broker.monitoring.opentelemetry import KEPT_S, NodeMetrics
from tailrace.broker.monitoring.values import Values

PROGRAM = """
import json
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
reader = InMemoryMetricReader()
metrics.set_meter_provider(MeterProvider([reader]))
from tailrace import Broker, Producer
with Broker(settings={"tailrace.opentelemetry.metrics": True}) as broker:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("t", b"one").result(60)
    print(reader.get_metrics_data().to_json())
"""
"""A broker with an exporter, without a listener for HTTP."""


def values_of(text: str) -> dict[str, dict[str, float]]:
    """The values of an export by name and labels."""
    [resource] = json.loads(text)["resource_metrics"]
    [scope] = resource["scope_metrics"]
    return {
        each["name"]: {
            ",".join(point["attributes"].values()): point["value"]
            for point in each["data"]["data_points"]
        }
        for each in scope["metrics"]
    }


def test_an_exporter_of_the_process_gets_the_metrics_of_a_broker() -> None:
    """Counters and gauges have the names and labels of the page for Prometheus."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True, timeout=120
    )
    found = values_of(done.stdout)
    assert found["kafka_server_brokertopicmetrics_messagesin_total"] == {"": 1, "t": 1}
    assert found["kafka_network_requestmetrics_totaltimems_count"]["Produce"] == 1
    assert found["tailrace_ready"] == {"": 1}


def test_a_collection_reads_the_node_once_and_a_hanging_one_has_no_values() -> None:
    """The next collection reads again; older values do not take the place of missing ones."""
    reads = []
    now = 0.0

    def read() -> Values | None:
        reads.append(now)
        if len(reads) > 1:
            return None
        values = Values()
        values.add("tailrace_ready", 1.0)
        return values

    exported = InMemoryMetricReader()
    NodeMetrics(read, meters=MeterProvider([exported]), clock=lambda: now)
    first = exported.get_metrics_data()
    assert first is not None
    assert values_of(first.to_json()) == {"tailrace_ready": {"": 1.0}}
    now += KEPT_S
    assert exported.get_metrics_data() is None
    assert reads == [0.0, KEPT_S]


def test_a_process_without_an_exporter_is_told_how_to_have_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its metrics would go nowhere, in silence."""
    with caplog.at_level(logging.WARNING):
        NodeMetrics(Values)
    assert "opentelemetry-instrument" in caplog.text
