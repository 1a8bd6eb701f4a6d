"""OpenTelemetry traces of a producer; needs the extra `tailrace[otel]`.

    Producer(..., interceptors=[TraceHeaders()], hooks=[BatchSpans()])

`TraceHeaders` writes the caller's trace into each record's headers, so that a consumer can continue
it. `BatchSpans` makes a span for each batch, from its first attempt to its outcome. Names and
attributes follow OpenTelemetry's conventions for messaging.

Not here: counts, which `Producer.metrics` has.
"""

from tailrace.client.producer.hooks import BatchHook, BatchInfo
from tailrace.client.producer.intake.interceptors import ProducerInterceptor
from tailrace.client.producer.intake.record import ProducerRecord
from tailrace.errors import MissingExtraError

try:
    from opentelemetry import propagate, trace
except ModuleNotFoundError as error:
    raise MissingExtraError(__name__, ["opentelemetry-api"], extra="otel") from error


class TraceHeaders(ProducerInterceptor):
    """Adds the current trace (`traceparent` by default) to the headers of each record."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """The record with the headers that the program's propagators write, if there is a trace."""
        carrier: dict[str, str] = {}
        propagate.inject(carrier)
        added = tuple((name, text.encode()) for name, text in carrier.items())
        return record._replace(headers=record.headers + added) if added else record


class BatchSpans(BatchHook):
    """A span for each batch that is sent."""

    def __init__(self, provider: trace.TracerProvider | None = None) -> None:
        """Use `provider`, or the program's global tracer provider if it is None."""
        self._tracer = trace.get_tracer("tailrace", tracer_provider=provider)
        self._spans: dict[int, trace.Span] = {}

    def on_send(self, batch: BatchInfo) -> None:
        """Begin a span; a further attempt becomes an event of it."""
        span = self._spans.get(batch.number)
        if span is not None:
            span.add_event("sent again", {"attempt": batch.attempt})
            return
        self._spans[batch.number] = self._tracer.start_span(
            f"send {batch.partition.topic}",
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
        span = self._spans.pop(batch.number, None)
        if span is None:
            return
        if error is None:
            span.set_attribute("messaging.kafka.offset", batch.base_offset)
        else:
            span.set_attribute("error.type", type(error).__name__)
            span.record_exception(error)
            span.set_status(trace.Status(trace.StatusCode.ERROR, str(error)))
        span.end()
