"""Listeners that come and go while a broker runs (KIP-226): the same changes at both brokers.

Compared is the error code of each change, and which ports then accept connections. Both brokers
advertise one listener by `advertised.listeners`, so that the others may go again.
"""

import socket
import time
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from compat import ours
from compat.kafka import NODE_ID, Kafka
from compat.processes import free_ports
from compat.report import Report
from tailrace.client.admin import Admin, ConfigChange, ConfigOperation, ConfigResource
from tailrace.client.errors import RemoteFatalError
from tailrace.protocol.config_resources import ResourceType
from tailrace.protocol.errors import ErrorCode

_MAP: Final = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,EXTRA:PLAINTEXT,SECOND:PLAINTEXT"
_PROTOCOLS: Final = "listener.security.protocol.map"
_EXTRA: Final = "{main},EXTRA://127.0.0.1:{one}"
_BOTH: Final = f"{_EXTRA},SECOND://127.0.0.1:{{two}}"


class _Step(NamedTuple):
    setting: str
    value: str | None
    """With the addresses of the test put in; None: the change is deleted."""
    is_for_all: bool = False


_STEPS: Final = (
    _Step("listeners", _EXTRA),
    _Step("listeners", f"{_EXTRA},SECOND://127.0.0.1:{{one}}"),
    _Step("listeners", _BOTH),
    _Step("listeners", f"{_EXTRA},OTHER://127.0.0.1:{{two}}"),
    _Step("listeners", "{main},EXTRA://127.0.0.1:x"),
    _Step("listeners", ""),
    _Step("listeners", "EXTRA://127.0.0.1:{one}"),
    _Step(_PROTOCOLS, _MAP.replace("EXTRA:PLAINTEXT", "EXTRA:SASL_PLAINTEXT")),
    _Step(_PROTOCOLS, _MAP.replace(",EXTRA:PLAINTEXT", "")),
    _Step(_PROTOCOLS, f"{_MAP},OTHER:PLAINTEXT"),
    _Step("listeners", f"{_EXTRA},OTHER://127.0.0.1:{{three}}"),
    _Step("advertised.listeners", "{main}"),
    _Step("inter.broker.listener.name", "EXTRA"),
    _Step("controller.listener.names", "EXTRA"),
    _Step("listener.name.extra.max.connections", "5"),
    _Step("listener.name.extra.max.connections", "-1"),
    _Step("listener.name.extra.max.connection.creation.rate", "100"),
    _Step("listener.name.absent.ssl.client.auth", "required"),
    _Step("listeners", "{main}"),
    _Step("listeners", None),
    _Step(_PROTOCOLS, None),
    _Step("listeners", _EXTRA, is_for_all=True),
    _Step(_PROTOCOLS, f"{_MAP},MORE:PLAINTEXT", is_for_all=True),
    _Step("listener.name.extra.ssl.client.auth", "required", is_for_all=True),
    _Step("listener.name.extra.max.connections", "5", is_for_all=True),
    _Step("max.connections", "1000", is_for_all=True),
)
_WITHOUT_EFFECT: Final = _Step("listener.name.extra.ssl.client.auth", "required")
"""Kafka takes it where the listener is open, and asks its clients for no certificate."""
_LOOKS: Final = 20
_PAUSE_S: Final = 0.5
_BROKER: Final = ConfigResource(ResourceType.BROKER, str(NODE_ID))
_OF_ALL: Final = ConfigResource(ResourceType.BROKER, "")


def check(report: Report, kafka: Kafka) -> None:
    """Make each change at both brokers; Kafka's directory is new."""
    kafka.settings[_PROTOCOLS] = _MAP
    mine = kafka.directory.with_name(f"{kafka.directory.name}-ours")
    mine.mkdir()
    [port] = free_ports(1)
    address = f"127.0.0.1:{port}"
    settings = {_PROTOCOLS: _MAP, "advertised.listeners": f"PLAINTEXT://{address}"}
    with kafka, ours.serving(mine, address=address, settings=settings):
        dues, found = ([*_outcomes(each)] for each in (kafka.bootstrap_servers, address))
        outcomes = zip(_STEPS, dues, found, strict=True)
        report.check(
            f"{len(_STEPS)} changes of listeners have the same outcome and open the same ports",
            [f"{step}: {due} at Kafka, {own} at ours" for step, due, own in outcomes if due != own],
        )
        steps = (_Step("listeners", _EXTRA), _WITHOUT_EFFECT)
        dues, found = ([*_outcomes(each, steps)] for each in (kafka.bootstrap_servers, address))
        taken = _Outcome(ErrorCode.NONE, dues[0].ports)
        refused = _Outcome(ErrorCode.INVALID_REQUEST, dues[0].ports)
        report.check(
            "a setting of an open listener that would have no effect is refused",
            [f"{dues} at Kafka, {found} at ours"]
            if (dues, found) != ([taken, taken], [taken, refused])
            else [],
            explained="Kafka takes it, and clients go on without a certificate",
        )


class _Outcome(NamedTuple):
    code: int
    ports: tuple[bool, ...]
    """Which of the three ports accept connections."""


def _outcomes(servers: str, steps: Sequence[_Step] = _STEPS) -> Iterator[_Outcome]:
    ports = free_ports(3)
    with Admin(bootstrap_servers=servers) as admin:
        described = admin.describe_configs([_BROKER], names=["listeners"]).result(_BROKER)
        main = described["listeners"].value
        addresses = dict(zip(("one", "two", "three"), ports, strict=True))
        for step in steps:
            operation = ConfigOperation.SET if step.value is not None else ConfigOperation.DELETE
            value = (step.value or "").format(main=main, **addresses)
            resource = _OF_ALL if step.is_for_all else _BROKER
            changes = {resource: [ConfigChange(step.setting, value, operation)]}
            error = admin.incremental_alter_configs(changes).errors.get(resource)
            code = ErrorCode.NONE
            if error is not None:
                if not isinstance(error, RemoteFatalError):
                    raise error
                code = ErrorCode(error.code)
            yield _Outcome(code, _settled(ports))


def _settled(ports: Sequence[int]) -> tuple[bool, ...]:
    """Which ports accept connections, once that has not changed for half a second."""
    # A broker has its own changes from the metadata log, after the answer.
    found = tuple(map(_is_open, ports))
    for _ in range(_LOOKS):
        time.sleep(_PAUSE_S)
        before, found = found, tuple(map(_is_open, ports))
        if before == found:
            break
    return found


def _is_open(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=_PAUSE_S):
            return True
    except OSError:
        return False
