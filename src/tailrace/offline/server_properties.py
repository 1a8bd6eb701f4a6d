"""The `server.properties` with which Apache Kafka goes on with directories of Tailrace.

    process.roles=broker,controller     node.id and the voter are those of meta.properties
    listeners                           the addresses that the broker has registered, and one for
                                        the controller
    ...replication.factor=1             there is one broker

Settings that the broker was started with are not in its directories, so they are not here.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from tailrace.offline.handover import Handover

CONTROLLER: Final = "CONTROLLER"
CONTROLLER_PORTS: Final = (9093, 9094, 9095)
"""The first of these that no listener has is the controller's."""
_CLIENT_PORT: Final = 9092
_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_ONE_REPLICA: Final = (
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
    "transaction.state.log.min.isr",
    "share.coordinator.state.topic.replication.factor",
    "share.coordinator.state.topic.min.isr",
)


class _Listener(NamedTuple):
    name: str
    host: str
    port: int
    protocol: str = "PLAINTEXT"

    @property
    def address(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def advertised(self) -> str:
        return f"{self.name}://{self.address}"

    @property
    def bound(self) -> str:
        """The address to listen on: all of the machine, unless clients come from it alone."""
        return self.advertised if self.host in _LOOPBACK else f"{self.name}://:{self.port}"


def server_properties(handover: Handover) -> dict[str, str]:
    """Kafka's settings by name, in the order of the file."""
    clients = _clients(handover)
    controller = _controller(handover, clients)
    node_id = str(handover.identity.node_id)
    settings = {
        "process.roles": "broker,controller",
        "node.id": node_id,
        "log.dirs": ",".join(handover.directories),
    }
    if handover.home != handover.directories[0]:
        settings["metadata.log.dir"] = handover.home
    if handover.replay.kraft_version:
        settings["controller.quorum.bootstrap.servers"] = controller.address
    else:
        settings["controller.quorum.voters"] = f"{node_id}@{controller.address}"
    settings |= {
        "controller.listener.names": controller.name,
        "listeners": ",".join(each.bound for each in (*clients, controller)),
        "advertised.listeners": ",".join(each.advertised for each in clients),
        "listener.security.protocol.map": ",".join(
            f"{each.name}:{each.protocol}" for each in (*clients, controller)
        ),
        "inter.broker.listener.name": clients[0].name,
    }
    return settings | dict.fromkeys(_ONE_REPLICA, "1")


def properties_text(settings: dict[str, str]) -> str:
    """The settings as a file."""
    lines = [f"{name}={_escaped(value)}" for name, value in settings.items()]
    return "\n".join([*_HEAD, *lines]) + "\n"


_HEAD: Final = (
    "# Apache Kafka as a quorum of one node, on directories of Tailrace.",
    "# Add the settings that your broker was started with, such as log.retention.ms: they are not",
    "# in its directories.",
)


def _escaped(value: str) -> str:
    """A value as java.util.Properties reads it."""
    return value.replace("\\", "\\\\")


def _clients(handover: Handover) -> list[_Listener]:
    broker = handover.image.brokers.get(handover.identity.node_id)
    found = () if broker is None else broker.end_points
    return [
        _Listener(each.name, each.host, each.port, _PROTOCOLS[each.security_protocol])
        for each in found
        if 0 <= each.security_protocol < len(_PROTOCOLS)
    ] or [_Listener("PLAINTEXT", "localhost", _CLIENT_PORT)]


def _controller(handover: Handover, clients: Sequence[_Listener]) -> _Listener:
    """The controller's listener: that of the voter in the log (KIP-853), or one on this machine."""
    for voter in _voters(handover):
        return voter
    taken = {each.port for each in clients}
    port = next(each for each in (*CONTROLLER_PORTS, 0) if each not in taken)
    return _Listener(CONTROLLER, "localhost", port)


def _voters(handover: Handover) -> Iterator[_Listener]:
    voters = handover.replay.voters
    for voter in () if voters is None else voters.voters:
        if voter.voter_id == handover.identity.node_id:
            for end in voter.endpoints:
                yield _Listener(end.name, end.host, end.port)
