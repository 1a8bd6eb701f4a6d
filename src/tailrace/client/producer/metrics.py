"""`Metrics`: counts and times of a producer, in total and by topic, under Kafka's metric names.

They are updated per batch, never per record. Because a snapshot has Kafka's names, dashboards for
Kafka's producer work with it.

A topic has its own counts while its metadata is kept (`metadata.max.idle.ms`). A topic that does
not exist has none, since callers could send to any number of such names.

Invariant: `record-send-total` + `record-error-total` + records without an outcome = records sent.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tailrace.client.nodes import NodesStatistics
from tailrace.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from tailrace.client.producer.queue.batches import ClosedBatch, InFlightBatch


METRICS: Final = {
    "record-send-total": ("records", "Acknowledged; with `acks=0`, sent."),
    "record-error-total": (
        "records",
        "Ended in an error, including those that may be in the log all the same.",
    ),
    "record-retry-total": ("records", "Sent again, counted each time."),
    "byte-total": (
        "bytes",
        "Size of the batches sent, compressed and with their headers, retries included.",
    ),
    "request-total": ("requests", "Produce requests sent."),
    "response-total": ("requests", "Produce requests answered; 0 with `acks=0`."),
    "batch-split-total": (
        "batches",
        "Split into smaller batches, because the broker refused them as too large.",
    ),
    "records-per-request-avg": ("records", "Mean number of records in a Produce request."),
    "batch-size-avg": ("bytes", "Mean size of a sent batch, compressed."),
    "compression-rate-avg": (
        "ratio",
        "Bytes sent, divided by the most they could be without compression; 1 is no gain.",
    ),
    "request-latency-avg": ("ms", "Mean time from a Produce request to its answer."),
    "request-latency-max": ("ms", "Longest time from a Produce request to its answer."),
    "produce-throttle-time-max": ("ms", "Longest throttle time that a broker asked for (quotas)."),
    "buffer-total-bytes": ("bytes", "`buffer.memory`."),
    "buffer-available-bytes": ("bytes", "Part of `buffer.memory` that is free now."),
    "buffer-exhausted-total": ("calls", "Sends that waited `max.block.ms` for memory and failed."),
    "bufferpool-wait-time-ns-total": ("ns", "Time that callers have waited for memory."),
    "waiting-threads": (
        "callers",
        "Threads, or tasks with `AsyncProducer`, that wait for memory now.",
    ),
    "batches-in-flight": ("batches", "Batches in Produce requests without an answer yet."),
}
"""Unit and meaning of each metric by Kafka's name; totals first, present values last."""

TOPIC_METRICS: Final = (
    "record-send-total",
    "record-error-total",
    "record-retry-total",
    "byte-total",
)
"""Metrics that each topic has too: the fields of `Counts` that are reported."""


@dataclass(slots=True)
class Counts:
    """Counts of records, of one topic or of all."""

    record_send_total: int = 0
    """Records acknowledged."""
    record_error_total: int = 0
    """Records that ended in an error."""
    record_retry_total: int = 0
    """Records sent again, each time."""
    byte_total: int = 0
    """Bytes of encoded batches sent, each time."""
    raw_byte_total: int = 0
    """The same before compression."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerStatistics:
    """Records, batches and memory of a producer at one moment."""

    record_count: int
    """Records that are not acknowledged and have not failed."""
    batches_in_flight: int
    """Batches in requests without an answer."""
    buffer_total_bytes: int
    """`buffer.memory`."""
    buffer_available_bytes: int
    """Bytes of it that no record takes."""
    waiting_count: int
    """Callers that wait for memory."""
    nodes: NodesStatistics
    """Connections to the brokers."""


OnMetrics = Callable[[dict[str, float], ProducerStatistics], object]
"""Is called with what `metrics` and `statistics` return."""


class Metrics:
    """Counts of one producer."""

    def __init__(self) -> None:
        self.topics: dict[str, Counts] = {}
        """Counts of each topic in use."""
        self.total = Counts()
        """Counts of all topics ever used, and of records for topics that do not exist."""
        self.request_total = 0
        self.response_total = 0
        self.batch_split_total = 0
        self.batch_total = 0
        self.record_total = 0
        self.request_latency_max_s = 0.0
        self.request_latency_total_s = 0.0
        self.produce_throttle_time_max_ms = 0
        self.buffer_exhausted_total = 0
        self.bufferpool_wait_s = 0.0

    def _of(self, topic: str) -> "tuple[Counts, Counts]":
        """The total counts, and those of this topic, which exists."""
        # Only of topics that exist: callers could send to any number of other names.
        found = self.topics.get(topic)
        if found is None:
            found = self.topics[topic] = Counts()
        return self.total, found

    def forget_all_but(self, topics: "Collection[str]") -> None:
        """Drop the counts of topics that are not in use any more; the totals keep them."""
        for name in [each for each in self.topics if each not in topics]:
            del self.topics[name]

    def refused(self, topic: str, *, exists: bool) -> None:
        """Count a record that got into no batch; `exists` says whether its topic does."""
        for counts in self._of(topic) if exists else (self.total,):
            counts.record_error_total += 1

    def sent(self, batches: "Iterable[InFlightBatch]") -> None:
        self.request_total += 1
        for batch in batches:
            for counts in self._of(batch.partition.topic):
                counts.byte_total += batch.size
                counts.raw_byte_total += batch.sealed.size
            self.batch_total += 1
            self.record_total += batch.record_count

    def answered(self, latency_s: float, throttle_ms: int) -> None:
        self.response_total += 1
        self.request_latency_total_s += latency_s
        self.request_latency_max_s = max(self.request_latency_max_s, latency_s)
        self.produce_throttle_time_max_ms = max(self.produce_throttle_time_max_ms, throttle_ms)

    def retried(self, batch: "InFlightBatch") -> None:
        for counts in self._of(batch.partition.topic):
            counts.record_retry_total += batch.record_count

    # Per batch and never per record: a counter for each record would cost more than `send`.
    def ended(self, batch: "ClosedBatch") -> None:
        for counts in self._of(batch.partition.topic):
            if batch.outcome.failure is None:
                counts.record_send_total += batch.record_count
            else:
                counts.record_error_total += batch.record_count

    def snapshot(self, **gauges: float) -> dict[str, float]:
        """All numbers by Kafka's names; those of a topic as `NAME{topic=T}`."""
        found: dict[str, float] = {
            "request-total": self.request_total,
            "response-total": self.response_total,
            "batch-split-total": self.batch_split_total,
            "records-per-request-avg": self.record_total / max(1, self.request_total),
            "batch-size-avg": self.total.byte_total / max(1, self.batch_total),
            "request-latency-avg": 1000
            * self.request_latency_total_s
            / max(1, self.response_total),
            "request-latency-max": 1000 * self.request_latency_max_s,
            "produce-throttle-time-max": self.produce_throttle_time_max_ms,
            "buffer-exhausted-total": self.buffer_exhausted_total,
            "bufferpool-wait-time-ns-total": round(self.bufferpool_wait_s * 1e9),
        }
        for name in TOPIC_METRICS:
            field = name.replace("-", "_")
            found[name] = getattr(self.total, field)
            # A copy, since a thread may ask that is not the one of the event loop.
            for topic, counts in list(self.topics.items()):
                found[f"{name}{{topic={topic}}}"] = getattr(counts, field)
        found["compression-rate-avg"] = self.total.byte_total / max(1, self.total.raw_byte_total)
        return found | {name.replace("_", "-"): value for name, value in gauges.items()}


def describe_metrics() -> str:
    """A Markdown table of the metrics, for docs/metrics.md."""
    lines = ["| metric | unit | by topic | what it is |", "|---|---|---|---|"]
    for name, (unit, text) in METRICS.items():
        by_topic = "yes" if name in TOPIC_METRICS else ""
        lines.append(f"| `{name}` | {unit} | {by_topic} | {text} |")
    return "\n".join(lines) + "\n"
