"""`MetadataImage`: all that the records of the metadata log say, as an immutable value.

    features, brokers, controllers, topics with their partitions, settings, quotas, producer ids,
    access control entries, SCRAM credentials, delegation tokens

What a record holds whole is kept as the record itself, in its present state; `delta` makes the next
image from this one, `snapshot_records` the records that describe it.

Invariant: mappings are never changed after the image was made. They keep the order in which their
records came, so that a snapshot which was read is written again alike.
"""

import uuid
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from tailrace.values import dataclass, field

if TYPE_CHECKING:
    from tailrace.protocol.metadata_records import (
        AccessControlEntryRecord,
        DelegationTokenRecord,
        PartitionRecord,
        RegisterBrokerRecord,
        RegisterControllerRecord,
        UserScramCredentialRecord,
    )


T = TypeVar("T")

METADATA_VERSION = "metadata.version"
"""Name of the feature whose level says which records and versions may be written."""

_NO_CONFIGS: Final[Mapping[str, str]] = MappingProxyType({})


class ConfigResource(NamedTuple):
    """Owner of settings."""

    type: int
    """2: topic, 4: broker, 16: client metrics, 32: group."""
    name: str
    """The topic, broker id or group; empty: all brokers."""


BROKER_RESOURCE: Final = 4
ALL_BROKERS: Final = ConfigResource(BROKER_RESOURCE, "")
"""Owner of the settings that all brokers have."""
MIN_INSYNC_REPLICAS: Final = "min.insync.replicas"
"""The setting that is one of all brokers where eligible leader replicas are kept (KIP-966)."""


class ImageChange(NamedTuple):
    """The parts in which an image may differ from the one before it; all others are the same.

    Parts without a field here (quotas, users, access control entries, tokens) are the same object
    in both images unless a record has touched them, so `is` tells.
    """

    topics: frozenset[uuid.UUID] | None
    """Ids of topics that were made, changed or removed; None: look at all of them."""
    brokers: bool
    """Whether a registration has come, changed or gone."""
    configs: frozenset[ConfigResource] | None
    """Owners of settings that were set or removed; None: look at all of them."""
    features: bool
    """Whether a level has changed."""

    def with_later(self, later: "ImageChange") -> "ImageChange":
        """Both changes, one after the other, as one."""
        return ImageChange(
            topics=_both(self.topics, later.topics),
            brokers=self.brokers or later.brokers,
            configs=_both(self.configs, later.configs),
            features=self.features or later.features,
        )


def _both(one: frozenset[T] | None, other: frozenset[T] | None) -> frozenset[T] | None:
    return None if one is None or other is None else one | other


EVERYTHING_CHANGED: Final = ImageChange(topics=None, brokers=True, configs=None, features=True)
"""The first image, and one that comes from a snapshot."""
NOTHING_CHANGED: Final = ImageChange(
    topics=frozenset(), brokers=False, configs=frozenset(), features=False
)


class QuotaEntity(NamedTuple):
    """Owner of quotas: a type and a name for each of its parts, in the order of the record."""

    parts: tuple[tuple[str, str | None], ...]
    """`user`, `client-id` or `ip`, and its name; None: the default."""


def quota_entity(
    known: Mapping[QuotaEntity, object], parts: tuple[tuple[str, str | None], ...]
) -> QuotaEntity:
    """The owner with these parts, as it is known if it is: their order differs between records."""
    # Of a user with a client id: two parts, so the other order is the reverse.
    reverse = QuotaEntity(parts[::-1])
    return reverse if reverse in known else QuotaEntity(parts)


class ScramUser(NamedTuple):
    """Owner of a SCRAM credential."""

    mechanism: int
    """1: SCRAM-SHA-256, 2: SCRAM-SHA-512."""
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicState:
    """A topic and its partitions."""

    name: str
    topic_id: uuid.UUID
    partitions: Mapping[int, "PartitionRecord"]
    """By number."""


def _none() -> Mapping[Any, Any]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataImage:
    """The state of a cluster at one offset of its metadata log."""

    features: Mapping[str, int] = field(default_factory=_none)
    """Levels above 0, by feature."""
    zk_migration_state: int | None = None
    """The state of a migration from ZooKeeper, which Kafka 3.4 to 3.9 note; None: nothing is."""
    brokers: Mapping[int, "RegisterBrokerRecord"] = field(default_factory=_none)
    """Registrations as they are now, by broker id."""
    controllers: Mapping[int, "RegisterControllerRecord"] = field(default_factory=_none)
    """Registrations, by controller id."""
    topics: Mapping[uuid.UUID, TopicState] = field(default_factory=_none)
    """By id."""
    # Topics are kept by id, as their records name them; clients ask by name.
    topic_ids: Mapping[str, uuid.UUID] = field(default_factory=_none)
    """Ids of the topics, by name."""
    configs: Mapping[ConfigResource, Mapping[str, str]] = field(default_factory=_none)
    """Own settings of each resource that has some."""
    quotas: Mapping[QuotaEntity, Mapping[str, float]] = field(default_factory=_none)
    """Own quotas of each entity that has some."""
    next_producer_id: int | None = None
    """The first id that no broker has yet; None: no broker has one."""
    acls: Mapping[uuid.UUID, "AccessControlEntryRecord"] = field(default_factory=_none)
    """By the id of the entry."""
    scram: Mapping[ScramUser, "UserScramCredentialRecord"] = field(default_factory=_none)
    """Credentials, by mechanism and user."""
    tokens: Mapping[str, "DelegationTokenRecord"] = field(default_factory=_none)
    """By token id."""

    @property
    def metadata_version(self) -> int:
        """The level of `metadata.version`; 0 before the first record of it."""
        return self.features.get(METADATA_VERSION, 0)

    def topic(self, name: str) -> TopicState | None:
        topic_id = self.topic_ids.get(name)
        return None if topic_id is None else self.topics[topic_id]

    def configs_of(self, kind: int, name: str) -> Mapping[str, str]:
        """The own settings of a resource."""
        return self.configs.get(ConfigResource(kind, name), _NO_CONFIGS)

    def broker_configs(self, node_id: int) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """The settings of all brokers, and those of one broker, which count more (KIP-226)."""
        own = ConfigResource(BROKER_RESOURCE, str(node_id))
        return self.configs.get(ALL_BROKERS, _NO_CONFIGS), self.configs.get(own, _NO_CONFIGS)
