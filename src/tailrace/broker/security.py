"""`NodeSecurity`: certificates and logins of a node, for its listeners and its connections.

    port_of       the server's side of a listener
    outgoing_to   the client's side of a listener of other nodes: of brokers, or of controllers

As in Kafka a node connects to others with the settings of the listener by which they are reached:
its certificate is the same on both sides of a connection, and its own name and password are in the
JAAS entry that has those of others.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from tailrace.broker.config import BrokerConfig
from tailrace.broker.listeners import Listener
from tailrace.cluster.metadata.image import ScramUser
from tailrace.runtime.system import Runtime
from tailrace.server.listener import PortSecurity

if TYPE_CHECKING:
    from tailrace.broker.logins import NodeLogins
    from tailrace.client.nodes import Login
    from tailrace.client.security import Security
    from tailrace.protocol.metadata_records import UserScramCredentialRecord
    from tailrace.security.listener_tls import ListenerTls, OutgoingTls


ScramUsers = Mapping[ScramUser, "UserScramCredentialRecord"]
"""The SCRAM credentials of a cluster."""


class NodeSecurity:
    """Reads the files that the settings of encrypted listeners name."""

    def __init__(self, config: BrokerConfig, runtime: Runtime) -> None:
        """Read them.

        Raises:
            ConfigError: a file cannot be read, a certificate or key is not usable, or nodes with
                these settings could not reach each other.
        """
        self._ports, self._outgoing = _opened(config) if config.listener_tls else ({}, {})
        self._logins: NodeLogins | None = None
        self._own: dict[str, Login] = {}
        """The logins of this node to others, by listener."""
        if config.listener_sasl:
            # hashlib loads OpenSSL, which takes 4 ms.
            from tailrace.broker import logins

            self._logins = logins.NodeLogins(config, runtime)
            for name, each in config.listener_sasl.items():
                if each.own is not None:
                    self._own[name] = logins.own_login(each.own)

    def port_of(self, listener: Listener, users: Callable[[], ScramUsers]) -> PortSecurity:
        """Encryption and logins of a listener of this node; `users` gives those by SCRAM.

        Raises:
            MissingExtraError: a package for a mechanism of SASL is not installed.
        """
        logins = None if self._logins is None else self._logins.of_listener(listener, users)
        return PortSecurity(tls=self._ports.get(listener.name), login=logins)

    def outgoing_to(self, listener: str) -> "Security":
        """Encryption and login of connections to a listener of other nodes."""
        # Here, because a broker alone needs no client of any kind.
        from tailrace.client.security import Security

        return Security(tls=self._outgoing.get(listener), login=self._own.get(listener))


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
