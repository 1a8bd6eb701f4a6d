"""`ClientConfig`: the settings that all clients share, and the part of them that connections need.

Names, defaults and ranges are Kafka's; times are ms, sizes bytes. Names may be written dotted or
with underscores.

Not here: settings that only a producer has; see `producer.config`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from tailrace.client.foreign import HINTS
from tailrace.client.nodes import Credentials, NodesConfig, TlsSettings, tls_context
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

_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


class BrokerAddress(NamedTuple):
    """The host and port where a broker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class ClientConfig:
    """Settings of a client's connections: addresses, time limits, encryption and login.

    The producer's settings are a subclass, although this project avoids inheritance: so code that
    takes either class reads the same field names.
    """

    bootstrap_servers: tuple[BrokerAddress, ...] = settings_together(
        # An address may name a protocol, which has to be that of security.protocol.
        Setting(
            name="bootstrap.servers",
            default="",
            text="HOST:PORT of some brokers, with commas between; the client learns the others "
            "from them. `PLAINTEXT://HOST:PORT` is accepted if `security.protocol` is the same.",
        )
    )
    client_id: str = setting(
        "client.id",
        default="",
        text="The name in a broker's logs and quotas; that of a producer is `producer-N` if empty.",
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
    security_protocol: str = setting(
        "security.protocol",
        default="PLAINTEXT",
        choices=_PROTOCOLS,
        text="Whether connections are encrypted (SSL), and whether the client logs in (SASL).",
    )
    sasl_mechanism: str = setting(
        "sasl.mechanism",
        default="PLAIN",
        choices=("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"),
        text="How the client logs in.",
    )
    sasl_username: str = setting("sasl.username", default="", text="The user's name, for SASL.")
    sasl_password: str = setting(
        "sasl.password",
        default="",
        text="The user's password, for SASL; never logged.",
    )
    ssl_truststore_location: str = setting(
        "ssl.truststore.location",
        default="",
        text=(
            "PEM file with the authorities that brokers' certificates are checked against; "
            "the system's if empty."
        ),
    )
    ssl_keystore_location: str = setting(
        "ssl.keystore.location",
        default="",
        text=(
            "PEM file with the client's certificate chain, and its key unless "
            "`ssl.key.location` has it."
        ),
    )
    ssl_key_location: str = setting(
        "ssl.key.location",
        default="",
        text="PEM file with the client's private key.",
    )
    ssl_key_password: str = setting(
        "ssl.key.password",
        default="",
        text="Password of the private key; never logged.",
    )
    ssl_endpoint_identification_algorithm: str = setting(
        "ssl.endpoint.identification.algorithm",
        default="https",
        choices=("https", ""),
        text="Check that a broker's certificate has the host's name (https), or not (empty).",
    )

    def __repr__(self) -> str:
        shown = (
            f"{each.name}={'***' if 'password' in each.name else getattr(self, each.name)!r}"
            for each in fields(self)
        )
        return f"{type(self).__name__}({', '.join(shown)})"


CLIENT_SETTINGS = settings_of(ClientConfig)
"""The settings of every client."""


def parse_client_config(given: Mapping[str, object]) -> ClientConfig:
    """The settings of a client that only reads, from names and values; see `typed_settings`.

    Raises:
        ConfigError: unknown names with similar known ones, bad values, and settings that contradict
            each other; all of them at once.
    """
    faults: list[str] = []
    typed = typed_settings(ClientConfig, settings_texts(given), faults=faults)
    if faults:
        raise ConfigError(faults)
    return ClientConfig(**typed)


def typed_settings(
    config: type[ClientConfig], texts: Mapping[str, str], *, faults: list[str]
) -> dict[str, Any]:
    """The values of the fields of `config`.

    Faults of single values and pairs that the declared ranges do not cover are added to `faults`.

    Raises:
        ConfigError: unknown names and values out of range, all of them.
    """
    values = parse_settings(settings_of(config), texts, hints=HINTS)
    typed = field_values(config, values)
    try:
        typed["bootstrap_servers"] = parse_bootstrap(
            str(values["bootstrap.servers"]), security_protocol=typed["security_protocol"]
        )
    except ConfigError as error:
        faults += [each.removeprefix("kafka.") for each in error.faults]
    if typed["security_protocol"].startswith("SASL") and not typed["sasl_username"]:
        faults.append("sasl.username: must be given with this security.protocol")
    return typed


def nodes_config(config: ClientConfig, *, in_flight_max: int = 5) -> NodesConfig:
    """The part of the settings that connections need.

    Raises:
        ConfigError: a TLS file cannot be read, or a name or password is not Unicode text.
    """
    tls = credentials = None
    if config.security_protocol.endswith("SSL"):
        tls = tls_context(
            TlsSettings(
                truststore_location=config.ssl_truststore_location,
                keystore_location=config.ssl_keystore_location,
                key_location=config.ssl_key_location,
                key_password=config.ssl_key_password,
                checks_host=bool(config.ssl_endpoint_identification_algorithm),
            )
        )
    if config.security_protocol.startswith("SASL"):
        credentials = Credentials(
            mechanism=config.sasl_mechanism,
            username=config.sasl_username,
            password=config.sasl_password,
        )
    idle_ms = config.connections_max_idle_ms
    return NodesConfig(
        client_id=config.client_id,
        reconnect_backoff_ms=config.reconnect_backoff_ms,
        reconnect_backoff_max_ms=config.reconnect_backoff_max_ms,
        connection_setup_timeout_ms=config.socket_connection_setup_timeout_ms,
        connection_setup_timeout_max_ms=config.socket_connection_setup_timeout_max_ms,
        connections_max_idle_ms=INT64_MAX if idle_ms < 0 else idle_ms,
        in_flight_max=in_flight_max,
        tls=tls,
        credentials=credentials,
    )


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
        host = host.removeprefix("[").removesuffix("]")
        if separator and protocol != security_protocol:
            why = f"names the listener {protocol}; give {address}"
            if protocol in _PROTOCOLS and security_protocol is not None:
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
