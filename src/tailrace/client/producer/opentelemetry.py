"""OpenTelemetry traces of a producer, and how long its sends take; needs `tailrace[otel]`.

    Producer(..., interceptors=[TraceHeaders()], hooks=[BatchSpans(), SendDurations()])

`TraceHeaders` writes the caller's trace into each record's headers, so that a consumer can continue
it. `BatchSpans` makes a span for each batch, from its first attempt to its outcome, and
`SendDurations` measures that time. Names and attributes follow OpenTelemetry's conventions for
messaging.

Not here: the counts of `Producer.metrics`, which `tailrace.client.opentelemetry` exports.
"""

import time
from collections.abc import Callable
from typing import Final

from tailrace.client.producer.plugins import (
    BatchHook,
    BatchInfo,
    ProducerInterceptor,
    ProducerRecord,
)
from tailrace.errors import MissingExtraError

try:
    from opentelemetry import metrics, propagate, trace
except ModuleNotFoundError as error:
    raise MissingExtraError(__name__, ["opentelemetry-api"], extra="otel") from error

_BOUNDS_S: Final = [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10]
"""The bounds of buckets that the conventions name."""


class TraceHeaders(ProducerInterceptor):
    """Adds the current trace (`traceparent` by default) to the headers of each record.

    It takes the place of headers of these names, as those of a consumed record that is sent on.
    """

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """The record with the headers that the program's propagators write, if there is a trace."""
        carrier: dict[str, str] = {}
        propagate.inject(carrier)
        if not carrier:
            return record
        added = tuple((name, text.encode()) for name, text in carrier.items())
        # Readers take the first header of a name or the last one: with two they would disagree. And
        # what the old trace has beside its id is not that of the new one.
        names = propagate.get_global_textmap().fields | carrier.keys()
        kept = tuple(each for each in record.headers if each[0] not in names)
        return record._replace(headers=kept + added)


def _key(batch: BatchInfo) -> tuple[str, int]:
    # Numbers are those of one producer, and a program may give a hook to several.
    return batch.client_id, batch.number


class BatchSpans(BatchHook):
    """A span for each batch that is sent."""

    def __init__(self, provider: trace.TracerProvider | None = None) -> None:
        """Use `provider`, or the program's global tracer provider if it is None."""
        self._tracer = trace.get_tracer("tailrace", tracer_provider=provider)
        self._spans: dict[tuple[str, int], trace.Span] = {}

    def on_send(self, batch: BatchInfo) -> None:
        """Begin a span; a further attempt becomes an event of it."""
        span = self._spans.get(_key(batch))
        if span is not None:
            span.add_event("sent again", {"attempt": batch.attempt})
            return
        self._spans[_key(batch)] = self._tracer.start_span(
            f"send {batch.partition.topic}",
            # A batch has records of many traces, so its span belongs to none of them.
            context=trace.set_span_in_context(trace.INVALID_SPAN),
            kind=trace.SpanKind.PRODUCER,
            attributes={
                "messaging.system": "kafka",
                "messaging.operation.name": "send",
                "messaging.operation.type": "send",
                "messaging.destination.name": batch.partition.topic,
                "messaging.destination.partition.id": str(batch.partition.partition),
                "messaging.batch.message_count": batch.record_count,
                "messaging.message.envelope.size": batch.byte_count,
            },
        )

    def on_done(self, batch: BatchInfo, error: Exception | None) -> None:
        """End the span, with the offset or the error."""
        span = self._spans.pop(_key(batch), None)
        if span is None:
            return
        if error is None:
            span.set_attribute("messaging.kafka.offset", batch.base_offset)
        else:
            span.set_attribute("error.type", type(error).__name__)
            span.record_exception(error)
            span.set_status(trace.Status(trace.StatusCode.ERROR, str(error)))
        span.end()


class SendDurations(BatchHook):
    """A histogram of the seconds from the first attempt of a batch to its outcome."""

    def __init__(
        self,
        provider: metrics.MeterProvider | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Use `provider`, or the program's global meter provider if it is None.

        `clock` returns monotonic seconds.
        """
        self._clock = clock
        self._begun: dict[tuple[str, int], float] = {}
        self._histogram = metrics.get_meter("tailrace", meter_provider=provider).create_histogram(
            "messaging.client.operation.duration",
            unit="s",
            description="Time from the first attempt to send a batch to its outcome.",
            explicit_bucket_boundaries_advisory=_BOUNDS_S,
        )

    def on_send(self, batch: BatchInfo) -> None:
        """Note the time of the first attempt."""
        self._begun.setdefault(_key(batch), self._clock())

    def on_done(self, batch: BatchInfo, error: Exception | None) -> None:
        """Record the time; a batch that was never sent has none."""
        begun = self._begun.pop(_key(batch), None)
        if begun is None:
            return
        attributes = {
            "messaging.system": "kafka",
            "messaging.operation.name": "send",
            "messaging.operation.type": "send",
            "messaging.destination.name": batch.partition.topic,
            "messaging.destination.partition.id": str(batch.partition.partition),
        }
        if error is not None:
            attributes["error.type"] = type(error).__name__
        self._histogram.record(self._clock() - begun, attributes)
