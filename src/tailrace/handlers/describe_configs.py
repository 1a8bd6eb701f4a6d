"""Settings as clients see them: of one resource, and the names of all that have some."""

from collections.abc import Awaitable, Iterable, Iterator
from functools import partial
from typing import Final

from tailrace.cluster.topic_rules import check_topic_name
from tailrace.errors import TailraceError
from tailrace.handlers.broker_configs import BrokerEntry, broker_entries, type_of
from tailrace.handlers.broker_loggers import logger_levels
from tailrace.handlers.client_metrics import subscription_entries, subscriptions
from tailrace.handlers.config_entries import ConfigEntry, ConfigValue
from tailrace.handlers.configs import check_types, find_topic, topic_entries
from tailrace.handlers.group_configs import group_entries
from tailrace.handlers.services import (
    InvalidRequestError,
    Services,
    error_code,
    error_message,
)
from tailrace.handlers.views import view_of
from tailrace.protocol.answers import PARTS_INLINE_MAX, LongAnswer
from tailrace.protocol.config_resources import RESOURCE_TYPES, ConfigSource, ResourceType
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from tailrace.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from tailrace.runtime.slices import Slices, each_in_slices

CONFIGS_PER_RESOURCE: Final = 50
"""About how many settings a topic has in an answer. A broker has 350, and is answered once."""

_UNSET_BY_DEFAULT = frozenset({"log.retention.ms", "log.roll.ms", "log.roll.jitter.ms"})
"""Settings that have no default in Kafka, where those in hours or minutes have one."""


def handle_describe_configs(
    services: Services, _: RequestHeader, request: DescribeConfigsRequest
) -> Awaitable[DescribeConfigsResponse] | LongAnswer:
    """DescribeConfigs (32): the settings of topics, groups, brokers and loggers.

    Versions: 1 to 4.
    Behaviour: every setting, or the named ones; unknown names are ignored, and an empty list means
        all, as in Kafka. A topic's values are its own, those that the cluster's state has for this
        broker or for all brokers, those that this broker was started with, or Kafka's defaults. A
        broker's values are one of the last four; all names of Kafka's settings are there, and those
        that do not change while a broker runs, or have no effect here, are read-only. Values in
        other units are synonyms, listeners have the form of Kafka, passwords no value. The broker
        with an empty name has what is set for all brokers. Loggers are those of this process;
        subscriptions to metrics of clients and groups need not exist, and groups have their own
        values or the broker's. Refused: unknown topics (UNKNOWN_TOPIC_OR_PARTITION), invalid topic
        names (INVALID_TOPIC_EXCEPTION), other brokers, names that are empty and other resources
        (INVALID_REQUEST). A type of resources that Kafka does not have is INVALID_REQUEST for every
        resource of the request.
    Version notes: from v3 on the types of settings, and documentation if the request asks for it.
    Not done: settings of share and streams groups.
    """
    make = partial(_describe_all, services, request)
    # The entries cost, not the resources.
    is_long = len(request.resources) * CONFIGS_PER_RESOURCE > PARTS_INLINE_MAX
    return LongAnswer(make) if is_long else make()


async def _describe_all(
    services: Services, request: DescribeConfigsRequest
) -> DescribeConfigsResponse:
    slices = Slices()
    types = await each_in_slices(request.resources, lambda each: each.resource_type, slices)
    describe = partial(_describe, services, request, slices=slices, types=frozenset(types))
    # A resource that is named twice is answered once, because each has some thirty entries.
    resources: dict[DescribeConfigsResource, None] = {}
    await each_in_slices(request.resources, resources.setdefault, slices)
    results = [await describe(each) for each in resources]
    return DescribeConfigsResponse(results=tuple(results))


async def _describe(
    services: Services,
    request: DescribeConfigsRequest,
    resource: DescribeConfigsResource,
    *,
    slices: Slices,
    types: frozenset[int],
) -> DescribeConfigsResult:
    wanted = frozenset(resource.configuration_keys or ())
    configs = []
    try:
        # In the answer of each resource, because the response has no code for the whole request.
        check_types(types)
        for each in _results(services, resource, request):
            # A broker has some 350 settings. What they are made from does not change in between.
            await slices.turn()
            if not wanted or each.name in wanted:
                configs.append(each)
    except TailraceError as error:
        return DescribeConfigsResult(
            error_code=error_code(error),
            error_message=error_message(error),
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
    return DescribeConfigsResult(
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=tuple(configs),
    )


def _results(
    services: Services, resource: DescribeConfigsResource, request: DescribeConfigsRequest
) -> Iterator[DescribeConfigsResourceResult]:
    """Every setting of a resource.

    Raises:
        TailraceError: there is no such resource.
    """
    name = resource.resource_name
    match resource.resource_type:
        case ResourceType.TOPIC:
            # Also for an empty name, which `find_topic` would refuse as INVALID_REQUEST.
            check_topic_name(name)
            for entry in topic_entries(services, find_topic(services, name)):
                yield _result(entry, request)
        case ResourceType.GROUP:
            for entry in group_entries(services, name):
                yield _result(entry, request)
        case ResourceType.CLIENT_METRICS:
            for entry in subscription_entries(services, name):
                # A default of a subscription has no synonym: no setting of the broker stands for
                # it.
                has_value = entry.value.source is ConfigSource.CLIENT_METRICS
                yield _result(entry, request, has_synonyms=has_value)
        case ResourceType.BROKER:
            for each in broker_entries(services, name):
                yield _broker_result(each, request)
        case ResourceType.BROKER_LOGGER:
            for key, level in logger_levels(services, name):
                yield DescribeConfigsResourceResult(
                    name=key,
                    value=level,
                    config_source=ConfigSource.BROKER_LOGGER,
                    documentation=None,
                )
        case unknown:
            raise InvalidRequestError(f"Unsupported resource type: {unknown}")


def _broker_result(
    entry: BrokerEntry, request: DescribeConfigsRequest
) -> DescribeConfigsResourceResult:
    first = entry.values[0] if entry.values else None
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.is_read_only,
        config_source=ConfigSource.DEFAULT if first is None else first.source,
        is_sensitive=entry.is_sensitive,
        synonyms=_synonyms(entry.values if request.include_synonyms else ()),
        config_type=entry.type,
        documentation=entry.text if request.include_documentation else None,
    )


def _synonyms(values: Iterable[ConfigValue]) -> tuple[DescribeConfigsSynonym, ...]:
    return tuple(
        DescribeConfigsSynonym(name=value.name, value=value.text, source=value.source)
        for value in values
    )


def _result(
    entry: ConfigEntry, request: DescribeConfigsRequest, *, has_synonyms: bool = True
) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=entry.setting.name,
        value=entry.value.text,
        config_source=entry.value.source,
        synonyms=_synonyms(
            value
            for value in entry.values
            if request.include_synonyms and has_synonyms and not _has_no_synonym(entry, value)
        ),
        config_type=type_of(entry.setting),
        documentation=entry.setting.text if request.include_documentation else None,
    )


def _has_no_synonym(entry: ConfigEntry, value: ConfigValue) -> bool:
    """Whether the value is a default that no setting of the broker has.

    Kafka leaves some settings in milliseconds unset, and takes the default of hours instead.
    """
    is_nowhere = entry.setting.is_topic_only or value.name in _UNSET_BY_DEFAULT
    return is_nowhere and value.source is ConfigSource.DEFAULT


def handle_list_config_resources(
    services: Services, header: RequestHeader, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse | Awaitable[ListConfigResourcesResponse] | LongAnswer:
    """ListConfigResources (74): the names of resources that have settings (KIP-1142).

    Versions: 0 to 1.
    Behaviour: the topics, the brokers and their loggers, the subscriptions to metrics of clients,
        and the groups that have settings of their own. A type that Kafka does not have is
        UNSUPPORTED_VERSION.
    Version notes: v0 asks for client metrics only; v1 names types of resources, and none means all.
    """
    wanted = frozenset(request.resource_types) or RESOURCE_TYPES
    if header.api_version == 0:
        # v0 has no list of types: before KIP-1142 this API named client metrics only.
        wanted = frozenset({int(ResourceType.CLIENT_METRICS)})
    if not wanted <= RESOURCE_TYPES:
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    make = partial(_list_resources, services, wanted)
    image = services.cluster.image
    is_long = len(image.topics) + len(image.group_configs) > PARTS_INLINE_MAX
    return LongAnswer(make) if is_long else make()


async def _list_resources(
    services: Services, wanted: frozenset[int]
) -> ListConfigResourcesResponse:
    # As in Kafka those that are fenced too: their settings count when they are back.
    brokers = [str(each.node_id) for each in view_of(services).nodes]
    names: dict[ResourceType, list[str]] = {
        ResourceType.TOPIC: list(services.cluster.image.topics),
        ResourceType.BROKER: brokers,
        ResourceType.BROKER_LOGGER: brokers,
        ResourceType.CLIENT_METRICS: subscriptions(services),
        ResourceType.GROUP: list(services.cluster.image.group_configs),
    }
    slices = Slices()
    resources: list[ConfigResource] = []
    for kind, named in names.items():
        if kind in wanted:
            resources += await each_in_slices(named, partial(_named_resource, kind), slices)
    return ListConfigResourcesResponse(error_code=ErrorCode.NONE, config_resources=tuple(resources))


def _named_resource(kind: ResourceType, name: str) -> ConfigResource:
    return ConfigResource(resource_name=name, resource_type=kind)
