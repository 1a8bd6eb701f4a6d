"""Kafka's `listeners` and what goes with them: ports of a node, their security and their limits.

    listeners=INSIDE://:9092,OUTSIDE://:9094,CONTROLLER://:9093     the last is the controller's
    advertised.listeners=INSIDE://b1:9092,OUTSIDE://example.com:9094
    listener.security.protocol.map=INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT
    inter.broker.listener.name=INSIDE
    listener.name.outside.max.connections=100
    listener.name.outside.ssl.client.auth=required

A listener without a name, as in `127.0.0.1:9092`, is PLAINTEXT. The combinations that Kafka refuses
are refused (`AbstractKafkaConfig`, `KafkaConfig.validateValues`), unless it has one listener only:
then there is nothing to confuse, and brokers use it whatever its name.

A setting that begins with `listener.name.` and the listener's name in lower case counts there
before the same one without (`valuesWithPrefixOverride`); for SASL, one that has the mechanism after
that counts before both.
"""

import ipaddress
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Final, NamedTuple

from tailrace.config.settings import INT32_MAX, setting, settings_of
from tailrace.errors import ConfigError
from tailrace.security.listener_config import (
    LISTENER_TLS_SETTINGS,
    ListenerTlsConfig,
    listener_tls_config,
)
from tailrace.security.sasl_config import (
    ListenerSaslConfig,
    listener_sasl_config,
    sasl_setting_names,
)
from tailrace.server.quotas import ConnectionLimits, plain_address
from tailrace.values import dataclass

Address = tuple[str, int]

PLAINTEXT: Final = "PLAINTEXT"
_PROTOCOLS: Final = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class ListenerConfig:
    """Kafka's settings of listeners and of their connections."""

    listeners: str = setting(
        "listeners",
        default="127.0.0.1:9092",
        text="What to listen on: NAME://HOST:PORT, several with commas between; HOST:PORT is that "
        "of the listener PLAINTEXT. Without a host all IPv4 addresses of the machine ([::] is "
        "those of both versions, as no host is in Kafka); port 0 takes any free one. Listeners of "
        "a controller are left out.",
    )
    advertised_listeners: str = setting(
        "advertised.listeners",
        default="",
        text="NAME://HOST:PORT to which clients of each listener connect. Default: the addresses "
        "of the listeners. If HOST is empty, the name of this machine; 0.0.0.0 and :: are refused. "
        "A listener that is not in the list is for those who know it: no answer names it.",
    )
    protocols: tuple[str, ...] = setting(
        "listener.security.protocol.map",
        default=(),
        text="What listeners with names of their own are, as NAME:PROTOCOL with PLAINTEXT, SSL, "
        "SASL_PLAINTEXT or SASL_SSL.",
    )
    controllers: tuple[str, ...] = setting(
        "controller.listener.names",
        default=(),
        text="Names of listeners that are for controllers only. A node with the role `controller` "
        "has at most one of them in `listeners`. With `process.roles=broker` the first is the "
        "listener by which controllers are reached, and none may be in `listeners`.",
    )
    inter_broker: str = setting(
        "inter.broker.listener.name",
        default="",
        text="Name of the listener by which brokers reach each other: PLAINTEXT if empty, or the "
        "only one. Its connections are accepted even above `max.connections`.",
    )
    inter_broker_protocol: str = setting(
        "security.inter.broker.protocol",
        default=PLAINTEXT,
        choices=_PROTOCOLS,
        text="The other way to name that listener, where its name is that of its protocol.",
    )
    connections_max: int = setting(
        "max.connections",
        default=2048,
        low=1,
        high=INT32_MAX,
        text="Most connections at a time; others wait in the kernel's queue. Each takes 64 KiB. "
        "(Kafka's default is no limit.)",
    )
    connection_creation_rate: int = setting(
        "max.connection.creation.rate",
        default=INT32_MAX,
        low=0,
        high=INT32_MAX,
        text="Most connections that are accepted in a second; more wait in the kernel's queue, "
        "each for quota.window.size.seconds at most. A listener may have a limit of its own.",
    )
    address_connections_max: int = setting(
        "max.connections.per.ip",
        default=1024,
        low=0,
        high=INT32_MAX,
        text="Most connections from one address; others are closed at once. (Kafka's default is "
        "no limit.)",
    )
    address_connections_overrides: tuple[str, ...] = setting(
        "max.connections.per.ip.overrides",
        default=(),
        text="Other limits for single addresses: ADDRESS:COUNT, separated by commas.",
    )


LISTENER_SETTINGS: Final = settings_of(ListenerConfig)


class Listener(NamedTuple):
    """A port of this broker, and the address by which it is known."""

    name: str
    host: str
    port: int
    is_advertised: bool = True
    """Whether answers name it."""
    advertised: Address | None = None
    """The address for those who connect: without a host the name of this machine, and port 0 is the
    one that is open. None: where it listens."""
    protocol: str = PLAINTEXT
    """PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."""

    @property
    def protocol_number(self) -> int:
        """Kafka's number of its security protocol."""
        return _PROTOCOLS.index(self.protocol)

    @property
    def is_encrypted(self) -> bool:
        """Whether its connections are encrypted."""
        return self.protocol.endswith("SSL")

    @property
    def has_logins(self) -> bool:
        """Whether its clients log in by SASL."""
        return self.protocol.startswith("SASL")

    @property
    def prefix(self) -> str:
        """The begin of the names of its own settings (Kafka: `ListenerName.configPrefix`)."""
        return f"listener.name.{self.name.lower()}."

    def own_settings(self, texts: Mapping[str, str]) -> dict[str, str]:
        """Settings as they count for this listener, by their names without prefix."""
        own = {
            name.removeprefix(self.prefix): text
            for name, text in texts.items()
            if name.startswith(self.prefix)
        }
        return {**texts, **own}


class _Given(NamedTuple):
    """A listener as a setting gives it."""

    name: str
    text: str
    address: Address


class Listeners(NamedTuple):
    """All listeners of a node; none if the settings have faults."""

    all: tuple[Listener, ...]
    """The listeners of its broker."""
    inter_broker: str
    """Name of the one for other brokers."""
    controller: Listener | None = None
    """The one of its controller."""
    to_controllers: Listener | None = None
    """The one by which controllers are reached, which may be of other nodes alone."""

    @property
    def known(self) -> Sequence[Listener]:
        """Each listener that has settings of its own: those of this node, and of controllers."""
        named = {
            each.name: each for each in (*self.all, self.controller, self.to_controllers) if each
        }
        return list(named.values())

    def setting_names(self) -> frozenset[str]:
        """The names of settings that count for single ones of these listeners."""
        names = {_limit_name(each, limit) for each in self.all for limit in _LOWEST}
        for each in self.known:
            if each.is_encrypted:
                names |= {f"{each.prefix}{of_tls.name}" for of_tls in LISTENER_TLS_SETTINGS}
            if each.has_logins:
                names |= set(sasl_setting_names(each.prefix))
        return frozenset(names)


def plan_listeners(
    config: ListenerConfig, given: Mapping[str, str], *, roles: Sequence[str], faults: list[str]
) -> Listeners:
    """The listeners of clients, of brokers and of the controller; errors go to `faults`."""
    count = len(faults)
    protocols = _protocols(config, faults)
    controllers = tuple(map(str.upper, config.controllers))
    if "controller" not in roles:
        faults += _controller_faults(config, controllers, protocols)
    listening = _parse("listeners", config.listeners, unnamed=PLAINTEXT, faults=faults)
    if "broker" not in roles:
        return _plan_controller(config, listening, protocols, faults=faults)
    own = [each for each in listening if each.name not in controllers]
    faults += _protocol_faults(own, protocols, is_map_given=bool(config.protocols))
    faults += _clashes(listening)
    of_controller = [each for each in listening if each.name in controllers]
    controller = _controller_listener(config, of_controller, protocols, faults=faults)
    # One alone may have any name, so an address without a name is that one's.
    named_so = own[0].name if len(own) == 1 else PLAINTEXT
    advertised = _parse(
        "advertised.listeners", config.advertised_listeners, unnamed=named_so, faults=faults
    )
    advertised = [each for each in advertised if each.name not in controllers]
    if len(faults) == count:
        if own:
            faults += _advertised_faults(config, own, advertised)
        else:
            faults.append(
                "listeners: no listener is for clients; add one, such as PLAINTEXT://:9092"
            )
    if len(faults) > count:
        return Listeners((), "")
    known = {each.name: _advertised_address(each) for each in advertised}
    found = tuple(
        Listener(
            each.name,
            *each.address,
            is_advertised=not known or each.name in known,
            advertised=known.get(each.name),
            protocol=_protocol_of(each.name, protocols),
        )
        for each in own
    )
    to_controllers = controller
    if "controller" not in roles:
        name = controllers[0]
        to_controllers = Listener(name, "", 0, protocol=_protocol_of(name, protocols))
    inter_broker = _inter_broker(config, found, given=given, faults=faults)
    return Listeners(found, inter_broker, controller, to_controllers)


def has_controller_listener(texts: Mapping[str, str]) -> bool:
    """Whether `listeners` has one that is for controllers, by settings that may have faults."""
    names = {each.strip().upper() for each in texts.get("controller.listener.names", "").split(",")}
    listening = texts.get("listeners", "").upper().split(",")
    return any("://" in each and each.partition("://")[0].strip() in names for each in listening)


def _plan_controller(
    config: ListenerConfig,
    listening: Sequence[_Given],
    protocols: Mapping[str, str],
    *,
    faults: list[str],
) -> Listeners:
    """The listener of a node that is a controller and no broker."""
    count = len(faults)
    controllers = tuple(map(str.upper, config.controllers))
    of_clients = [each for each in listening if each.name not in controllers]
    # As in Kafka: clients would get no answer there.
    if of_clients:
        faults.append(
            f"listeners: with process.roles=controller each is in controller.listener.names, and "
            f"{_texts(of_clients)} is not"
        )
    elif not listening:
        faults.append(
            "listeners: with process.roles=controller one is for the controller, such as "
            "CONTROLLER://:9093"
        )
    else:
        faults += _clashes(listening)
        controller = _controller_listener(config, listening, protocols, faults=faults)
        if len(faults) == count:
            return Listeners((), "", controller)
    return Listeners((), "")


def _controller_listener(
    config: ListenerConfig,
    listening: Sequence[_Given],
    protocols: Mapping[str, str],
    *,
    faults: list[str],
) -> Listener | None:
    """The listener of the node's controller, of those that are for controllers; None: none is."""
    if not listening:
        return None
    if not config.protocols:
        # As in Kafka: listeners of controllers are in plain text as long as no map is given.
        protocols = {each.name: PLAINTEXT for each in listening if each.name not in _PROTOCOLS}
    faults += _protocol_faults(listening, protocols, is_map_given=bool(config.protocols))
    names = [each.name for each in listening]
    missing = [each for each in map(str.upper, config.controllers) if each not in names]
    if missing:
        faults.append(
            f"controller.listener.names: {', '.join(missing)} is none of the listeners, and a "
            "controller has all that are named"
        )
    elif len(set(names)) > 1:
        faults.append(
            f"listeners: a controller has one listener here, and {', '.join(names)} are given"
        )
    named = _parse(
        "advertised.listeners", config.advertised_listeners, unnamed=PLAINTEXT, faults=[]
    )
    advertised = [each for each in named if each.name == names[0]]
    for each in advertised:
        faults += _unspecified(each)
    address = _advertised_address(advertised[0]) if advertised else None
    return Listener(
        names[0],
        *listening[0].address,
        advertised=address,
        protocol=_protocol_of(names[0], protocols),
    )


def parse_address(text: str) -> Address:
    """Host and port of `HOST:PORT`, `[V6]:PORT` or `:PORT` (all IPv4 addresses).

    Raises:
        ValueError: none of these; the message says what is expected.
    """
    host, colon, port = text.rpartition(":")
    # From the right: an IPv6 address has colons of its own.
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"{text!r} is not HOST:PORT with a port of 0 to 65535")
    return host.strip("[]") or "0.0.0.0", int(port)  # noqa: S104 - as asked for


def with_sockets(given: Mapping[str, str], sockets: Mapping[str, Address]) -> dict[str, str]:
    """Settings whose `listeners` have the addresses of sockets that are open already, by name.

    Listeners without such a socket stay as they are.

    Raises:
        ConfigError: a socket is for none of the listeners, or has another port.
    """
    text = given.get("listeners") or str(LISTENER_SETTINGS[0].default)
    faults: list[str] = []
    listeners = {
        each.name: each for each in _parse("listeners", text, unnamed=PLAINTEXT, faults=faults)
    }
    found = dict(given)
    if faults:
        return found  # That is said where all settings are read.
    for socket_name, (host, port) in sockets.items():
        name = socket_name.upper()
        if name not in listeners:
            faults.append(
                f"listeners: there is no {socket_name or '(empty)'}, for which the service manager "
                f"has opened a socket; set FileDescriptorName= of its socket unit to one of "
                f"{', '.join(listeners)}"
            )
            continue
        if listeners[name].address[1] not in (0, port):
            faults.append(
                f"listeners: {listeners[name].text} has another port than the socket that the "
                f"service manager has opened for it, {port}; correct ListenStream= of the socket "
                "unit, or the listener"
            )
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        listeners[name] = listeners[name]._replace(text=f"{name}://{address}")
    if faults:
        raise ConfigError(faults)
    if sockets:
        found["listeners"] = ",".join(each.text for each in listeners.values())
    return found


# -- security ---------------------------------------------------------------------------------


def listener_tls(
    listeners: Listeners, given: Mapping[str, str], *, faults: list[str]
) -> dict[str, ListenerTlsConfig]:
    """The settings of encrypted listeners, by name: of this node, and that of controllers."""
    return {
        each.name: _tls_config(each, given, faults=faults)
        for each in listeners.known
        if each.is_encrypted
    }


def _tls_config(
    listener: Listener, given: Mapping[str, str], *, faults: list[str]
) -> ListenerTlsConfig:
    settings = listener.own_settings(given)
    # As in Kafka a listener with logins asks for certificates only by a setting of its own.
    if listener.protocol == "SASL_SSL" and f"{listener.prefix}ssl.client.auth" not in given:
        settings["ssl.client.auth"] = "none"
    return listener_tls_config(settings, faults=faults)


def listener_sasl(
    listeners: Listeners, given: Mapping[str, str], *, roles: Sequence[str], faults: list[str]
) -> dict[str, ListenerSaslConfig]:
    """The logins of listeners that ask for one, by name, likewise."""
    own_logins = _own_logins(listeners, roles)
    return {
        each.name: listener_sasl_config(
            given,
            prefix=each.prefix,
            own_login=own_logins.get(each.name, ""),
            is_offered=each in (*listeners.all, listeners.controller),
            faults=faults,
        )
        for each in listeners.known
        if each.has_logins
    }


def _own_logins(listeners: Listeners, roles: Sequence[str]) -> dict[str, str]:
    """The settings of the mechanisms by which a node logs in to others, by listener."""
    found = {}
    # A node that is the whole cluster has nobody to log in to.
    if "broker" in roles and ("controller" not in roles or listeners.controller is not None):
        found[listeners.inter_broker] = "sasl.mechanism.inter.broker.protocol"
    if listeners.to_controllers is not None:
        found[listeners.to_controllers.name] = "sasl.mechanism.controller.protocol"
    return found


# -- limits of connections --------------------------------------------------------------------


CONNECTIONS: Final = "max.connections"
CONNECTION_RATE: Final = "max.connection.creation.rate"
_LOWEST: Final = {CONNECTIONS: 1, CONNECTION_RATE: 0}
"""Limits of connections that single listeners may have, and the smallest value of each."""


def _limit_name(listener: Listener, limit: str) -> str:
    return f"{listener.prefix}{limit}"


def connection_limits(
    config: ListenerConfig, listeners: Listeners, given: Mapping[str, str], *, faults: list[str]
) -> ConnectionLimits:
    """The limits of all connections, and of those of single listeners and addresses."""
    if not config.address_connections_max and not config.address_connections_overrides:
        faults.append(
            "max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides "
            "property is set: nobody could connect"
        )
    return ConnectionLimits(
        connections_max=config.connections_max,
        per_address_max=config.address_connections_max,
        overrides=_overrides(config.address_connections_overrides, faults),
        of_listeners=_own_limits(CONNECTIONS, listeners.all, given, faults=faults),
        creation_rate=config.connection_creation_rate,
        creation_rates=_own_limits(CONNECTION_RATE, listeners.all, given, faults=faults),
        preferred=listeners.inter_broker if len(listeners.all) > 1 else "",
    )


def _overrides(given: Iterable[str], faults: list[str]) -> dict[str, int]:
    found = {}
    for each in given:
        host, _, count = each.rpartition(":")
        if not host or not count.isdecimal():
            faults.append(f"max.connections.per.ip.overrides: {each!r} is not ADDRESS:COUNT")
        else:
            found[plain_address(host.strip("[]"))] = int(count)
    return found


def _own_limits(
    limit: str, listeners: Iterable[Listener], texts: Mapping[str, str], *, faults: list[str]
) -> dict[str, int]:
    """The limits that single listeners have, by name."""
    found = {}
    for each in listeners:
        name = _limit_name(each, limit)
        if name not in texts:
            continue
        text = texts[name].strip()
        if text.isdecimal() and _LOWEST[limit] <= int(text) <= INT32_MAX:
            found[each.name] = int(text)
        else:
            faults.append(f"{name}: {text!r} is not a number of {_LOWEST[limit]} to {INT32_MAX}")
    return found


# -- protocols and controllers ----------------------------------------------------------------


def _protocols(config: ListenerConfig, faults: list[str]) -> dict[str, str]:
    """`listener.security.protocol.map`, in upper case."""
    found: dict[str, str] = {}
    for each in config.protocols:
        name, colon, protocol = (part.strip() for part in each.upper().rpartition(":"))
        if not colon or protocol not in _PROTOCOLS:
            faults.append(
                f"listener.security.protocol.map: {each!r} is not NAME:PROTOCOL with one of "
                f"{', '.join(_PROTOCOLS)}"
            )
            # Or its listeners would be faults, too.
            found.setdefault(name, PLAINTEXT)
        elif found.setdefault(name, protocol) != protocol:
            faults.append(f"listener.security.protocol.map: {name} is there twice")
    return found


def _protocol_of(name: str, protocols: Mapping[str, str]) -> str:
    # The names of protocols are their own meaning as long as no map is given, as in Kafka; one
    # without any is a fault, or the only one.
    return protocols.get(name, name if name in _PROTOCOLS else PLAINTEXT)


def _protocol_faults(
    listeners: Iterable[_Given], protocols: Mapping[str, str], *, is_map_given: bool
) -> Iterator[str]:
    for listener in listeners:
        name = listener.name
        is_known = name in protocols or (name in _PROTOCOLS and not is_map_given)
        if not is_known and "://" in listener.text:
            yield (
                f"listeners: listener.security.protocol.map does not say what {name} is; add "
                f"{name}:PLAINTEXT"
            )


def _controller_faults(
    config: ListenerConfig, controllers: Sequence[str], protocols: Mapping[str, str]
) -> Iterator[str]:
    """Faults of the controllers' listeners, in the settings of a node that is none."""
    if not controllers:
        yield (
            "controller.listener.names: with process.roles=broker it has the name of the "
            "controllers' listener, such as CONTROLLER"
        )
        return
    if config.protocols:
        for name in controllers:
            if name not in protocols:
                yield (
                    f"controller.listener.names: listener.security.protocol.map does not say what "
                    f"{name} is; add {name}:PLAINTEXT"
                )
    for each in _parse("listeners", config.listeners, unnamed=PLAINTEXT, faults=[]):
        if each.name in controllers:
            yield (
                f"listeners: {each.text} is named in controller.listener.names, and a node with "
                "process.roles=broker is no controller; take it out"
            )


# -- addresses --------------------------------------------------------------------------------


def _parse(setting_name: str, text: str, *, unnamed: str, faults: list[str]) -> list[_Given]:
    """The listeners of a list, in their order; `unnamed` is the name of those without."""
    found = []
    for part in filter(None, (each.strip() for each in text.split(","))):
        name, _, address = part.rpartition("://")
        try:
            found.append(_Given(name.upper() or unnamed, part, parse_address(address)))
        except ValueError as error:
            faults.append(f"{setting_name}: {error}")
    return found


def _clashes(listening: Sequence[_Given]) -> Iterator[str]:
    """Listeners with the same name, or for the same port."""
    yield from _twice("listeners", listening)
    by_port = sorted(listening, key=lambda each: each.address[1])
    for port, group in groupby(by_port, key=lambda each: each.address[1]):
        same = list(group)
        if port and len(same) > 1:
            # Two stacks have ports of their own; a name, or no host, may stand for both.
            kinds = [_ip_version(each.address[0]) for each in same if _has_host(each)]
            if sorted(map(str, kinds)) != ["4", "6"] or len(same) != 2:
                yield (
                    f"listeners: {_texts(same)} have the same port; each needs its own, unless one "
                    "is on an IPv4 address and one on an IPv6 address"
                )


def _twice(setting_name: str, listeners: Sequence[_Given]) -> Iterator[str]:
    by_name: dict[str, list[_Given]] = {}
    for each in listeners:
        by_name.setdefault(each.name, []).append(each)
    for name, same in by_name.items():
        if len(same) > 1:
            yield (
                f"{setting_name}: {_texts(same)} are all {name}; each listener needs a name of its "
                "own, which listener.security.protocol.map has"
            )


def _ip_version(host: str) -> int | None:
    """4 or 6; None: it is a name."""
    with suppress(ValueError):
        return ipaddress.ip_address(host).version
    return None


def _has_host(listener: _Given) -> bool:
    return not listener.text.rpartition("://")[2].startswith(":")


def _advertised_faults(
    config: ListenerConfig, own: Sequence[_Given], advertised: Sequence[_Given]
) -> Iterator[str]:
    if not advertised and config.advertised_listeners.strip():
        yield (
            "advertised.listeners: all of them are for controllers; add that of a listener for "
            "clients"
        )
    yield from _twice("advertised.listeners", advertised)
    names = {each.name for each in own}
    for each in advertised:
        if each.name not in names:
            yield (
                f"advertised.listeners: {each.text} is none of the listeners, which are "
                f"{_texts(own)}"
            )
        yield from _unspecified(each)


def _unspecified(advertised: _Given) -> Iterator[str]:
    """The fault of an advertised address that stands for all addresses of a machine."""
    host, port = advertised.address
    # Kafka refuses only 0.0.0.0 in this form. A client that is sent to any of these connects to
    # its own machine, if at all.
    if _has_host(advertised) and _is_unspecified(host):
        yield (
            f"advertised.listeners: clients cannot connect to {host}, which stands for all "
            "addresses of a machine; give a name or an address of this one, or leave the host "
            f"out, as in :{port}, for the name that it has"
        )


def _is_unspecified(host: str) -> bool:
    with suppress(ValueError):  # It is a name.
        return ipaddress.ip_address(host).is_unspecified
    return False


def _advertised_address(listener: _Given) -> Address:
    host, port = listener.address
    return (host if _has_host(listener) else ""), port


def _inter_broker(
    config: ListenerConfig,
    listeners: Sequence[Listener],
    *,
    given: Mapping[str, str],
    faults: list[str],
) -> str:
    """The name of the listener for other brokers."""
    name, names = config.inter_broker.strip().upper(), "inter.broker.listener.name"
    is_protocol_given = "security.inter.broker.protocol" in given
    if name and is_protocol_given:
        faults.append(
            "only one of inter.broker.listener.name and security.inter.broker.protocol may be set"
        )
    elif is_protocol_given:
        name, names = config.inter_broker_protocol, "security.inter.broker.protocol"
    elif not name:
        name = listeners[0].name if len(listeners) == 1 else PLAINTEXT
    advertised = [each.name for each in listeners if each.is_advertised]
    if name not in advertised:
        faults.append(
            f"{names}: {name} is none of the advertised listeners, which are "
            f"{', '.join(advertised)}; set inter.broker.listener.name to one of them"
        )
    return name


def _texts(listeners: Iterable[_Given]) -> str:
    return ", ".join(each.text for each in listeners)
