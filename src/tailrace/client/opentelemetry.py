"""OpenTelemetry metrics and traces of producers and consumers; needs the extra `tailrace[otel]`.

    figures = ClientMetrics()
    figures.observe(producer)
    figures.observe(consumer)

The program's meter provider asks for the figures whenever it exports them; nothing is counted here
for it. Names are those of OpenTelemetry's conventions for messaging where there is one, and
otherwise Kafka's names as OpenTelemetry's own instrumentation of Kafka's clients writes them:
`record-retry-total` is `kafka.producer.record_retry_total`.

Traces, and how long sends take, are in `tailrace.client.producer.opentelemetry`; programs import
both from here.

Invariant: a client is not kept alive by its figures.
"""

import weakref
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Final

from tailrace.client.consumer.calls import ConsumerCalls
from tailrace.client.consumer.metrics import METRICS as CONSUMER_METRICS
from tailrace.client.producer.calls import ProducerCalls
from tailrace.client.producer.metrics import METRICS as PRODUCER_METRICS
from tailrace.client.producer.opentelemetry import BatchSpans, SendDurations, TraceHeaders
from tailrace.errors import MissingExtraError, kind_of

try:
    from opentelemetry import metrics
    from opentelemetry.metrics import CallbackOptions, Observation
except ModuleNotFoundError as error:
    raise MissingExtraError(__name__, ["opentelemetry-api"], extra="otel") from error

__all__ = ["BatchSpans", "ClientMetrics", "SendDurations", "TraceHeaders"]

_CONVENTIONS: Final[Mapping[tuple[str, str], tuple[str, Mapping[str, str]]]] = {
    ("producer", "record-send-total"): ("messaging.client.sent.messages", {}),
    ("producer", "record-error-total"): (
        "messaging.client.sent.messages",
        {"error.type": "_OTHER"},
    ),
    ("consumer", "records-consumed-total"): ("messaging.client.consumed.messages", {}),
}
"""Names with their attributes of figures for which there is a convention."""

_OPERATIONS: Final = {"producer": "send", "consumer": "poll"}
_UNITS: Final = {"bytes": "By", "ms": "ms", "ns": "ns", "ratio": "1"}
"""OpenTelemetry's units; things that are counted are written as {thing}."""

_Figure = tuple[str, str, Mapping[str, str]]
"""The name of an instrument, the name of a metric, and the attributes that tell them apart."""


class ClientMetrics:
    """Observable instruments with the figures of `metrics()`, of all clients that it observes."""

    def __init__(self, provider: metrics.MeterProvider | None = None) -> None:
        """Use `provider`, or the program's global meter provider if it is None.

        Make one for a provider: a second one would make the same instruments again.
        """
        self._meter = metrics.get_meter("tailrace", meter_provider=provider)
        self._clients: dict[str, list[weakref.ref[ProducerCalls | ConsumerCalls]]] = {
            "producer": [],
            "consumer": [],
        }
        for kind, table in (("producer", PRODUCER_METRICS), ("consumer", CONSUMER_METRICS)):
            figures = sorted((_figure(kind, name) for name in table), key=lambda each: each[0])
            # An instrument can have several figures, which attributes distinguish; a second
            # instrument of the same name would be a conflict.
            for instrument, group in groupby(figures, key=lambda each: each[0]):
                self._make(kind, instrument, list(group), table=table)

    def observe(self, client: ProducerCalls | ConsumerCalls) -> None:
        """Export the figures of a client too, until the program drops it.

        Clients differ by their `client.id`, so that has to differ.

        Raises:
            TypeError: it is neither a producer nor a consumer.
        """
        if not isinstance(client, ProducerCalls | ConsumerCalls):
            raise TypeError(f"client is {kind_of(client)}; give a producer or a consumer")
        kind = "producer" if isinstance(client, ProducerCalls) else "consumer"
        # Clients that are gone leave the list when another one comes.
        kept = [each for each in self._clients[kind] if each() not in {None, client}]
        # A new list: an exporter's thread may be in the middle of the old one.
        self._clients[kind] = [*kept, weakref.ref(client)]

    def _make(
        self,
        kind: str,
        instrument: str,
        figures: list[_Figure],
        *,
        table: Mapping[str, tuple[str, str]],
    ) -> None:
        def observations(_: CallbackOptions) -> Iterator[Observation]:
            for known in self._clients[kind]:
                client = known()
                if client is not None:
                    yield from _observations(kind, client, figures)

        unit, text = table[figures[0][1]]
        if instrument.startswith("messaging."):
            unit, text = "messages", "Messages that were delivered to the program."
            if kind == "producer":
                text = "Messages that were acknowledged, or have failed."
        unit = _UNITS.get(unit, f"{{{unit.removesuffix('s')}}}")
        # A counter may be read as a rate; all others go up and down.
        if figures[0][1].endswith("-total"):
            self._meter.create_observable_counter(
                instrument, [observations], unit=unit, description=text
            )
        else:
            self._meter.create_observable_gauge(
                instrument, [observations], unit=unit, description=text
            )


def _figure(kind: str, name: str) -> _Figure:
    convention = _CONVENTIONS.get((kind, name))
    if convention is None:
        return f"kafka.{kind}.{name.replace('-', '_')}", name, {}
    instrument, attributes = convention
    return instrument, name, attributes


def _observations(
    kind: str, client: ProducerCalls | ConsumerCalls, figures: list[_Figure]
) -> Iterator[Observation]:
    """The figures of one instrument, of one client: each topic's, and what belongs to none.

    The sum is the total: what topics had that were not used for long stays in the last one.
    """
    config = client._engine.config
    shared = {
        "messaging.system": "kafka",
        "messaging.operation.name": _OPERATIONS[kind],
        "messaging.client.id": config.client_id,
    }
    group = getattr(config, "group_id", None)
    if group is not None:
        # Left out without a group: some versions of OpenTelemetry take null for a value.
        shared["messaging.consumer.group.name"] = group
    found = client.metrics()
    for _, name, attributes in figures:
        rest = found[name]
        for topic, value in _by_topic(found, name):
            # The total is not exported beside its parts, which a sum over topics would count twice.
            rest -= value
            yield Observation(value, {**shared, **attributes, "messaging.destination.name": topic})
        yield Observation(rest, {**shared, **attributes})


def _by_topic(found: Mapping[str, float], name: str) -> Iterator[tuple[str, float]]:
    head = f"{name}{{topic="
    for each, value in found.items():
        if each.startswith(head):
            yield each.removeprefix(head).removesuffix("}"), value
