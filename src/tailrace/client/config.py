"""`ClientConfig`: the parsed settings that all clients share, and the part that connections need.

Names may be written dotted or with underscores. `settings` explains each.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, NamedTuple

from tailrace.client.foreign import HINTS
from tailrace.client.nodes import Credentials, NodesConfig, TlsSettings, tls_context
from tailrace.client.settings import CONNECTION_SETTINGS, SECURITY_SETTINGS
from tailrace.config import Setting, parse_settings, settings_texts
from tailrace.config.settings import INT64_MAX
from tailrace.errors import ConfigError

_PROTOCOLS: Final = next(
    each.choices for each in SECURITY_SETTINGS if each.name == "security.protocol"
)


class BrokerAddress(NamedTuple):
    """The host and port where a broker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """Settings of a client's connections; see `CONNECTION_SETTINGS` and `SECURITY_SETTINGS`.

    The producer's settings are a subclass, although this project avoids inheritance: so code that
    takes either class reads the same field names.
    """

    bootstrap_servers: tuple[BrokerAddress, ...]
    client_id: str
    request_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    reconnect_backoff_ms: int
    reconnect_backoff_max_ms: int
    connections_max_idle_ms: int
    socket_connection_setup_timeout_ms: int
    socket_connection_setup_timeout_max_ms: int
    security_protocol: str
    sasl_mechanism: str
    sasl_username: str
    sasl_password: str
    ssl_truststore_location: str
    ssl_keystore_location: str
    ssl_key_location: str
    ssl_key_password: str
    ssl_endpoint_identification_algorithm: str

    def __repr__(self) -> str:
        shown = (
            f"{each.name}={'***' if 'password' in each.name else getattr(self, each.name)!r}"
            for each in fields(self)
        )
        return f"{type(self).__name__}({', '.join(shown)})"


def parse_client_config(given: Mapping[str, object]) -> ClientConfig:
    """The settings of a client that only reads, from names and values; see `typed_settings`.

    Raises:
        ConfigError: unknown names with similar known ones, bad values, and settings that contradict
            each other; all of them at once.
    """
    faults: list[str] = []
    typed = typed_settings(
        (*CONNECTION_SETTINGS, *SECURITY_SETTINGS), settings_texts(given), faults=faults
    )
    if faults:
        raise ConfigError(faults)
    return ClientConfig(**typed)


def typed_settings(
    declared: Iterable[Setting], texts: Mapping[str, str], *, faults: list[str]
) -> dict[str, Any]:
    """Every declared setting by its name with underscores, the brokers as addresses.

    Faults of single values and pairs that the declared ranges do not cover are added to `faults`.

    Raises:
        ConfigError: unknown names and values out of range, all of them.
    """
    values = parse_settings(declared, texts, hints=HINTS)
    typed: dict[str, Any] = {name.replace(".", "_"): value for name, value in values.items()}
    try:
        typed["bootstrap_servers"] = parse_bootstrap(
            str(values["bootstrap.servers"]), security_protocol=str(values["security.protocol"])
        )
    except ConfigError as error:
        faults += [each.removeprefix("kafka.") for each in error.faults]
    if str(values["security.protocol"]).startswith("SASL") and not values["sasl.username"]:
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
