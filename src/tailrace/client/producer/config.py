"""`ProducerConfig`: the settings of one producer, parsed, and checked against each other.

Names may be written dotted or with underscores. What each means stands in `settings`.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, fields
from itertools import count
from typing import Any, Final

from tailrace.client.connection import BrokerAddress
from tailrace.client.metadata import parse_bootstrap
from tailrace.client.producer.settings import INT32_MAX, PRODUCER_SETTINGS
from tailrace.config import Value, parse_settings
from tailrace.errors import ConfigError
from tailrace.model import Acks, Codec

log = logging.getLogger(__name__)

_IDEMPOTENT_IN_FLIGHT_MAX: Final = 5
_numbers = count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig:
    """Settings of one producer, checked against each other; see `PRODUCER_SETTINGS`."""

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
    metadata_max_age_ms: int
    metadata_recovery_strategy: str
    security_protocol: str
    sasl_mechanism: str
    sasl_username: str
    sasl_password: str
    ssl_truststore_location: str
    ssl_keystore_location: str
    ssl_key_location: str
    ssl_key_password: str
    ssl_endpoint_identification_algorithm: str
    acks: Acks
    enable_idempotence: bool
    retries: int
    max_in_flight_requests_per_connection: int
    batch_size: int
    linger_ms: int
    buffer_memory: int
    max_block_ms: int
    max_request_size: int
    delivery_timeout_ms: int
    compression_type: Codec
    compression_level: int | None
    partitioner_adaptive_partitioning_enable: bool
    partitioner_availability_timeout_ms: int
    partitioner_ignore_keys: bool
    metadata_max_idle_ms: int
    transactional_id: str | None
    transaction_timeout_ms: int

    def __repr__(self) -> str:
        shown = (
            f"{each.name}={'***' if 'password' in each.name else getattr(self, each.name)!r}"
            for each in fields(self)
        )
        return f"ProducerConfig({', '.join(shown)})"


def parse_producer_config(given: Mapping[str, object]) -> ProducerConfig:
    """The settings of a producer from names and values; the rest have their defaults.

    Values may be strings, as in a properties file, or Python's own: numbers, booleans, lists.

    Raises:
        ConfigError: unknown names with what may have been meant, bad values, and settings that
            contradict each other; all of them at once.
    """
    texts = {
        name.replace("_", "."): _text(value) for name, value in given.items() if value is not None
    }
    values = parse_settings(PRODUCER_SETTINGS, texts)
    faults: list[str] = []
    typed: dict[str, Any] = {name.replace(".", "_"): value for name, value in values.items()}
    try:
        typed["bootstrap_servers"] = parse_bootstrap(str(values["bootstrap.servers"]))
    except ConfigError as error:
        faults += [each.removeprefix("kafka.") for each in error.faults]
    typed["acks"] = Acks(-1 if values["acks"] == "all" else int(str(values["acks"])))
    typed["compression_type"] = Codec[str(values["compression.type"]).upper()]
    typed["compression_level"] = (
        None if values["compression.level"] == -1 else values["compression.level"]
    )
    typed["transactional_id"] = values["transactional.id"] or None
    typed["client_id"] = (
        values["client.id"] or f"producer-{typed['transactional_id'] or next(_numbers)}"
    )
    typed["batch_size"] = max(1, typed["batch_size"])
    _settle_idempotence(typed, texts, faults)
    _settle_delivery(typed, texts, faults)
    _check_security(values, faults)
    if faults:
        raise ConfigError(faults)
    return ProducerConfig(**typed)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value)


def _settle_idempotence(typed: dict[str, Any], given: Mapping[str, str], faults: list[str]) -> None:
    """Idempotence needs acks=all, retries and at most 5 in flight; asked for, that is a fault."""
    in_the_way = [
        text
        for is_wrong, text in (
            (typed["acks"] is not Acks.ALL, "acks must be all"),
            (typed["retries"] == 0, "retries must not be 0"),
            (
                typed["max_in_flight_requests_per_connection"] > _IDEMPOTENT_IN_FLIGHT_MAX,
                (
                    "max.in.flight.requests.per.connection must be at most "
                    f"{_IDEMPOTENT_IN_FLIGHT_MAX}"
                ),
            ),
        )
        if is_wrong
    ]
    is_asked_for = "enable.idempotence" in given or typed["transactional_id"] is not None
    if typed["enable_idempotence"] and in_the_way:
        if is_asked_for:
            faults += [f"enable.idempotence: {text}" for text in in_the_way]
        else:
            typed["enable_idempotence"] = False
            log.warning(
                "this producer may write records twice or out of order, since %s",
                " and ".join(text.replace("must", "would have to") for text in in_the_way),
            )
    if typed["transactional_id"] is not None and not typed["enable_idempotence"]:
        faults.append("transactional.id: enable.idempotence must be true")


def _settle_delivery(typed: dict[str, Any], given: Mapping[str, str], faults: list[str]) -> None:
    least = min(INT32_MAX, typed["linger_ms"] + typed["request_timeout_ms"])
    if typed["delivery_timeout_ms"] < least:
        if "delivery.timeout.ms" in given:
            faults.append(
                f"delivery.timeout.ms: must be at least linger.ms + request.timeout.ms ({least})"
            )
        typed["delivery_timeout_ms"] = least


def _check_security(values: Mapping[str, Value], faults: list[str]) -> None:
    if str(values["security.protocol"]).startswith("SASL") and not values["sasl.username"]:
        faults.append("sasl.username: must be given with this security.protocol")
