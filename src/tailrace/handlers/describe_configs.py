"""DescribeConfigs (32): the settings of topics, of groups and of this broker.

Versions: 1 to 4.
Behaviour: every setting, or the named ones; unknown names are ignored, and an empty list means all,
    as in Kafka. A topic's values are its own, those that the cluster's state has for this broker or
    for all brokers, those that this broker was started with, or Kafka's defaults. A broker's values
    are one of the last two, and all are read-only. The broker with an empty name means settings for
    all brokers together, of which none are told. A group need not exist; its values are its own or
    the broker's. No value is secret.
    Refused: unknown topics (UNKNOWN_TOPIC_OR_PARTITION), invalid topic names
    (INVALID_TOPIC_EXCEPTION), other brokers, a group without an id and other resources
    (INVALID_REQUEST). A type of
    resources that Kafka does not have is INVALID_REQUEST for every resource of the request.
Version notes: from v3 on the types of settings, and documentation if the request asks for it.
Not done: loggers and client metrics; settings of share and streams groups.
"""

from collections.abc import Awaitable, Iterable
from functools import partial
from typing import Final

from tailrace.cluster.topic_rules import check_topic_name
from tailrace.config.settings import INT32_MAX, Setting
from tailrace.errors import TailraceError
from tailrace.handlers.config_entries import ConfigEntry, ConfigValue
from tailrace.handlers.configs import (
    broker_entries,
    check_is_this_broker,
    check_types,
    find_topic,
    topic_entries,
    unknown_resource,
)
from tailrace.handlers.group_configs import group_entries
from tailrace.handlers.services import Services, error_code, error_message
from tailrace.protocol.answers import PARTS_INLINE_MAX, LongAnswer
from tailrace.protocol.config_resources import ConfigSource, ResourceType
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from tailrace.runtime.slices import Slices, each_in_slices

CONFIGS_PER_RESOURCE: Final = 50
"""About how many settings a topic or a broker has in an answer."""

_UNSET_BY_DEFAULT = frozenset({"log.retention.ms", "log.roll.ms", "log.roll.jitter.ms"})
"""Settings that have no default in Kafka, where those in hours or minutes have one."""
_TYPES = {"bool": 1, "string": 2, "int": 3, "long": 5, "float": 6, "list": 7}
"""Types of values, by Kafka's numbers."""


def handle_describe_configs(
    services: Services, _: RequestHeader, request: DescribeConfigsRequest
) -> Awaitable[DescribeConfigsResponse] | LongAnswer:
    """Describe every resource that there is."""
    make = partial(_describe_all, services, request)
    is_long = len(request.resources) * CONFIGS_PER_RESOURCE > PARTS_INLINE_MAX
    return LongAnswer(make) if is_long else make()


async def _describe_all(
    services: Services, request: DescribeConfigsRequest
) -> DescribeConfigsResponse:
    slices = Slices()
    types = await each_in_slices(request.resources, lambda each: each.resource_type, slices)
    describe = partial(_describe, services, request, types=frozenset(types))
    # A resource that is named twice is answered once, because each has some thirty entries.
    resources: dict[DescribeConfigsResource, None] = {}
    await each_in_slices(request.resources, resources.setdefault, slices)
    results = await each_in_slices(resources, describe, slices)
    return DescribeConfigsResponse(results=tuple(results))


def _describe(
    services: Services,
    request: DescribeConfigsRequest,
    resource: DescribeConfigsResource,
    *,
    types: frozenset[int],
) -> DescribeConfigsResult:
    wanted = frozenset(resource.configuration_keys or ())
    try:
        check_types(types)
        entries = _entries(services, resource)
    except TailraceError as error:
        return DescribeConfigsResult(
            error_code=error_code(error),
            error_message=error_message(error),
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
    return DescribeConfigsResult(
        error_message=None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=tuple(
            _result(entry, request, is_read_only=resource.resource_type == ResourceType.BROKER)
            for entry in entries
            if not wanted or entry.setting.name in wanted
        ),
    )


def _entries(services: Services, resource: DescribeConfigsResource) -> Iterable[ConfigEntry]:
    match resource.resource_type:
        case ResourceType.TOPIC:
            check_topic_name(resource.resource_name)
            return topic_entries(services, find_topic(services, resource.resource_name))
        case ResourceType.BROKER:
            if not resource.resource_name:
                return ()
            check_is_this_broker(services, resource.resource_name)
            return broker_entries(services)
        case ResourceType.GROUP:
            # A list, so that an empty id is refused here.
            return list(group_entries(services, resource.resource_name))
        case _:
            raise unknown_resource(resource.resource_type)


def _result(
    entry: ConfigEntry, request: DescribeConfigsRequest, *, is_read_only: bool
) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=entry.setting.name,
        value=entry.value.text,
        read_only=is_read_only,
        config_source=entry.value.source,
        synonyms=tuple(
            DescribeConfigsSynonym(name=value.name, value=value.text, source=value.source)
            for value in entry.values
            if request.include_synonyms and not _has_no_synonym(entry, value)
        ),
        config_type=_type(entry.setting),
        documentation=entry.setting.text if request.include_documentation else None,
    )


def _has_no_synonym(entry: ConfigEntry, value: ConfigValue) -> bool:
    """Whether the value is a default that no setting of the broker has.

    Kafka leaves some settings in milliseconds unset, and takes the default of hours instead.
    """
    is_nowhere = entry.setting.is_topic_only or value.name in _UNSET_BY_DEFAULT
    return is_nowhere and value.source is ConfigSource.DEFAULT


def _type(setting: Setting) -> int:
    is_long = setting.kind == "int" and (setting.high is None or setting.high > INT32_MAX)
    return _TYPES["long" if is_long else setting.kind]
