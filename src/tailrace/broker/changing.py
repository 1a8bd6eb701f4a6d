"""Settings of a broker that change while it runs (KIP-226): which they are, and what follows.

    settings of the start  <  changes for all brokers  <  changes for this one

Listeners come and go while a broker runs, with settings of their own; one that is open keeps them,
but for its limits and its certificates. Kafka takes a change of the others without an effect; here
it is refused, or `ssl.client.auth=required` would protect nothing. As in Kafka 4.3
(`DynamicListenerConfig`) `advertised.listeners` does not change, so one that is advertised cannot
be removed.

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
    parsed_config,
)
from tailrace.broker.listeners import CONNECTION_RATE, CONNECTIONS, Listener
from tailrace.config.foreign import base_name
from tailrace.config.providers import refers
from tailrace.errors import ConfigError
from tailrace.security.listener_config import LISTENER_TLS_SETTINGS
from tailrace.security.sasl_config import JAAS, SASL_SETTINGS

logger = logging.getLogger(__name__)

_BY_NAME = {each.name: each for each in BROKER_SETTINGS}

OF_NEW_LISTENERS: Final = frozenset({
    "sasl.enabled.mechanisms", "sasl.kerberos.principal.to.local.rules",
    "sasl.kerberos.service.name", "ssl.cipher.suites", "ssl.client.auth", "ssl.enabled.protocols",
    "ssl.endpoint.identification.algorithm", "ssl.protocol",
})  # fmt: skip
"""Settings whose changes count for listeners that come by a change, and not for those that are
open, as in Kafka."""

OF_THIS_BROKER: Final = OF_NEW_LISTENERS | {
    CORDONED,
    "listener.security.protocol.map",
    "listeners",
}
"""Settings that a broker changes for itself alone: it has directories and listeners of its own."""

CHANGEABLE: Final = (
    OF_THIS_BROKER
    | frozenset(each.name for each in TOPIC_DEFAULT_SETTINGS)
    | {
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
)
"""Settings that change while a broker runs (KIP-226): those that do in Kafka, of those here.

The number of recovery threads counts from the next start on, because only starts recover."""

RENEWABLE: Final = frozenset({
    "ssl.key.password", "ssl.keystore.certificate.chain", "ssl.keystore.key",
    "ssl.keystore.location", "ssl.keystore.password", "ssl.keystore.type",
    "ssl.truststore.certificates", "ssl.truststore.location", "ssl.truststore.password",
    "ssl.truststore.type",
})  # fmt: skip
"""Settings of an encrypted listener that change while it is open, with its prefix (Kafka:
`SslConfigs`)."""

_OF_OPEN_LISTENERS: Final = RENEWABLE | {CONNECTIONS, CONNECTION_RATE}
_OF_LISTENERS: Final = (
    _OF_OPEN_LISTENERS | {JAAS} | {each.name for each in (*LISTENER_TLS_SETTINGS, *SASL_SETTINGS)}
)
"""Settings that a single listener may have, without its prefix."""

FIXED: Final[Mapping[str, str]] = {
    "config.providers": "values are looked up at a start",
    "sasl.mechanism.inter.broker.protocol": "brokers log in to each other as they did at the start",
}
"""Settings of all listeners that change in Kafka while a broker runs, and why not here."""


def is_changeable(name: str) -> bool:
    """Whether a setting, which may be of a single listener, changes while a broker runs.

    Those of a listener that is open may be refused all the same; see `check_listeners`.
    """
    base = base_name(name)
    return name in CHANGEABLE or (base != name and base in _OF_LISTENERS)


def is_of_one_broker(name: str) -> bool:
    """Whether a change is for one broker only, and refused for all; as in Kafka."""
    base = base_name(name)
    return name in OF_THIS_BROKER or base not in (name, CONNECTIONS, CONNECTION_RATE)


def check_listeners(before: BrokerConfig, after: BrokerConfig) -> None:
    """Check that the listeners of a running broker can be changed.

    Raises:
        ConfigError: one that is advertised would go, or one that is open would change; the words
            are Kafka's.
    """
    faults = []
    names = [each.name for each in after.listeners]
    advertised = [each.name for each in before.listeners if each.is_advertised]
    if not set(advertised) <= set(names):
        faults.append(
            f"Advertised listeners '{', '.join(advertised)}' must be a subset of listeners "
            f"'{', '.join(names)}'; only a restart changes advertised.listeners"
        )
    new = {each.name: each for each in after.listeners}
    for old in before.listeners:
        if old.name not in new:
            continue
        if new[old.name].protocol != old.protocol:
            faults.append(
                f"Security protocol cannot be updated for existing listener {old.name}: it is "
                f"{old.protocol}"
            )
        elif _fixed(old, before) != _fixed(old, after):
            faults.append(
                f"Configs cannot be updated dynamically for existing listener {old.name}, restart "
                "broker or create a new listener for update"
            )
    if faults:
        raise ConfigError(faults)


def _fixed(listener: Listener, config: BrokerConfig) -> dict[str, str]:
    """The settings of a listener that do not change while it is open."""
    return {
        name: text
        for name, text in {**config.given, **config.ignored}.items()
        if name.startswith(listener.prefix) and base_name(name) not in _OF_OPEN_LISTENERS
    }


def changed_config(config: BrokerConfig, *layers: Mapping[str, str]) -> BrokerConfig:
    """The settings with changes over those of the start, the last layer on top.

    Raises:
        ConfigError: values out of range, or that contradict each other.
    """
    # It would be a password that everybody knows.
    faults = [
        f"{name}: values of config.providers are looked up at a start; give the value itself"
        for layer in layers
        for name, text in layer.items()
        if refers(text, config.providers)
    ]
    if faults:
        raise ConfigError(faults)
    # From the texts of the start, so that a change is checked together with what it leaves.
    texts = {**config.given, **config.ignored}
    for layer in layers:
        for name in filter(is_changeable, layer):
            # A change of log.retention.ms counts more than hours that the broker was started with.
            for coarser in COARSER.get(name, ()):
                texts.pop(coarser, None)
            texts[name] = layer[name]
    return parsed_config(texts)


def usable_changes(
    config: BrokerConfig,
    of_all: Mapping[str, str],
    of_this: Mapping[str, str],
    *,
    in_use: BrokerConfig | None = None,
) -> BrokerConfig:
    """The settings with changes, as `changed_config`, without those that this release refuses.

    Another broker may have stored them, or a controller, which checks little of them. If the rest
    contradicts itself, the settings `in_use` stay, and at a start no change counts.
    """
    # Kafka passes them over too.
    of_all = {name: text for name, text in of_all.items() if not is_of_one_broker(name)}
    usable = [
        {
            name: layer[name]
            for name in layer
            if is_changeable(name) and _is_usable(name, layer[name])
        }
        for layer in (of_all, of_this)
    ]
    try:
        return changed_config(config, *usable)
    except ConfigError as error:
        # If it ended the start, nobody could change the stored setting any more.
        logger.warning("settings_not_changed reason=%s", error)
        return config if in_use is None else in_use


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
