"""`NodeMetrics`: the metrics of a node as instruments of OpenTelemetry; needs `tailrace[otel]`.

The program's meter provider exports them, which `opentelemetry-instrument tailrace serve` makes by
the standard variables (OTEL_EXPORTER_OTLP_ENDPOINT and others). Names and labels are those of
/metrics, without the second names of Confluent.
"""

import logging
import time
from collections.abc import Callable, Iterator
from typing import Final

from tailrace.broker.monitoring.families import families
from tailrace.broker.monitoring.values import Values
from tailrace.errors import MissingExtraError

try:
    from opentelemetry import metrics
    from opentelemetry.metrics import CallbackOptions, Observation
except ModuleNotFoundError as error:
    raise MissingExtraError(
        "tailrace.opentelemetry.metrics", ["opentelemetry-api"], extra="otel"
    ) from error

logger = logging.getLogger(__name__)

KEPT_S: Final = 1.0
"""Time for which values are those of the same collection: it asks instrument by instrument."""


class NodeMetrics:
    """Observable instruments with all metrics of a node."""

    def __init__(
        self,
        read: Callable[[], Values | None],
        *,
        meters: metrics.MeterProvider | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`read` gives the values now, or None; it is called on the thread of an exporter.

        `meters` is the program's global meter provider if it is None.
        """
        self._read = read
        self._clock = clock
        self._values = Values()
        self._read_at = -KEPT_S
        meter = metrics.get_meter("tailrace", meter_provider=meters)
        # That of the interface alone, which forgets all.
        if type(meters or metrics.get_meter_provider()).__module__.startswith(metrics.__name__):
            logger.warning(
                "opentelemetry_without_exporter next=%s",
                "start it by opentelemetry-instrument, of opentelemetry-distro",
            )
        for each in families().values():
            is_counter = each.kind == "counter"
            self._make(meter, each.name, each.text, is_counter=is_counter)
            if each.kind == "summary":
                self._make(meter, f"{each.name}_count", each.text, is_counter=True)

    def _make(self, meter: metrics.Meter, name: str, text: str, *, is_counter: bool) -> None:
        def observe(_: CallbackOptions) -> Iterator[Observation]:
            for each in self._now().found.get(name, ()):
                yield Observation(float(each.value), dict(each.labels))

        make = meter.create_observable_counter if is_counter else meter.create_observable_gauge
        make(name, callbacks=[observe], description=text)

    def _now(self) -> Values:
        now = self._clock()
        if now - self._read_at >= KEPT_S:
            # None: the event loop hangs. Older values would hide that.
            self._values, self._read_at = self._read() or Values(), self._clock()
        return self._values
