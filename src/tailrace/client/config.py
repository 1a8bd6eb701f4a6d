"""`ClientConfig`: the settings that all clients share; `RecordsConfig`: those of two of them.

Names, defaults and ranges are Kafka's; times are ms, sizes bytes. Names may be written dotted or
with underscores.

Not here: settings that only a producer has; see `producer.config`.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

from tailrace.client.foreign import FOREIGN_NAMES, Client, foreign_hints
from tailrace.client.security import (
    PROTOCOLS,
    SECURITY_SETTINGS,
    TOKEN_FUNCTION,
    Security,
    SecurityConfig,
    take_other_names,
)
from tailrace.config import (
    Setting,
    field_values,
    parse_settings,
    setting,
    settings_of,
    settings_texts,
)
from tailrace.config.settings import INT32_MAX, INT64_MAX, settings_together
from tailrace.errors import ConfigError
from tailrace.security.tls_config import TlsConfig
from tailrace.values import dataclass, fields


class BrokerAddress(NamedTuple):
    """The host and port where a broker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        # An IPv6 address has colons, so the port needs brackets before it.
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class ClientConfig:
    """Settings of a client's connections: addresses, time limits, encryption and login.

    The producer's settings are a subclass, although this project avoids inheritance: so code that
    takes either class reads the same field names.
    """

    # A class variable, since hints about a foreign name depend on who got it.
    client: ClassVar[Client] = Client.READER

    bootstrap_servers: tuple[BrokerAddress, ...] = settings_together(
        # An address may name a protocol, which has to be that of security.protocol.
        Setting(
            name="bootstrap.servers",
            default="",
            text="HOST:PORT of some brokers, with commas between; the client learns the others "
            "from them. `PLAINTEXT://HOST:PORT` is accepted if `security.protocol` is the same.",
        ),
        default=(),
    )
    client_id: str = setting(
        "client.id",
        default="",
        text="The name in a broker's logs and quotas; `producer-N` or `consumer-GROUP-N` if empty.",
    )
    request_timeout_ms: int = setting(
        "request.timeout.ms",
        default=30000,
        low=0,
        high=INT32_MAX,
        text="How long a broker may take to answer before the connection is closed.",
    )
    retry_backoff_ms: int = setting(
        "retry.backoff.ms",
        default=100,
        low=0,
        high=INT64_MAX,
        text="Pause before the first retry; doubled for each further one.",
    )
    retry_backoff_max_ms: int = setting(
        "retry.backoff.max.ms",
        default=1000,
        low=0,
        high=INT64_MAX,
        text="Longest pause between retries.",
    )
    reconnect_backoff_ms: int = setting(
        "reconnect.backoff.ms",
        default=50,
        low=0,
        high=INT64_MAX,
        text="Pause before connecting again; doubled for each failure.",
    )
    reconnect_backoff_max_ms: int = setting(
        "reconnect.backoff.max.ms",
        default=1000,
        low=0,
        high=INT64_MAX,
        text="Longest pause between attempts to connect.",
    )
    connections_max_idle_ms: int = setting(
        "connections.max.idle.ms",
        default=540000,
        low=-1,
        high=INT64_MAX,
        text="Close a connection that was unused for so long; -1 never.",
    )
    socket_connection_setup_timeout_ms: int = setting(
        "socket.connection.setup.timeout.ms",
        default=10000,
        low=1,
        high=INT64_MAX,
        text="How long a connection may take to be opened; doubled for each failure.",
    )
    socket_connection_setup_timeout_max_ms: int = setting(
        "socket.connection.setup.timeout.max.ms",
        default=30000,
        low=1,
        high=INT64_MAX,
        text="Longest time for opening a connection.",
    )
    security: SecurityConfig = settings_together(*SECURITY_SETTINGS, default_factory=SecurityConfig)

    def open_security(self) -> Security:
        """The TLS context and the login that the settings describe.

        Raises:
            ConfigError: a TLS file cannot be read, a package is missing, or a name or password is
                not Unicode text.
        """
        tls = login = None
        protocol = self.security.security_protocol
        # Both import what a client without TLS and login does without: ssl alone takes 20 ms.
        if protocol.startswith("SASL"):
            from tailrace.client.logins import login_of

            login = login_of(self.security)
        if protocol.endswith("SSL"):
            from tailrace.security.tls_context import tls_context

            tls = tls_context(self.security.tls)
        return Security(tls, login)

    def __repr__(self) -> str:
        shown = (f"{each.name}={getattr(self, each.name)!r}" for each in fields(self))
        return f"{type(self).__name__}({', '.join(shown)})"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class RecordsConfig(ClientConfig):
    """Settings that producers and consumers share, and that other clients do not have."""

    metadata_max_age_ms: int = setting(
        "metadata.max.age.ms",
        default=300000,
        low=0,
        high=INT64_MAX,
        text="Refresh the metadata of topics and leaders at least this often.",
    )
    metadata_recovery_strategy: str = setting(
        "metadata.recovery.strategy",
        default="rebootstrap",
        choices=("none", "rebootstrap"),
        text="rebootstrap: use bootstrap.servers again if no known broker can be reached.",
    )
    statistics_interval_ms: int = setting(
        "statistics.interval.ms",
        default=30000,
        low=0,
        high=INT32_MAX,
        text="How often `on_metrics` is called, if it is given; 0 never.",
    )


CLIENT_SETTINGS = settings_of(ClientConfig)
"""The settings of every client."""


def parse_client_config(
    given: object,
    more: Mapping[str, object] | None = None,
    *,
    defaults: Mapping[str, object] = MappingProxyType({}),
) -> ClientConfig:
    """The settings of a client that only reads, from names and values; see `given_settings`.

    `defaults` have dotted names, and count where a setting is not given.

    Raises:
        TypeError: `given` is no mapping.
        ConfigError: unknown names with similar known ones, bad values, and settings that contradict
            each other; all of them at once.
    """
    faults: list[str] = []
    settings = {**settings_texts(defaults), **given_settings(given, more, faults=faults)}
    typed = typed_settings(ClientConfig, settings, faults=faults)
    if faults:
        raise ConfigError(faults)
    return ClientConfig(**typed)


def given_settings(
    given: object, more: Mapping[str, object] | None = None, *, faults: list[str]
) -> dict[str, Any]:
    """Settings by their dotted names: texts as from `settings_texts`, and functions as they are.

    A setting may be given in several manners, in `given` and `more`, with dots and underscores,
    but not with different values: that is a fault, as are values of a type that no setting has.
    `typed_settings` refuses settings that only other clients have, also if a value is a function.

    Raises:
        TypeError: `given` is no mapping.
    """
    settings_texts(given if not isinstance(given, Mapping) else None)  # refuses what is no mapping
    pairs = [*(given.items() if isinstance(given, Mapping) else ()), *(more or {}).items()]
    found: dict[str, Any] = {}
    twice = set()
    for name, value in pairs:
        dotted = name.replace("_", ".") if isinstance(name, str) else name
        # The only setting whose value is no text.
        if dotted == TOKEN_FUNCTION and callable(value):
            texts: dict[str, Any] = {TOKEN_FUNCTION: value}
        else:
            try:
                texts = settings_texts({name: value})
            except ConfigError as error:
                # A name of another client gets its hint, whatever its value is.
                if dotted not in FOREIGN_NAMES:
                    faults += error.faults
                    continue
                texts = {dotted: ""}
        for each, text in texts.items():
            if found.setdefault(each, text) != text:
                twice.add(each)
    faults += [f"{each}: it is given twice, with different values" for each in sorted(twice)]
    return found


def typed_settings(
    config: type[ClientConfig], settings: Mapping[str, Any], *, faults: list[str]
) -> dict[str, Any]:
    """The values of the fields of `config`, from settings as `given_settings` returns them.

    All faults are added to `faults`: unknown names, values out of range, and pairs that the
    declared ranges do not cover. The values of these are the defaults.
    """
    texts = dict(settings)
    function = texts.pop(TOKEN_FUNCTION, None)
    if function is not None and not callable(function):
        faults.append(f"{TOKEN_FUNCTION}: it has to be a function that returns a token")
        function = None
    # Before unknown names are looked for.
    take_other_names(texts, faults=faults)
    entry = None
    # Here, since logins import ssl, which takes 20 ms.
    if "sasl.jaas.config" in texts:
        from tailrace.client.logins import take_jaas

        entry = take_jaas(texts, faults=faults)
    declared = settings_of(config)
    unknown = texts.keys() - {each.name for each in declared}
    hints = foreign_hints(config.client, unknown) if unknown else {}
    values = parse_settings(declared, texts, hints=hints, faults=faults)
    typed = field_values(config, values)
    security = SecurityConfig(
        **field_values(SecurityConfig, values),
        sasl_oauth_token=function,
        tls=TlsConfig(**field_values(TlsConfig, values)),
    )
    typed["security"] = security
    try:
        typed["bootstrap_servers"] = parse_bootstrap(
            str(values["bootstrap.servers"]), security_protocol=security.security_protocol
        )
    except ConfigError as error:
        typed["bootstrap_servers"] = ()
        faults += [each.removeprefix("kafka.") for each in error.faults]
    # Faults of the login would follow from those of its settings.
    is_sound = not any(each.startswith(("sasl.", "security.")) for each in faults)
    if is_sound and security.security_protocol.startswith("SASL"):
        from tailrace.client.logins import login_faults

        faults += login_faults(security, entry, settings)
    return typed


def parse_bootstrap(
    text: str, *, security_protocol: str | None = None
) -> tuple[BrokerAddress, ...]:
    """The addresses of `host1:9092,[::1]:9092`, in their order.

    An address may begin with the protocol as listeners do, `SSL://host:9092`, if that is the
    client's `security_protocol`.

    Raises:
        ConfigError: the list is empty, or an address lacks a host or a port; all faults at once.
    """
    addresses, faults = [], []
    for part in filter(None, (each.strip() for each in text.split(","))):
        protocol, separator, address = part.rpartition("://")
        host, _, port = address.rpartition(":")
        # An address of IPv6 has brackets, because of its colons.
        host = host.removeprefix("[").removesuffix("]")
        if separator and protocol != security_protocol:
            why = f"names the listener {protocol}; give {address}"
            if protocol in PROTOCOLS and security_protocol is not None:
                why = f"is {protocol}, and security.protocol is {security_protocol}; set the same"
            faults.append(f"kafka.bootstrap.servers: {part!r} {why}")
        elif host and port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16:
            addresses.append(BrokerAddress(host, int(port)))
        else:
            faults.append(f"kafka.bootstrap.servers: {part!r} is not HOST:PORT")
    if not addresses and not faults:
        faults.append("kafka.bootstrap.servers: the list is empty; give HOST:PORT,HOST:PORT")
    if faults:
        raise ConfigError(faults)
    return tuple(addresses)
