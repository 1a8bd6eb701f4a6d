"""Alter settings for clients: AlterConfigs and IncrementalAlterConfigs.

DescribeConfigs and CreateTopics use what this module knows of topics and limits.
`cluster.config_changes` computes the new settings of a topic.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from tailrace.cluster.config_changes import ConfigChange
from tailrace.cluster.image import Topic
from tailrace.cluster.topic_rules import check_topic_name
from tailrace.config.settings import Setting
from tailrace.errors import TailraceError
from tailrace.handlers.broker_configs import alter_broker
from tailrace.handlers.broker_loggers import alter_loggers
from tailrace.handlers.client_metrics import alter_subscription
from tailrace.handlers.config_entries import ConfigEntry, ConfigValue
from tailrace.handlers.group_configs import alter_group
from tailrace.handlers.services import InvalidRequestError, Services, error_code, error_message
from tailrace.handlers.topics import configure_topic
from tailrace.protocol.config_resources import (
    RESOURCE_TYPES,
    ConfigOperation,
    ConfigSource,
    ResourceType,
)
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from tailrace.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from tailrace.replication.partition import UnknownPartitionError
from tailrace.runtime.slices import Slices
from tailrace.storage.config import TOPIC_SETTINGS
from tailrace.values import dataclass

R = TypeVar("R")

CONFIGS_MAX = 256
"""Most settings of one resource in a request. There are a few dozen, and each unknown name costs a
search for a similar one."""


_ALTER = {
    ResourceType.GROUP: alter_group,
    ResourceType.BROKER: alter_broker,
    ResourceType.CLIENT_METRICS: alter_subscription,
}
"""The function for each type of resources whose settings are records of the metadata log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedChange:
    """A change to one setting, as sent in a request."""

    name: str
    operation: int
    value: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Alteration:
    """The changes of a request to one resource."""

    resource_type: int
    resource_name: str
    change_count: int
    changes: Iterable[WantedChange]
    """Created lazily, so that too many changes are refused before they become objects."""


def topic_entries(services: Services, topic: Topic) -> Iterator[ConfigEntry]:
    """Every setting of a topic: its own value, the broker's for topics, Kafka's default."""
    defaults = services.cluster.defaults
    for setting in TOPIC_SETTINGS:
        broker_name = setting.broker_name or setting.name
        default = setting.format(setting.default)
        values = [ConfigValue(broker_name, default, ConfigSource.DEFAULT)]
        for source, own in ((ConfigSource.BROKER, defaults.given), *defaults.dynamic.items()):
            if setting.name in own:
                text = _normal(setting, own[setting.name])
                values.append(ConfigValue(broker_name, text, source))
        if setting.name in topic.configs:
            text = _normal(setting, topic.configs[setting.name])
            values.append(ConfigValue(setting.name, text, ConfigSource.TOPIC))
        yield ConfigEntry(setting=setting, values=tuple(reversed(values)))


def find_topic(services: Services, name: str) -> Topic:
    """The topic that a resource names.

    Raises:
        InvalidRequestError: the name is empty; there are no settings for all topics together.
        InvalidTopicNameError: the name is not allowed.
        UnknownPartitionError: there is no such topic.
    """
    if not name:
        raise InvalidRequestError(
            "the name of the topic is empty; the defaults of all topics are settings of the broker"
        )
    check_topic_name(name)
    topic = services.cluster.image.topics.get(name)
    if topic is None:
        raise UnknownPartitionError(f"The topic '{name}' does not exist.")
    return topic


def check_count(count: int) -> None:
    """Check how many settings a request has for one resource.

    Raises:
        InvalidRequestError: more than `CONFIGS_MAX`.
    """
    if count > CONFIGS_MAX:
        raise InvalidRequestError(
            f"{count} settings for one resource; at most {CONFIGS_MAX} are allowed"
        )


def check_types(types: frozenset[int]) -> None:
    """Check the types of all resources of a request.

    Raises:
        InvalidRequestError: Kafka does not have one of them.
    """
    unknown = sorted(types - RESOURCE_TYPES)
    if unknown:
        raise InvalidRequestError(f"there are no resources of type {unknown[0]}")


async def handle_alter_configs(
    services: Services, _: RequestHeader, request: AlterConfigsRequest
) -> AlterConfigsResponse:
    """AlterConfigs (33): replace all settings of topics, groups and brokers.

    Versions: 0 to 2.
    Behaviour: each resource is changed or refused on its own. A setting that the request does not
        name goes back to the broker's default. Allowed settings, when they apply, and what is
        refused: as IncrementalAlterConfigs, which clients should use instead.
    After a crash: as IncrementalAlterConfigs.
    Not done: policies. Loggers cannot be changed this way in Kafka either (INVALID_REQUEST).
    """
    results = await _alter_all(
        services,
        request.resources,
        result=AlterConfigsResourceResponse,
        is_replaced=True,
        is_dry_run=request.validate_only,
    )
    return AlterConfigsResponse(responses=results)


async def handle_incremental_alter_configs(
    services: Services, _: RequestHeader, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    """IncrementalAlterConfigs (44): change single settings of topics, groups and brokers.

    Versions: 0 to 1.
    Behaviour: each resource is changed or refused on its own; a refused one is unchanged. SET sets
        a value, DELETE goes back to the broker's default (no error for a setting that is not set),
        APPEND and SUBTRACT change a list; if the topic has no list, they change the default's.
        INVALID_CONFIG: unknown names, with a suggestion, values out of range, APPEND and SUBTRACT
        on a setting that is no list, all of them in the message; and settings that contradict each
        other. INVALID_REQUEST: a resource or a setting twice, no value, unknown operations and
        resources. When the response is sent, every open log uses the new settings from its next
        call on. Index sizes, preallocation and the jitter of segment.ms apply from the next segment
        on. If `compact` is removed from `cleanup.policy`, a running compaction is aborted; segments
        that it has exchanged stay. A group of the consumer protocol has
        consumer.session.timeout.ms, consumer.heartbeat.interval.ms and
        consumer.assignment.interval.ms, between the limits of group.consumer.min.* and
        group.consumer.max.* (else INVALID_CONFIG). They count from the next heartbeat on. The group
        need not exist, and keeps them when it is deleted; at most 1,000 groups have settings
        (POLICY_VIOLATION). A broker's settings are changed for one or, with an empty
        name, for all; those of one go over those of all, and both over what the broker was started
        with. Defaults of topics, limits of connections, the cleaner's threads and limits, listeners
        and some more (`broker.changing.CHANGEABLE`) count when the response is sent; others are
        INVALID_REQUEST, as are values out of range, both with Kafka's words. Unknown names are
        INVALID_CONFIG. Loggers have Kafka's names of levels, until the broker stops. Subscriptions
        to metrics of clients are kept, and nothing asks clients for metrics.
    After a crash: the resource has its new settings if the request was answered; else all of its
        old ones, or all of the new ones.
    Not done: settings of share and streams groups (INVALID_CONFIG); policies.
    """
    results = await _alter_all(
        services,
        request.resources,
        result=IncrementalAlterConfigsResourceResponse,
        is_replaced=False,
        is_dry_run=request.validate_only,
    )
    return IncrementalAlterConfigsResponse(responses=results)


def alter_logger_levels(
    services: Services, resource: IncrementalAlterConfigsResource, *, is_dry_run: bool
) -> IncrementalAlterConfigsResourceResponse:
    """The result for loggers of this process, for a controller, which decides about the rest."""
    code, message = ErrorCode.NONE, None
    try:
        one = _alteration(resource)
        check_count(one.change_count)
        changes = _checked(tuple(one.changes))
        alter_loggers(services, one.resource_name, changes, is_dry_run=is_dry_run)
    except TailraceError as error:
        code, message = error_code(error), error_message(error)
    return IncrementalAlterConfigsResourceResponse(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def _alteration(resource: AlterConfigsResource | IncrementalAlterConfigsResource) -> Alteration:
    changes: Iterable[WantedChange]
    if isinstance(resource, AlterConfigsResource):
        # It has no operations: each setting that it names is set.
        changes = (
            WantedChange(name=each.name, operation=ConfigOperation.SET, value=each.value)
            for each in resource.configs
        )
    else:
        changes = (
            WantedChange(name=each.name, operation=each.config_operation, value=each.value)
            for each in resource.configs
        )
    return Alteration(
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        change_count=len(resource.configs),
        changes=changes,
    )


async def _alter_all(
    services: Services,
    resources: Iterable[AlterConfigsResource | IncrementalAlterConfigsResource],
    *,
    result: Callable[..., R],
    is_replaced: bool,
    is_dry_run: bool,
) -> tuple[R, ...]:
    """Change or refuse each resource on its own; returns a `result` for each.

    With `is_replaced`, settings that the request does not name go back to their defaults.
    """
    slices = Slices()
    counts: Counter[tuple[int, str]] = Counter()
    alterations = []
    for one in map(_alteration, resources):
        counts[one.resource_type, one.resource_name] += 1
        alterations.append(one)
        await slices.turn()
    outcomes = []
    for one in alterations:
        code, message = ErrorCode.NONE, None
        try:
            if counts[one.resource_type, one.resource_name] > 1:
                # Two changes of one resource would have no order.
                raise InvalidRequestError("Each resource must appear at most once.")
            change = partial(_alter, services, one, is_replaced=is_replaced, is_dry_run=is_dry_run)
            # By name alone: a topic and a group of one name wait for each other, which costs
            # nothing. Those of brokers are checked together, for all brokers and for this one.
            is_of_brokers = one.resource_type == ResourceType.BROKER
            await services.changes.make("" if is_of_brokers else one.resource_name, change)
        except TailraceError as error:
            code, message = error_code(error), error_message(error)
        outcomes.append(
            result(
                error_code=code,
                error_message=message,
                resource_type=one.resource_type,
                resource_name=one.resource_name,
            )
        )
        await slices.turn()
    return tuple(outcomes)


async def _alter(
    services: Services, one: Alteration, *, is_replaced: bool, is_dry_run: bool
) -> None:
    check_count(one.change_count)
    # After the count: only then do the changes become objects.
    changes = _checked(tuple(one.changes))
    match one.resource_type:
        case ResourceType.TOPIC:
            topic = find_topic(services, one.resource_name)
            planned = services.own_controller.plan_configs(topic, changes, is_replaced=is_replaced)
            if planned != topic and not is_dry_run:
                await configure_topic(
                    services.changes, services.own_controller, services.replicas, topic=planned
                )
        case ResourceType.GROUP | ResourceType.BROKER | ResourceType.CLIENT_METRICS:
            await _ALTER[ResourceType(one.resource_type)](
                services,
                one.resource_name,
                changes,
                is_replaced=is_replaced,
                is_dry_run=is_dry_run,
            )
        # AlterConfigs would reset all loggers that it does not name; Kafka refuses it too.
        case ResourceType.BROKER_LOGGER if not is_replaced:
            alter_loggers(services, one.resource_name, changes, is_dry_run=is_dry_run)
        case _:
            raise InvalidRequestError(f"Unknown resource type {one.resource_type}")


def _checked(wanted: Sequence[WantedChange]) -> list[ConfigChange]:
    """The changes of one resource.

    Raises:
        InvalidRequestError: settings that are named twice, lack a value, or have an unknown
            operation; the words are Kafka's.
    """
    if len({one.name for one in wanted}) < len(wanted):
        raise InvalidRequestError("Error due to duplicate config keys")
    nulls = [
        one.name for one in wanted if one.value is None and one.operation != ConfigOperation.DELETE
    ]
    if nulls:
        raise InvalidRequestError(f"Null value not supported for : {', '.join(nulls)}")
    for one in wanted:
        if one.operation not in set(ConfigOperation):
            raise InvalidRequestError(f"Unknown operations type {one.operation}")
    return [
        ConfigChange(name=one.name, operation=ConfigOperation(one.operation), value=one.value or "")
        for one in wanted
    ]


def _normal(setting: Setting, text: str) -> str:
    """The text of a value in the notation of defaults, such as `true` for `TRUE`."""
    return setting.format(setting.parse(text))
