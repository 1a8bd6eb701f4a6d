"""Settings of topics: every name that Apache Kafka 4.3.1 has, with its default and its limits."""

import pytest

from tailrace.broker.config import broker_config
from tailrace.config.settings import INT64_MAX
from tailrace.errors import ConfigError
from tailrace.storage.config import (
    INDEX_BYTES_MIN,
    TOPIC_SETTINGS,
    log_config,
    stored_log_config,
    usable_configs,
)

KAFKA_DEFAULTS = {
    "cleanup.policy": "delete",
    "compression.gzip.level": "-1",
    "compression.lz4.level": "9",
    "compression.type": "producer",
    "compression.zstd.level": "3",
    "delete.retention.ms": "86400000",
    "file.delete.delay.ms": "60000",
    "flush.messages": "9223372036854775807",
    "flush.ms": "9223372036854775807",
    "follower.replication.throttled.replicas": "",
    "index.interval.bytes": "4096",
    "leader.replication.throttled.replicas": "",
    "local.retention.bytes": "-2",
    "local.retention.ms": "-2",
    "max.compaction.lag.ms": "9223372036854775807",
    "max.message.bytes": "1048588",
    "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "min.insync.replicas": "1",
    "preallocate": "false",
    "remote.log.copy.disable": "false",
    "remote.log.delete.on.disable": "false",
    "remote.storage.enable": "false",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
    "segment.index.bytes": "10485760",
    "segment.jitter.ms": "0",
    "segment.ms": "604800000",
    "unclean.leader.election.enable": "false",
}
"""Answer of a Kafka 4.3.1 to DescribeConfigs for a topic without settings of its own."""


def test_every_setting_of_kafka_is_there() -> None:
    """Every setting has Kafka's default, and there is no other setting."""
    found = {setting.name: setting.format(setting.default) for setting in TOPIC_SETTINGS}
    assert found == KAFKA_DEFAULTS


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("remote.storage.enable", "false"),
        ("local.retention.ms", "-2"), ("local.retention.ms", "1000"),
        ("local.retention.bytes", "-1"), ("local.retention.bytes", "1000"),
        ("remote.log.copy.disable", "true"), ("remote.log.delete.on.disable", "true"),
        ("leader.replication.throttled.replicas", ""),
        ("leader.replication.throttled.replicas", "*"),
        ("follower.replication.throttled.replicas", "0:1,1:1"),
        ("cleanup.policy", ""), ("compression.gzip.level", "-1"), ("compression.gzip.level", "9"),
        ("segment.index.bytes", "10"), ("retention.bytes", "-2"),
        ("segment.bytes", "1048576"), ("internal.segment.bytes", "1048575"),
    ],
)  # fmt: skip
def test_a_value_that_kafka_takes_is_taken(name: str, value: str) -> None:
    """Apache Kafka 4.3.1 accepted each of these values."""
    log_config({name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("remote.storage.enable", "true"), ("remote.storage.enable", "x"),
        ("local.retention.ms", "-3"), ("local.retention.bytes", "-3"),
        ("leader.replication.throttled.replicas", "x"),
        ("leader.replication.throttled.replicas", "*,0:1"),
        ("follower.replication.throttled.replicas", "none"),
        ("compression.gzip.level", "0"), ("compression.gzip.level", "10"),
        ("retention.ms", "-2"), ("index.interval.bytes", "-1"), ("segment.index.bytes", "3"),
        ("segment.bytes", "1048575"), ("min.insync.replicas", "2147483648"),
        ("message.format.version", "3.0"), ("message.downconversion.enable", "false"),
    ],
)  # fmt: skip
def test_a_value_that_kafka_refuses_is_refused(name: str, value: str) -> None:
    """Kafka 4.3.1 without tiered storage refused each; the message names the setting."""
    with pytest.raises(ConfigError, match=name):
        log_config({name: value})


def test_a_refused_value_is_told_with_the_rule_and_its_reason() -> None:
    """The message says what is wrong and which value is allowed."""
    with pytest.raises(ConfigError) as raised:
        log_config({"remote.storage.enable": "true"})
    assert (
        "remote.storage.enable: 'true' is not allowed; it must be false, because this broker has "
        "no tiered storage"
    ) in str(raised.value)


def test_an_index_has_room_for_a_roll() -> None:
    """A smaller size is raised; in Kafka each record would have a segment of its own then."""
    assert log_config({"segment.index.bytes": "4"}).segment_index_bytes == INDEX_BYTES_MIN


@pytest.mark.parametrize(
    ("given", "retention_ms"),
    [
        ({"log.retention.hours": "2"}, 7_200_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3", "log.retention.ms": "4"}, 4),
        ({"log.retention.hours": "-1"}, -1),
        ({}, 604_800_000),
    ],
)
def test_the_finest_unit_that_is_given_counts(given: dict[str, str], retention_ms: int) -> None:
    """Milliseconds before minutes before hours, as in Kafka."""
    defaults = broker_config({"log.dirs": "data", **given}).topic_defaults.configs
    assert log_config({}, defaults).retention_ms == retention_ms


def test_rolls_may_be_given_in_hours() -> None:
    """The time of a roll and its jitter may be given in hours."""
    given = {"log.dirs": "data", "log.roll.hours": "3", "log.roll.jitter.hours": "1"}
    config = log_config({}, broker_config(given).topic_defaults.configs)
    assert (config.segment_ms, config.segment_jitter_ms) == (10_800_000, 3_600_000)


def test_a_lag_of_all_time_is_allowed() -> None:
    """An adopted topic has it: compacted by name, and nothing of it goes."""
    config = log_config({"cleanup.policy": "compact", "min.compaction.lag.ms": str(INT64_MAX)})
    assert config.min_compaction_lag_ms == config.max_compaction_lag_ms


@pytest.mark.parametrize(
    ("given", "defaults"),
    [
        ({"max.compaction.lag.ms": "5"}, {"min.compaction.lag.ms": "9"}),
        ({"min.compaction.lag.ms": "9"}, {"max.compaction.lag.ms": "5"}),
        ({}, {"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "5"}),
    ],
)
def test_stored_settings_that_contradict_the_defaults_are_no_error(
    given: dict[str, str], defaults: dict[str, str]
) -> None:
    """Another node has stored them without this broker's defaults; the longer lag counts."""
    config = stored_log_config(given, defaults)
    assert (config.min_compaction_lag_ms, config.max_compaction_lag_ms) == (9, 9)


@pytest.mark.parametrize(
    ("stored", "size_bytes"),
    [
        ({"segment.bytes": "4096"}, 4096),
        ({"internal.segment.bytes": "4096"}, 4096),
        ({"segment.bytes": "2000000", "internal.segment.bytes": "4096"}, 4096),
        ({"segment.bytes": "1"}, 1073741824),
    ],
)
def test_small_segments_of_earlier_releases_stay_small(
    stored: dict[str, str], size_bytes: int
) -> None:
    """They were stored by the usual name; Kafka's own name of them goes over it."""
    assert log_config(usable_configs(stored)).segment_bytes == size_bytes
