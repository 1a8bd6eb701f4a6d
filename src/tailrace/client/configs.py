"""Settings of topics at their brokers: read them, and change single ones.

Not here: the client's own settings; see `config`.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from tailrace.client.errors import raise_for
from tailrace.client.metadata import ClusterReader
from tailrace.protocol.config_resources import ConfigOperation, ConfigSource, ResourceType
from tailrace.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from tailrace.protocol.messages.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """One setting of a topic."""

    name: str
    value: str | None
    """None if the broker keeps it secret, or it has none."""
    source: int
    """A `ConfigSource`, or a number that this version does not know."""

    @property
    def is_own(self) -> bool:
        """Whether the topic has a value of its own, where others have the broker's."""
        return self.source == ConfigSource.TOPIC


def topic_configs(
    cluster: ClusterReader, topics: Collection[str]
) -> dict[str, tuple[TopicConfig, ...]]:
    """All settings of each topic, by its name.

    Raises:
        UnreachableBrokerError: no broker of the list answers.
        RemoteRetriableError, RemoteFatalError: the broker refuses.
    """
    if not topics:
        return {}
    request = DescribeConfigsRequest(
        resources=tuple(
            DescribeConfigsResource(
                resource_type=ResourceType.TOPIC, resource_name=each, configuration_keys=None
            )
            for each in topics
        )
    )

    def ask() -> dict[str, tuple[TopicConfig, ...]]:
        broker = cluster.any_broker()
        found = {}
        for each in broker.request(request, DescribeConfigsResponse).results:
            about = f"settings of topic {each.resource_name} at {broker.address}"
            raise_for(each.error_code, about=about)
            found[each.resource_name] = tuple(
                TopicConfig(name=config.name, value=config.value, source=config.config_source)
                for config in each.configs
            )
        return found

    return cluster.retrying(ask)


def alter_topic_configs(
    cluster: ClusterReader, topic: str, *, values: Mapping[str, str], unset: Iterable[str] = ()
) -> None:
    """Give settings of a topic new values; those in `unset` get the broker's default again.

    All of them change, or none.

    Raises:
        UnreachableBrokerError: no broker of the list answers.
        UnsupportedBrokerError: the broker cannot change single settings (before Kafka 2.3).
        RemoteRetriableError, RemoteFatalError: the broker refuses, for example a value.
    """
    changes = [
        IncrementalAlterableConfig(name=name, config_operation=ConfigOperation.SET, value=value)
        for name, value in values.items()
    ] + [
        IncrementalAlterableConfig(name=name, config_operation=ConfigOperation.DELETE, value=None)
        for name in unset
    ]
    request = IncrementalAlterConfigsRequest(
        resources=(
            IncrementalAlterConfigsResource(
                resource_type=ResourceType.TOPIC, resource_name=topic, configs=tuple(changes)
            ),
        )
    )

    def ask() -> None:
        broker = cluster.any_broker()
        for each in broker.request(request, IncrementalAlterConfigsResponse).responses:
            said = f": {each.error_message}" if each.error_message else ""
            raise_for(each.error_code, about=f"topic {topic} at {broker.address}{said}")

    cluster.retrying(ask)
