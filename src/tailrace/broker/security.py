"""`NodeSecurity`: certificates and logins of a node, for its listeners and its connections.

    port_of       the server's side of a listener
    outgoing_to   the client's side of a listener of other nodes: of brokers, or of controllers
    renew         other files or settings, for new connections from then on, and other listeners
    watch         the same, whenever a file has changed

As in Kafka a node connects to others with the settings of the listener by which they are reached:
its certificate is the same on both sides of a connection, and its own name and password are in the
JAAS entry that has those of others.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from tailrace.broker.changing import RENEWABLE
from tailrace.broker.config import BrokerConfig
from tailrace.broker.listeners import Listener
from tailrace.cluster.metadata.image import ScramUser
from tailrace.errors import ConfigError
from tailrace.runtime.system import Runtime
from tailrace.runtime.threads import Threads
from tailrace.security.listener_config import ListenerTlsConfig
from tailrace.server.listener import PortSecurity
from tailrace.values import replace

if TYPE_CHECKING:
    from tailrace.broker.logins import NodeLogins
    from tailrace.client.nodes import Login
    from tailrace.client.security import Security
    from tailrace.protocol.metadata_records import UserScramCredentialRecord
    from tailrace.security.authenticator import ListenerLogins
    from tailrace.security.listener_tls import ListenerTls, OutgoingTls

logger = logging.getLogger(__name__)

_STORES: Final = tuple(name.replace(".", "_") for name in RENEWABLE)
"""The fields of `TlsConfig` that change while a listener is open."""

WATCH_S: Final = 10.0
"""Interval at which files are looked at: certificates are renewed days before they end."""

_Files = list[tuple[str, int, int]]
"""Files with the times of their change and their numbers."""

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
        self._runtime = runtime
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

            for name, each in config.listener_sasl.items():
                if each.own is not None:
                    self._own[name] = logins.own_login(each.own)

    @property
    def _settings(self) -> Mapping[str, ListenerTlsConfig]:
        return self._used.settings

    def port_of(self, listener: Listener, users: Callable[[], ScramUsers]) -> PortSecurity:
        """Encryption and logins of a listener of this node; `users` gives those by SCRAM.

        Raises:
            ConfigError: there is no certificate for it, since `renew` has failed.
            MissingExtraError: a package for a mechanism of SASL is not installed.
        """
        tls = self._ports.get(listener.name)
        if listener.is_encrypted and tls is None:
            raise ConfigError([f"listener {listener.name}: its certificate could not be read"])
        return PortSecurity(tls=tls, login=self._logins_of(self._config, listener, users))

    def _logins_of(
        self, config: BrokerConfig, listener: Listener, users: Callable[[], ScramUsers]
    ) -> "ListenerLogins | None":
        if not listener.has_logins:
            return None
        if self._logins is None:
            from tailrace.broker.logins import NodeLogins

            self._logins = NodeLogins(self._runtime)
        return self._logins.of_listener(listener.name, config.listener_sasl[listener.name], users)

    def outgoing_to(self, listener: str) -> "Security":
        """Encryption and login of connections to a listener of other nodes."""
        # Here, because a broker alone needs no client of any kind.
        from tailrace.client.security import Security

        return Security(tls=self._outgoing.get(listener), login=self._own.get(listener))

    def check(self, config: BrokerConfig, added: Iterable[Listener]) -> None:
        """Check that `renew` would take these settings, which have some new listeners.

        Raises:
            ConfigError: as `renew`.
            MissingExtraError: a package for a login of a new listener is not installed.
        """
        settings = self._renewed(config)
        if settings != self._settings:
            self._planned(config, settings)
        for each in added:
            self._logins_of(config, each, dict)

    def renew(self, config: BrokerConfig) -> None:
        """Use other settings for new connections, and for new listeners; reads their files.

        Raises:
            ConfigError: as the constructor, or a new certificate is that of another broker, or not
                trusted by nodes with the settings of before. Nothing has changed then, but that
                listeners which are gone are forgotten.
        """
        # In any case: new listeners without encryption do not depend on files.
        self._config = config
        self._forget(self._used.settings.keys() - config.listener_tls.keys())
        settings = self._renewed(config)
        if settings != self._settings:
            self._use(self._planned(config, settings))

    def _forget(self, gone: Collection[str]) -> None:
        """Keep nothing of listeners that are gone: one of that name may come with others.

        Its clients would be let in by settings that nobody sees any more.
        """
        if gone:
            self._used = self._used.without(gone)
            for name in gone:
                self._ports.pop(name, None)

    def _renewed(self, config: BrokerConfig) -> Mapping[str, ListenerTlsConfig]:
        """The settings of encrypted listeners; most of those that are open keep what they have."""
        found = dict(config.listener_tls)
        for name in found.keys() & self._settings.keys():
            used, new = self._settings[name], found[name].tls
            stores = {field: getattr(new, field) for field in _STORES}
            found[name] = replace(used, tls=replace(used.tls, **stores))
        return found

    async def watch(self, threads: Threads) -> None:
        """Read the files whenever one has changed; never ends. Unusable ones change nothing."""
        refused = self._used.files
        while self._settings:
            await asyncio.sleep(WATCH_S)
            try:
                refused = await self._look(threads, refused)
            except Exception as error:  # noqa: BLE001 - such as a system that starts no thread now
                # A certificate that is never renewed would end all connections, months later.
                logger.warning(
                    "certificate_not_renewed reason=%r next=%s", error,
                    f"the files are looked at again in {WATCH_S:.0f} s",
                )  # fmt: skip

    async def _look(self, threads: Threads, refused: _Files) -> _Files:
        """Read the files if they have changed; returns the state of them that is not usable.

        `refused` is what this has returned before.
        """
        settings = self._settings
        files = await threads.run(partial(_files, settings))
        # Once for each change: what is not usable stays so until the next one.
        if files in (self._used.files, refused):
            return refused
        try:
            planned = await threads.run(partial(self._planned, self._config, settings))
        except ConfigError as error:
            logger.warning(
                "certificate_not_renewed reason=%s consequence=%s", error,
                "the one before is used until the files change again",
            )  # fmt: skip
            return files
        if settings is self._settings:
            self._use(planned)
        return refused

    def _use(self, planned: "_Opened") -> None:
        self._used = planned
        for name, port in planned.ports.items():
            if name in self._ports:
                self._ports[name].renew(port)
            else:
                self._ports[name] = port
                port.log_certificate()
        for name in self._ports.keys() - planned.ports.keys():
            del self._ports[name]
        for name, each in planned.outgoing.items():
            self._outgoing[name].renew(each)

    def _planned(
        self, config: BrokerConfig, settings: Mapping[str, ListenerTlsConfig]
    ) -> "_Opened":
        from tailrace.security.listener_tls import check_renewal, check_together

        planned = _opened(config, settings)
        for name in planned.ports.keys() & self._ports.keys():
            port = planned.ports[name]
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
    files: _Files
    ports: "Mapping[str, ListenerTls]"
    outgoing: "Mapping[str, OutgoingTls]"

    def without(self, names: Collection[str]) -> "_Opened":
        """The same without these listeners of this node."""
        settings = {name: each for name, each in self.settings.items() if name not in names}
        paths = set(_paths(settings.values()))
        return self._replace(
            settings=settings,
            files=[each for each in self.files if each[0] in paths],
            ports={name: each for name, each in self.ports.items() if name not in names},
        )


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


def _files(settings: Mapping[str, ListenerTlsConfig]) -> _Files:
    """The state of the files that the settings name."""
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
