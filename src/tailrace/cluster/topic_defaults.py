"""The broker's defaults for topics: what it was started with, and over that the cluster's state.

    server.properties  <  settings of all brokers  <  settings of this broker        (KIP-226)

The last two are ConfigRecords of the metadata log, which Kafka's tools set while a broker runs.
Those that are defaults of topics have their effect here; retention is among them, and a topic would
lose records that Kafka would have kept.
"""

from collections.abc import Mapping
from types import MappingProxyType

from tailrace.cluster.metadata.image import MetadataImage
from tailrace.protocol.config_resources import ConfigSource
from tailrace.storage.config import BROKER_DEFAULTED, usable_configs
from tailrace.values import dataclass, field, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDefaults:
    """The broker's defaults for new topics."""

    partition_count: int
    replication_factor: int
    given: Mapping[str, str]
    """The settings that the broker was started with, by the name of the topic setting."""
    dynamic: Mapping[ConfigSource, Mapping[str, str]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    """Settings of the cluster's state, by where they are set; a later one goes over an earlier."""

    @property
    def configs(self) -> Mapping[str, str]:
        """The defaults that have an effect, by the name of the topic setting."""
        # Kafka's order of precedence (KIP-226): a later one goes over an earlier.
        found = dict(self.given)
        for settings in self.dynamic.values():
            found |= settings
        return found

    def with_state(self, image: MetadataImage, node_id: int) -> "TopicDefaults":
        """The defaults with what the cluster's state has for all brokers and for this one."""
        return self.with_changes(*image.broker_configs(node_id))

    def with_changes(
        self, of_all: Mapping[str, str], of_this: Mapping[str, str]
    ) -> "TopicDefaults":
        """The defaults with changes of all brokers and of this one, by the brokers' names."""
        found = {
            ConfigSource.DYNAMIC_DEFAULT_BROKER: _of_topics(of_all),
            ConfigSource.DYNAMIC_BROKER: _of_topics(of_this),
        }
        return replace(self, dynamic={source: own for source, own in found.items() if own})


def _of_topics(stored: Mapping[str, str]) -> Mapping[str, str]:
    named = {each.name: each.broker_name or each.name for each in BROKER_DEFAULTED}
    return usable_configs({topic: stored[name] for topic, name in named.items() if name in stored})
