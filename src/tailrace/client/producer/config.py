"""`ProducerConfig`: the settings of one producer, parsed and checked against each other.

Names may be written dotted or with underscores. `settings` explains each.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

from tailrace.client.config import ClientConfig, typed_settings
from tailrace.client.producer.settings import PRODUCER_SETTINGS
from tailrace.config import settings_texts
from tailrace.config.settings import INT32_MAX
from tailrace.errors import ConfigError
from tailrace.model import Acks, Codec
from tailrace.records.codecs import LEVELS

log = logging.getLogger(__name__)

_IDEMPOTENT_IN_FLIGHT_MAX: Final = 5
_numbers = count(1)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ProducerConfig(ClientConfig):
    """Settings of one producer, checked against each other; see `PRODUCER_SETTINGS`."""

    metadata_max_age_ms: int
    metadata_recovery_strategy: str
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


def parse_producer_config(
    given: object, more: Mapping[str, object] | None = None
) -> ProducerConfig:
    """The settings of a producer from names and values; the rest have their defaults.

    See `settings_texts` for what `given` may be; `more` goes over it.

    Raises:
        TypeError: `given` is no mapping.
        ConfigError: unknown names with what may have been meant, bad values, and settings that
            contradict each other; all of them at once.
    """
    texts = settings_texts(given, more)
    faults: list[str] = []
    typed = typed_settings(PRODUCER_SETTINGS, texts, faults=faults)
    typed["acks"] = Acks(-1 if typed["acks"] == "all" else int(typed["acks"]))
    typed["compression_type"] = Codec[typed["compression_type"].upper()]
    _settle_level(typed, faults)
    typed["transactional_id"] = typed["transactional_id"] or None
    typed["client_id"] = (
        typed["client_id"] or f"producer-{typed['transactional_id'] or next(_numbers)}"
    )
    typed["batch_size"] = max(1, typed["batch_size"])
    _settle_idempotence(typed, texts, faults)
    _settle_delivery(typed, texts, faults)
    if faults:
        raise ConfigError(faults)
    return ProducerConfig(**typed)


def _settle_level(typed: dict[str, Any], faults: list[str]) -> None:
    codec, level = typed["compression_type"], typed["compression_level"]
    if level == -1:
        typed["compression_level"] = None
    elif codec in LEVELS and level not in LEVELS[codec]:
        faults.append(f"compression.level: {level} is no level of {codec.label} ({LEVELS[codec]})")


def _settle_idempotence(typed: dict[str, Any], given: Mapping[str, str], faults: list[str]) -> None:
    """Check what idempotence needs: acks=all, retries, and at most 5 requests in flight.

    Otherwise it is a fault if idempotence was asked for; else idempotence is turned off.
    """
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
                "idempotence_disabled client_id=%s effect=records may be written twice or out of "
                "order reason=%s",
                typed["client_id"],
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
