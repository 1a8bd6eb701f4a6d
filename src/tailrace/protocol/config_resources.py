"""Numbers in the requests about settings: kinds of resources, sources of values, operations."""

from enum import IntEnum


class ResourceType(IntEnum):
    """Kinds of resources with settings, by Kafka's number."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


RESOURCE_TYPES = frozenset(ResourceType)
"""Every kind of resources of Kafka."""


class ConfigSource(IntEnum):
    """The source of a value, by Kafka's number."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    """A setting of one broker that was changed while it ran."""
    DYNAMIC_DEFAULT_BROKER = 3
    """A setting of all brokers that was changed while they ran."""
    BROKER = 4
    """A setting that the broker was started with."""
    DEFAULT = 5
    BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class ConfigOperation(IntEnum):
    """The operation on one setting, by Kafka's number."""

    SET = 0
    DELETE = 1
    """Removes the resource's value, so that the broker's default applies."""
    APPEND = 2
    SUBTRACT = 3
