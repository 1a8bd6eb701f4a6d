"""Settings of a broker that change while it runs (KIP-226): which they are, and what follows.

    settings of the start  <  changes for all brokers  <  changes for this one

Not here: where the changes are kept (the metadata log), and how they are asked for
(`handlers.broker_configs`).
"""

import logging
from collections.abc import Mapping
from typing import Final

from tailrace.broker.config import (
    BROKER_SETTINGS,
    COARSER,
    CORDONED,
    TOPIC_DEFAULT_SETTINGS,
    BrokerConfig,
    broker_config,
)
from tailrace.broker.listeners import CONNECTION_RATE, CONNECTIONS, limit_names
from tailrace.config.foreign import base_name
from tailrace.errors import ConfigError

logger = logging.getLogger(__name__)

_BY_NAME = {each.name: each for each in BROKER_SETTINGS}

CHANGEABLE: Final = frozenset(each.name for each in TOPIC_DEFAULT_SETTINGS) | {
    CORDONED,
    "group.consumer.assignment.interval.ms",
    "log.cleaner.backoff.ms",
    "log.cleaner.dedupe.buffer.size",
    "log.cleaner.io.buffer.load.factor",
    "log.cleaner.io.buffer.size",
    "log.cleaner.io.max.bytes.per.second",
    "log.cleaner.threads",
    "max.connection.creation.rate",
    "max.connections",
    "max.connections.per.ip",
    "max.connections.per.ip.overrides",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
    "producer.id.expiration.ms",
    "replica.alter.log.dirs.io.max.bytes.per.second",
    "transaction.partition.verification.enable",
}
"""Settings that change while a broker runs (KIP-226): those that do in Kafka, of those here.

The number of recovery threads counts from the next start on, because only starts recover."""

RENEWABLE: Final = frozenset({
    "ssl.key.password", "ssl.keystore.certificate.chain", "ssl.keystore.key",
    "ssl.keystore.location", "ssl.keystore.password", "ssl.keystore.type",
    "ssl.truststore.certificates", "ssl.truststore.location", "ssl.truststore.password",
    "ssl.truststore.type",
})  # fmt: skip
"""Settings of an encrypted listener that change likewise, with its prefix (Kafka: `SslConfigs`)."""

FIXED: Final[Mapping[str, str]] = {
    "listeners": "the ports of a node are opened when it starts",
    "listener.security.protocol.map": "as `listeners`",
}
"""Settings of all listeners that change in Kafka while a broker runs, and why not here."""


def changeable_settings(config: BrokerConfig) -> frozenset[str]:
    """`CHANGEABLE`, with the limits and the certificates of the broker's listeners (KIP-402)."""
    renewable = {
        f"{each.prefix}{name}"
        for each in config.listeners
        if each.is_encrypted
        for name in RENEWABLE
    }
    return CHANGEABLE | limit_names(config.listeners) | renewable


def is_of_one_broker(name: str) -> bool:
    """Whether a change is for one broker only, and refused for all; as in Kafka."""
    base = base_name(name)
    return name == CORDONED or base not in (name, CONNECTIONS, CONNECTION_RATE)


def changed_config(config: BrokerConfig, *layers: Mapping[str, str]) -> BrokerConfig:
    """The settings with changes over those of the start, the last layer on top.

    Raises:
        ConfigError: values out of range, or that contradict each other.
    """
    # From the texts of the start, so that a change is checked together with what it leaves.
    texts, changeable = dict(config.given), changeable_settings(config)
    for layer in layers:
        for name in layer.keys() & changeable:
            # A change of log.retention.ms counts more than hours that the broker was started with.
            for coarser in COARSER.get(name, ()):
                texts.pop(coarser, None)
            texts[name] = layer[name]
    return broker_config(texts)


def usable_changes(
    config: BrokerConfig, of_all: Mapping[str, str], of_this: Mapping[str, str]
) -> BrokerConfig:
    """The settings with changes, as `changed_config`, without those that this release refuses.

    Another broker may have stored them. If the rest contradicts itself, no change counts.
    """
    changeable = changeable_settings(config)
    # Kafka passes them over too: each broker has directories and listeners of its own.
    of_all = {name: text for name, text in of_all.items() if not is_of_one_broker(name)}
    usable = [
        {
            name: layer[name]
            for name in layer
            if name in changeable and _is_usable(name, layer[name])
        }
        for layer in (of_all, of_this)
    ]
    try:
        return changed_config(config, *usable)
    except ConfigError as error:
        # If it ended the start, nobody could change the stored setting any more.
        logger.warning("settings_not_changed reason=%s", error)
        return config


def _is_usable(name: str, text: str) -> bool:
    # The limit of a listener is not declared.
    declared = _BY_NAME.get(name)
    try:
        if declared is not None:
            declared.parse(text)
    except ValueError as error:
        logger.warning("setting_not_changed reason=%s", error)
        return False
    return True
