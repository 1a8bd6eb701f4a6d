"""`NodeSecurity`: certificates and logins of a node, for its listeners and its connections.

    port_of       the server's side of a listener
    outgoing_to   the client's side of a listener of other nodes: of brokers, or of controllers
    renew         other files or settings, for new connections from then on
    watch         the same, whenever a file has changed

As in Kafka a node connects to others with the settings of the listener by which they are reached:
its certificate is the same on both sides of a connection, and its own name and password are in the
JAAS entry that has those of others.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from tailrace.broker.config import BrokerConfig
from tailrace.broker.listeners import Listener
from tailrace.cluster.metadata.image import ScramUser
from tailrace.errors import ConfigError
from tailrace.runtime.system import Runtime
from tailrace.runtime.threads import Threads
from tailrace.security.listener_config import ListenerTlsConfig
from tailrace.server.listener import PortSecurity

if TYPE_CHECKING:
    from tailrace.broker.logins import NodeLogins
    from tailrace.client.nodes import Login
    from tailrace.client.security import Security
    from tailrace.protocol.metadata_records import UserScramCredentialRecord
    from tailrace.security.listener_tls import ListenerTls, OutgoingTls

logger = logging.getLogger(__name__)

WATCH_S: Final = 10.0
"""Interval at which files are looked at: certificates are renewed days before they end."""


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
        self._config = config
        self._used = _opened(config, config.listener_tls)
        self._ports, self._outgoing = dict(self._used.ports), dict(self._used.outgoing)
        """The ones that sockets use: they take over what is renewed."""
        for port in self._ports.values():
            port.log_certificate()
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

    @property
    def _settings(self) -> Mapping[str, ListenerTlsConfig]:
        return self._used.settings

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

    def check(self, settings: Mapping[str, ListenerTlsConfig]) -> None:
        """Check that `renew` would take these settings, by name of the listener.

        Raises:
            ConfigError: as `renew`.
        """
        if settings != self._settings:
            self._planned(settings)

    def renew(self, settings: Mapping[str, ListenerTlsConfig]) -> None:
        """Use other settings of the same listeners for new connections; reads their files.

        Raises:
            ConfigError: as the constructor, or a new certificate is that of another broker, or not
                trusted by nodes with the settings of before. Nothing has changed then.
        """
        if settings != self._settings:
            self._use(self._planned(settings))

    async def watch(self, threads: Threads) -> None:
        """Read the files whenever one has changed; never ends. Unusable ones change nothing."""
        refused = self._used.files
        while self._settings:
            await asyncio.sleep(WATCH_S)
            settings = self._settings
            files = await threads.run(partial(_files, settings))
            # Once for each change: what is not usable stays so until the next one.
            if files in (self._used.files, refused):
                continue
            try:
                planned = await threads.run(partial(self._planned, settings))
            except ConfigError as error:
                refused = files
                logger.warning(
                    "certificate_not_renewed reason=%s consequence=%s", error,
                    "the one before is used until the files change again",
                )  # fmt: skip
            else:
                if settings is self._settings:
                    self._use(planned)

    def _use(self, planned: "_Opened") -> None:
        self._used = planned
        for name, port in planned.ports.items():
            self._ports[name].renew(port)
        for name, each in planned.outgoing.items():
            self._outgoing[name].renew(each)

    def _planned(self, settings: Mapping[str, ListenerTlsConfig]) -> "_Opened":
        from tailrace.security.listener_tls import check_renewal, check_together

        planned = _opened(self._config, settings)
        for name, port in planned.ports.items():
            check_renewal(
                self._ports[name],
                port,
                may_change_name=settings[name].allow_dn_changes,
                may_change_hosts=settings[name].allow_san_changes,
            )
            if name in planned.outgoing and settings[name] != self._settings[name]:
                # Other nodes have those of before for a while.
                check_together(name, self._settings[name], settings[name])
        return planned


class _Opened(NamedTuple):
    """The contents of settings and files at one moment."""

    settings: Mapping[str, ListenerTlsConfig]
    files: list[tuple[str, int, int]]
    ports: "Mapping[str, ListenerTls]"
    outgoing: "Mapping[str, OutgoingTls]"


def _opened(config: BrokerConfig, settings: Mapping[str, ListenerTlsConfig]) -> _Opened:
    if not settings:
        return _Opened(settings, [], {}, {})
    # Here, because ssl takes 20 ms to import and most listeners are plain.
    from tailrace.security.listener_tls import ListenerTls, OutgoingTls, check_together

    # Before they are read: a change meanwhile is seen the next time.
    files = _files(settings)
    own = [each.name for each in (*config.listeners, config.controller_listener) if each]
    ports = {name: ListenerTls(name, settings[name]) for name in own if name in settings}
    outgoing = {}
    for name in config.peer_listeners:
        if name in settings:
            outgoing[name] = OutgoingTls(name, settings[name])
            if name in ports:
                check_together(name, settings[name])
    return _Opened(settings, files, ports, outgoing)


def _files(settings: Mapping[str, ListenerTlsConfig]) -> list[tuple[str, int, int]]:
    """The files that the settings name, with the times of their change and their numbers."""
    return [_state_of(path) for path in _paths(settings.values())]


def _paths(settings: Iterable[ListenerTlsConfig]) -> list[str]:
    found = dict.fromkeys(
        path
        for each in settings
        for path in (
            each.tls.ssl_keystore_location,
            each.tls.ssl_key_location,
            each.tls.ssl_truststore_location,
        )
        if path
    )
    return list(found)


def _state_of(path: str) -> tuple[str, int, int]:
    try:
        found = Path(path).stat()
    except OSError:
        return path, 0, 0
    # A file that is renamed to this name may be older than the one before.
    return path, found.st_mtime_ns, found.st_ino
