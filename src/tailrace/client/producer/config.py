"""`ProducerConfig`: the settings of one producer, parsed and checked against each other.

Names, defaults and ranges are Kafka's; times are ms, sizes bytes. Names may be written dotted or
with underscores.
"""

import logging
from collections.abc import Mapping
from itertools import count
from math import ceil
from typing import Any, ClassVar, Final

from tailrace.client.config import RecordsConfig, given_settings, typed_settings
from tailrace.client.foreign import Client
from tailrace.client.producer.partitioners import DEFAULT_RULE, KEY_RULES
from tailrace.config import Setting, setting, settings_of
from tailrace.config.settings import INT32_MAX, INT64_MAX, Value, settings_by_key
from tailrace.errors import ConfigError
from tailrace.model import Acks, Codec
from tailrace.records.codecs import LEVELS
from tailrace.values import dataclass

log = logging.getLogger(__name__)

# A leader remembers the last five batches of each producer; an older duplicate it would refuse.
_IDEMPOTENT_IN_FLIGHT_MAX: Final = 5
_numbers = count(1)


def _level_setting(codec: Codec) -> Setting:
    """The level of one codec, by Kafka's name."""
    levels = LEVELS[codec]

    def is_level(value: Value) -> bool:
        return value == -1 or value in levels

    return Setting(
        name=f"compression.{codec.label}.level",
        default=-1,
        is_allowed=is_level,
        rule_text=f"{levels}; -1 for the default",
        text=f"`compression.level` where `compression.type` is {codec.label}.",
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class ProducerConfig(RecordsConfig):
    """Settings of one producer, checked against each other."""

    client: ClassVar[Client] = Client.PRODUCER

    acks: Acks = setting(
        "acks",
        default="all",
        choices=("all", "-1", "1", "0"),
        convert=lambda text: Acks(-1 if text == "all" else int(text)),
        text=(
            "Which replicas must have a batch before it is acknowledged: all in sync (all, -1), "
            "the leader (1), none (0)."
        ),
    )
    enable_idempotence: bool = setting(
        "enable.idempotence",
        default=True,
        text="Write each record exactly once and in order, however often it has to be sent.",
    )
    retries: int = setting(
        "retries",
        default=INT32_MAX,
        low=0,
        high=INT32_MAX,
        text="How often a batch is sent again; `delivery.timeout.ms` is the better bound.",
    )
    max_in_flight_requests_per_connection: int = setting(
        "max.in.flight.requests.per.connection",
        default=5,
        low=1,
        high=INT32_MAX,
        text=(
            "Unanswered requests per connection at a time; idempotence keeps the order with at "
            "most 5."
        ),
    )
    batch_size: int = setting(
        "batch.size",
        default=1000000,
        low=0,
        high=INT32_MAX,
        convert=lambda size: max(1, size),  # Kafka takes 0, for batches of one record.
        text=(
            "Bytes up to which a batch is filled. A batch takes memory only as it grows, so the "
            "default can be larger than Kafka's 16384."
        ),
    )
    linger_ms: float = setting(
        "linger.ms",
        default=5.0,
        low=0,
        high=INT64_MAX,
        text=(
            "How long a batch waits for more records; may have a fraction. It is sent earlier if a "
            "caller waits for a receipt."
        ),
    )
    buffer_memory: int = setting(
        "buffer.memory",
        default=33554432,
        low=0,
        high=INT64_MAX,
        text=(
            "Bytes of memory for records that are not acknowledged yet; `send` waits when it "
            "is full."
        ),
    )
    max_block_ms: int = setting(
        "max.block.ms",
        default=60000,
        low=0,
        high=INT64_MAX,
        text="How long `send` may wait for memory and for metadata.",
    )
    max_request_size: int = setting(
        "max.request.size",
        default=1048576,
        low=0,
        high=INT32_MAX,
        text="Largest request, and so the largest record too.",
    )
    delivery_timeout_ms: int = setting(
        "delivery.timeout.ms",
        default=120000,
        low=0,
        high=INT32_MAX,
        text="Longest time from `send` until a record is acknowledged or fails.",
    )
    compression_type: Codec = setting(
        "compression.type",
        default="none",
        choices=tuple(codec.label for codec in Codec),
        convert=lambda label: Codec[label.upper()],
        text="Codec of the batches.",
    )
    compression_level: int | None = setting(
        "compression.level",
        default=-1,
        low=min(levels.low for levels in LEVELS.values()),
        high=max(levels.high for levels in LEVELS.values()),
        convert=lambda level: None if level == -1 else level,
        text="Compression level of the codec ("
        + "; ".join(f"{codec.label}: {levels}" for codec, levels in LEVELS.items())
        + "); -1 for the codec's default.",
    )
    compression_levels: Mapping[Codec, int] = settings_by_key(
        {codec: _level_setting(codec) for codec in LEVELS}
    )
    partitioner: str = setting(
        "partitioner",
        default=DEFAULT_RULE,
        choices=tuple(KEY_RULES),
        text=(
            "The rule that chooses a partition by the key, by librdkafka's names; with `_random` "
            "records without a key go anywhere, a batch at a time, and else where an empty key "
            "goes. `consistent_random` is the default of librdkafka, `murmur2_random` that of all "
            "other clients. For a rule of your own pass `partitioner=` to the producer."
        ),
    )
    partitioner_adaptive_partitioning_enable: bool = setting(
        "partitioner.adaptive.partitioning.enable",
        default=True,
        text="Prefer partitions with short queues for records without a key.",
    )
    partitioner_availability_timeout_ms: int = setting(
        "partitioner.availability.timeout.ms",
        default=0,
        low=0,
        high=INT64_MAX,
        text=(
            "Avoid the partitions of a broker that has taken no request for so long, for records "
            "without a key; 0 never."
        ),
    )
    partitioner_ignore_keys: bool = setting(
        "partitioner.ignore.keys",
        default=False,
        text="Choose the partition as if records had no key.",
    )
    metadata_max_idle_ms: int = setting(
        "metadata.max.idle.ms",
        default=300000,
        low=5000,
        high=INT64_MAX,
        text="Forget the metadata of a topic to which nothing was sent for so long.",
    )
    transactional_id: str | None = setting(
        "transactional.id",
        default="",
        convert=lambda text: text or None,
        text="Identifies the producer across restarts; needed for transactions.",
    )
    transaction_timeout_ms: int = setting(
        "transaction.timeout.ms",
        default=60000,
        low=1,
        high=INT32_MAX,
        text="The coordinator aborts a transaction that stays open for longer.",
    )


PRODUCER_SETTINGS = settings_of(ProducerConfig)
"""All settings of a producer."""


def parse_producer_config(
    given: object, more: Mapping[str, object] | None = None
) -> ProducerConfig:
    """The settings of a producer from names and values; the rest have their defaults.

    See `given_settings` for what `given` and `more` may be.

    Raises:
        TypeError: `given` is no mapping.
        ConfigError: unknown names with what may have been meant, bad values, and settings that
            contradict each other; all of them at once.
    """
    faults: list[str] = []
    texts = given_settings(given, more, faults=faults)
    typed = typed_settings(ProducerConfig, texts, faults=faults)
    _check_level(typed, faults)
    typed["client_id"] = (
        typed["client_id"] or f"producer-{typed['transactional_id'] or next(_numbers)}"
    )
    _check_idempotence(typed, texts, faults)
    _check_delivery(typed, texts, faults)
    if faults:
        raise ConfigError(faults)
    return ProducerConfig(**typed)


def _check_level(typed: dict[str, Any], faults: list[str]) -> None:
    """Take the level of the codec that is used, from one of its two names, and check it."""
    codec = typed["compression_type"]
    # compression.gzip.level and others are Kafka's (KIP-390), compression.level is librdkafka's.
    level = typed["compression_levels"].get(codec, -1)
    if level == -1:
        level = typed["compression_level"]
    elif typed["compression_level"] not in {None, level}:
        faults.append(
            f"compression.level: compression.{codec.label}.level has another value; give one of "
            "them"
        )
    typed["compression_level"] = level
    if level is not None and codec in LEVELS and level not in LEVELS[codec]:
        faults.append(f"compression.level: {level} is no level of {codec.label} ({LEVELS[codec]})")


def _check_idempotence(typed: dict[str, Any], given: Mapping[str, str], faults: list[str]) -> None:
    """Check what idempotence needs: acks=all, retries, and at most 5 requests in flight.

    Otherwise it is a fault if idempotence was asked for; else idempotence is turned off.
    """
    # As in Kafka since KIP-679: idempotence is the default, and gives way to settings that exclude
    # it unless it was asked for.
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


def _check_delivery(typed: dict[str, Any], given: Mapping[str, str], faults: list[str]) -> None:
    # As in Kafka: a batch must be able to linger and to be asked about once before it expires.
    least = min(INT32_MAX, ceil(typed["linger_ms"]) + typed["request_timeout_ms"])
    if typed["delivery_timeout_ms"] < least:
        if "delivery.timeout.ms" in given:
            faults.append(
                f"delivery.timeout.ms: must be at least linger.ms + request.timeout.ms ({least})"
            )
        typed["delivery_timeout_ms"] = least
