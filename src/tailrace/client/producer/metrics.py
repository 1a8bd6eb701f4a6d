"""`Metrics`: what a producer has done so far, for it and for each topic; Kafka's names.

Counted per batch, never per record. A snapshot is plain numbers under Kafka's metric names, so a
dashboard made for Kafka's producer finds them.

A topic is counted apart while its metadata is kept (`metadata.max.idle.ms`), and never if there is
no such topic: names come from the caller, and there is no end to them.

Invariant: `record-send-total` + `record-error-total` + what is on its way = what was sent.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from tailrace.client.producer.batch import ProducerBatch

METRICS: Final = {
    "record-send-total": ("records", "Acknowledged; with `acks=0`, sent."),
    "record-error-total": (
        "records",
        "Ended in an error. Those that may be in the log all the same are among them.",
    ),
    "record-retry-total": ("records", "Sent again, counted each time."),
    "byte-total": (
        "bytes",
        "Batches as they were sent, compressed and with their headers, each time.",
    ),
    "request-total": ("requests", "Produce requests sent."),
    "response-total": ("requests", "Of these, answered; none is with `acks=0`."),
    "batch-split-total": ("batches", "Sent in parts, since the topic took none so large."),
    "records-per-request-avg": ("records", "In a Produce request."),
    "batch-size-avg": ("bytes", "Of a batch as it was sent."),
    "compression-rate-avg": (
        "ratio",
        "Bytes sent to the most that they could have been without a codec; 1 is no gain.",
    ),
    "request-latency-avg": ("ms", "From a Produce request to its answer."),
    "request-latency-max": ("ms", "The longest of these."),
    "produce-throttle-time-max": ("ms", "Longest pause that a broker asked for (quotas)."),
    "buffer-total-bytes": ("bytes", "`buffer.memory`."),
    "buffer-available-bytes": ("bytes", "Of it, free now."),
    "buffer-exhausted-total": ("calls", "Gave up waiting for memory, after `max.block.ms`."),
    "bufferpool-wait-time-ns-total": ("ns", "Spent by callers in waiting for memory."),
    "waiting-threads": ("callers", "Wait for memory now; with `AsyncProducer`, tasks."),
    "batches-in-flight": ("batches", "In Produce requests that are not answered now."),
}
"""Unit and meaning of each metric, by Kafka's name, from what is counted to what is there now."""

TOPIC_METRICS: Final = (
    "record-send-total",
    "record-error-total",
    "record-retry-total",
    "byte-total",
)
"""Those that there are for each topic too: the fields of `Counts` that are reported."""


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


class Metrics:
    """Counts of one producer."""

    def __init__(self) -> None:
        self.topics: dict[str, Counts] = {}
        """Of each topic that is in use."""
        self.total = Counts()
        """Of all topics that ever were, and of records for none."""
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
        """The counts of all topics, and of this one, which exists."""
        found = self.topics.get(topic)
        if found is None:
            found = self.topics[topic] = Counts()
        return self.total, found

    def forget_all_but(self, topics: "Collection[str]") -> None:
        """Drop the counts of topics that are not in use any more; the totals have them still."""
        for name in [each for each in self.topics if each not in topics]:
            del self.topics[name]

    def refused(self, topic: str, *, exists: bool) -> None:
        """A record got into no batch; of a topic that does not exist only the total is kept."""
        for counts in self._of(topic) if exists else (self.total,):
            counts.record_error_total += 1

    def sent(self, batches: "Iterable[ProducerBatch]") -> None:
        """A request with these batches goes out."""
        self.request_total += 1
        for batch in batches:
            for counts in self._of(batch.partition.topic):
                counts.byte_total += batch.size
                counts.raw_byte_total += batch.size_limit - batch.bytes_left
            self.batch_total += 1
            self.record_total += batch.record_count

    def answered(self, latency_s: float, throttle_ms: int) -> None:
        """A request was answered."""
        self.response_total += 1
        self.request_latency_total_s += latency_s
        self.request_latency_max_s = max(self.request_latency_max_s, latency_s)
        self.produce_throttle_time_max_ms = max(self.produce_throttle_time_max_ms, throttle_ms)

    def retried(self, batch: "ProducerBatch") -> None:
        """A batch will be sent again."""
        for counts in self._of(batch.partition.topic):
            counts.record_retry_total += batch.record_count

    def ended(self, batch: "ProducerBatch") -> None:
        """A batch has its outcome."""
        for counts in self._of(batch.partition.topic):
            if batch.failure is None:
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
            for topic, counts in self.topics.items():
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
