"""`NodeSecurity`: certificates and authorities of a node, for its listeners and its connections.

    port_of       the server's side of a listener
    outgoing_to   the client's side of a listener of other nodes: of brokers, or of controllers

As in Kafka a node connects to others with the settings of the listener by which they are reached:
its certificate is the same on both sides of a connection.
"""

from typing import TYPE_CHECKING

from tailrace.broker.config import BrokerConfig
from tailrace.broker.listeners import Listener
from tailrace.server.listener import PortSecurity

if TYPE_CHECKING:
    from tailrace.client.security import Security
    from tailrace.security.listener_tls import ListenerTls, OutgoingTls


class NodeSecurity:
    """Reads the files that the settings of encrypted listeners name."""

    def __init__(self, config: BrokerConfig) -> None:
        """Read them.

        Raises:
            ConfigError: a file cannot be read, a certificate or key is not usable, or nodes with
                these settings could not reach each other.
        """
        self._ports, self._outgoing = _opened(config) if config.listener_tls else ({}, {})

    def port_of(self, listener: Listener) -> PortSecurity:
        """Encryption and logins of a listener of this node."""
        return PortSecurity(tls=self._ports.get(listener.name))

    def outgoing_to(self, listener: str) -> "Security":
        """Encryption and login of connections to a listener of other nodes."""
        # Here, because a broker alone needs no client of any kind.
        from tailrace.client.security import Security

        return Security(tls=self._outgoing.get(listener))


def _opened(config: BrokerConfig) -> "tuple[dict[str, ListenerTls], dict[str, OutgoingTls]]":
    # Here, because ssl takes 20 ms to import and most listeners are plain.
    from tailrace.security.listener_tls import ListenerTls, OutgoingTls, check_together

    settings = config.listener_tls
    own = [each.name for each in (*config.listeners, config.controller_listener) if each]
    ports = {name: ListenerTls(name, settings[name]) for name in own if name in settings}
    outgoing = {}
    for name in config.peer_listeners:
        if name in settings:
            outgoing[name] = OutgoingTls(name, settings[name])
            if name in ports:
                check_together(name, settings[name])
    return ports, outgoing
