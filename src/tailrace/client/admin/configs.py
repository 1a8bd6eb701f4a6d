"""Settings of topics, brokers and groups, at their brokers: read them, and change single ones.

    topic = ConfigResource(ResourceType.TOPIC, "flights")
    admin.describe_configs([topic]).result(topic)["retention.ms"].value
    admin.incremental_alter_configs({topic: {"retention.ms": 60_000, "cleanup.policy": None}})

Settings of a broker, and its loggers, are asked of that broker; of all others, of any.

Not here: the client's own settings; see `client.config`.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from tailrace.client.admin.items import ItemRequest, ask_one, for_each, many
from tailrace.client.admin.outcomes import Outcomes
from tailrace.client.calls import Call
from tailrace.client.drive.steps import Steps
from tailrace.client.routes import ANY, Target, broker
from tailrace.client.short_repr import short_repr
from tailrace.config import settings_texts
from tailrace.config.sources import dotted_name
from tailrace.errors import kind_of
from tailrace.protocol.config_resources import (
    ConfigOperation,
    ConfigSource,
    ResourceType,
)
from tailrace.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from tailrace.protocol.messages.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from tailrace.protocol.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from tailrace.values import dataclass


class ConfigResource(NamedTuple):
    """A thing with settings."""

    type: int
    """A `ResourceType`, or another number of Kafka's."""
    name: str
    """The topic, the group, or the broker's number; empty: the default of all brokers."""

    def __str__(self) -> str:
        # A newer broker may list kinds of resources that this version has no name for.
        kind = ResourceType(self.type).name.lower() if self.type in set(ResourceType) else self.type
        return f"{kind} {self.name or 'default'}"


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """A setting from which another gets its value, if nothing before it does."""

    name: str
    value: str | None
    """Its value; None if it is secret, or it has none."""
    source: int
    """A `ConfigSource`, or a number that this version does not know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    """One setting."""

    name: str
    value: str | None
    """None if the broker keeps it secret, or it has none."""
    source: int
    """A `ConfigSource`, or a number that this version does not know."""
    is_read_only: bool = False
    """Whether it cannot be changed while the broker runs."""
    is_sensitive: bool = False
    """Whether its value is secret."""
    synonyms: tuple[ConfigSynonym, ...] = ()
    """The sources of the value, in the order in which they count."""
    type: int = 0
    """The type of the value, by Kafka's number; 0: not known."""
    # KIP-569: brokers before Kafka 2.6 send neither this nor the type.
    documentation: str | None = None
    """The broker's description of it."""

    __repr__ = short_repr

    @property
    def is_own(self) -> bool:
        """Whether the topic or group has a value of its own, where others have the broker's."""
        return self.source in (ConfigSource.TOPIC, ConfigSource.GROUP)

    @property
    def is_default(self) -> bool:
        """Whether the value is Kafka's default."""
        return self.source == ConfigSource.DEFAULT


class ConfigChange(NamedTuple):
    """A change of one setting."""

    name: str
    value: object = None
    """The new value, or what is put into a list or taken from it."""
    operation: ConfigOperation = ConfigOperation.SET


def describe_configs(
    call: Call,
    resources: Iterable[ConfigResource],
    *,
    names: Iterable[str] | None = None,
    include_synonyms: bool = False,
    include_documentation: bool = False,
) -> Steps[Outcomes[ConfigResource, dict[str, ConfigEntry]]]:
    """The settings of each resource by name: all, or those in `names`.

    Repeated after a lost connection.

    Raises:
        TypeError: `resources` is no list of `ConfigResource`.
    """
    wanted = _resources(resources)
    keys = None if names is None else tuple(names)
    request: ItemRequest[ConfigResource, dict[str, ConfigEntry], DescribeConfigsResponse]
    request = ItemRequest(
        what="settings of",
        target=_target,
        request=lambda batch: DescribeConfigsRequest(
            resources=tuple(
                DescribeConfigsResource(
                    resource_type=each.type, resource_name=each.name, configuration_keys=keys
                )
                for each in batch
            ),
            include_synonyms=include_synonyms,
            include_documentation=include_documentation,
        ),
        response=DescribeConfigsResponse,
        entries=lambda answer, _: _of_resources(answer.results),
        value=lambda _, found: {each.name: _entry(each) for each in found.configs},
    )
    return (yield from for_each(call, wanted, request))


def incremental_alter_configs(
    call: Call,
    changes: Mapping[ConfigResource, Mapping[str, object] | Iterable[ConfigChange]],
    *,
    validate_only: bool = False,
) -> Steps[Outcomes[ConfigResource, None]]:
    """Change single settings of each resource, all of them or none; the other settings stay.

    A mapping sets values; None gives the default again. `ConfigChange` can also put values into a
    list and take them from it. With `validate_only` the changes are checked and nothing changes.
    Repeated after a lost connection: a second request sets the same again.

    Raises:
        TypeError: a resource is no `ConfigResource`, or a value is of no kind that settings have.
    """
    # Not AlterConfigs, which gives each setting that is not named its default (KIP-339).
    wanted = {each: tuple(_changes(each, changes[each])) for each in _resources(changes)}
    request: ItemRequest[ConfigResource, None, IncrementalAlterConfigsResponse]
    request = ItemRequest(
        what="settings of",
        target=_target,
        request=lambda batch: IncrementalAlterConfigsRequest(
            resources=tuple(
                IncrementalAlterConfigsResource(
                    resource_type=each.type, resource_name=each.name, configs=wanted[each]
                )
                for each in batch
            ),
            validate_only=validate_only,
        ),
        response=IncrementalAlterConfigsResponse,
        entries=lambda answer, _: _of_resources(answer.responses),
    )
    return (yield from for_each(call, wanted, request))


def list_config_resources(
    call: Call, types: Iterable[int] = ()
) -> Steps[tuple[ConfigResource, ...]]:
    """The resources that may have settings, of these types or of all, in order.

    A broker before Kafka 4.1 lists subscriptions to client metrics only, and refuses types.

    Raises:
        UnsupportedBrokerError: the broker lacks the API (before Kafka 3.7), or types.
        RemoteFatalError: the broker refuses.
        OperationTimeoutError: no answer within the time limit.
    """
    asked = ListConfigResourcesRequest(resource_types=tuple(types))
    # Version 0 has no types, and would list client metrics whatever was asked for.
    only_metrics = asked.resource_types == (ResourceType.CLIENT_METRICS,)
    request: ItemRequest[str, tuple[ConfigResource, ...], ListConfigResourcesResponse]
    request = ItemRequest(
        what="the resources",
        target=ANY,
        request=lambda _: ListConfigResourcesRequest() if only_metrics else asked,
        response=ListConfigResourcesResponse,
        value=lambda _, answer: tuple(
            sorted(
                ConfigResource(each.resource_type, each.resource_name)
                for each in answer.config_resources
            )
        ),
        first_version=1 if asked.resource_types and not only_metrics else 0,
    )
    found = yield from ask_one(call, request)
    if only_metrics:
        return tuple(each for each in found if each.type == ResourceType.CLIENT_METRICS)
    return found


def _of_resources(entries: Iterable[Any]) -> Iterator[tuple[ConfigResource, Any]]:
    for each in entries:
        yield ConfigResource(each.resource_type, each.resource_name), each


def _resources(resources: object) -> list[ConfigResource]:
    found = []
    for each in many(resources, what="resources"):
        if not isinstance(each, tuple) or len(each) != 2 or not isinstance(each[1], str):
            raise TypeError(f"resources has {kind_of(each)}; each has to be a ConfigResource")
        found.append(ConfigResource(*each))
    return found


def _target(resource: ConfigResource) -> Target:
    # A broker knows its own settings alone; the default of all brokers, every broker.
    is_of_one = resource.type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER)
    if is_of_one and resource.name.isascii() and resource.name.isdigit():
        return broker(int(resource.name))
    return ANY


def _changes(
    resource: ConfigResource, given: Mapping[str, object] | Iterable[ConfigChange]
) -> Iterator[IncrementalAlterableConfig]:
    changes = given
    if isinstance(given, Mapping):
        changes = [
            ConfigChange(
                name, value, ConfigOperation.DELETE if value is None else ConfigOperation.SET
            )
            for name, value in given.items()
        ]
    for each in many(changes, what=f"the changes of {resource}"):
        if not isinstance(each, ConfigChange):
            raise TypeError(
                f"the changes of {resource} have {kind_of(each)}; each has to be a ConfigChange"
            )
        name, value, operation = each
        # Names of loggers may have underscores.
        dotted = name if resource.type == ResourceType.BROKER_LOGGER else dotted_name(name)
        yield IncrementalAlterableConfig(
            name=dotted,
            config_operation=operation,
            # As the settings of clients: True is "true", a list has commas.
            value=settings_texts({dotted: value}).get(dotted_name(dotted)),
        )


def _entry(config: DescribeConfigsResourceResult) -> ConfigEntry:
    return ConfigEntry(
        name=config.name,
        value=config.value,
        source=config.config_source,
        is_read_only=config.read_only,
        is_sensitive=config.is_sensitive,
        synonyms=tuple(
            ConfigSynonym(each.name, each.value, each.source) for each in config.synonyms
        ),
        type=config.config_type,
        documentation=config.documentation,
    )
