"""Metrics and health of a node, on an HTTP listener of its own.

families         the metrics: their names, and what they say
values           their values now, in slices on the event loop
health           whether the node lives, and whether it is ready, with the reasons
listener         answers /metrics, /healthz and /readyz, on threads of its own
opentelemetry    the same metrics for an exporter of OpenTelemetry
"""

from typing import TYPE_CHECKING

from tailrace.broker.config import BrokerConfig
from tailrace.broker.monitoring.health import Health
from tailrace.runtime.system import Runtime

if TYPE_CHECKING:
    from tailrace.broker.monitoring.listener import Monitor


def open_monitor(config: BrokerConfig, runtime: Runtime, health: Health) -> "Monitor | None":
    """Metrics and health, which can be asked for from now on; None: no setting asks for them.

    Raises:
        ListenError: the address of the listener cannot be used.
        MissingExtraError: prometheus-client or OpenTelemetry's API is not installed.
    """
    if config.http_listener is None and not config.has_opentelemetry:
        return None
    # Imported here: most brokers have none.
    from tailrace.broker.monitoring.listener import Monitor

    monitor = Monitor(runtime.clock, health, node_id=config.node_id)
    if config.http_listener is not None:
        monitor.open(config.http_listener)
    if config.has_opentelemetry:
        monitor.export()
    return monitor
