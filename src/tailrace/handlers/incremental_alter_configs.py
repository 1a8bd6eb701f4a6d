"""IncrementalAlterConfigs (44): change single settings of topics, groups and brokers at runtime.

Versions: 0 to 1.
Behaviour: each resource is changed or refused on its own; a refused one is unchanged. SET sets a
    value, DELETE goes back to the broker's default (no error for a setting that is not set), APPEND
    and SUBTRACT change a list; if the topic has no list, they change the default's.
    INVALID_CONFIG: unknown names, with a suggestion, values out of range, APPEND and SUBTRACT on a
    setting that is no list, all of them in the message; and settings that contradict each other.
    INVALID_REQUEST: a resource or a setting twice, no value, unknown operations and resources.
    When the response is sent, every open log uses the new settings from its next call on. Index
    sizes, preallocation and the jitter of segment.ms apply from the next segment on. If `compact`
    is removed from `cleanup.policy`, a running compaction is aborted; segments that it has
    exchanged stay.
    A group of the consumer protocol has consumer.session.timeout.ms, consumer.heartbeat.interval.ms
    and consumer.assignment.interval.ms, between the limits of group.consumer.min.* and
    group.consumer.max.* (else INVALID_CONFIG). They count from the next heartbeat on. The group
    need not exist, and keeps them when it is deleted; at most 1,000 groups have settings
    (POLICY_VIOLATION).
After a crash: the resource has its new settings if the request was answered; else all of its old
    ones, or all of the new ones.
    A broker's settings are changed for one or, with an empty name, for all; those of one go over
    those of all, and both over what the broker was started with. Defaults of topics, limits of
    connections, the cleaner's threads and limits, and some more (`broker.config.CHANGEABLE`) count
    when the response is sent; others are INVALID_REQUEST, as are values out of range, both with
    Kafka's words. Unknown names are INVALID_CONFIG.
    Loggers have Kafka's names of levels, until the broker stops. Subscriptions to metrics of
    clients are kept, and nothing asks clients for metrics.
Not done: settings of share and streams groups (INVALID_CONFIG); policies.
"""

from tailrace.handlers.configs import Alteration, WantedChange, alter
from tailrace.handlers.services import Services
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)


async def handle_incremental_alter_configs(
    services: Services, _: RequestHeader, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    """Change the settings of every topic and group that allows it."""
    wanted = (_alteration(resource) for resource in request.resources)
    return IncrementalAlterConfigsResponse(
        responses=await alter(
            services,
            wanted,
            result=IncrementalAlterConfigsResourceResponse,
            is_replaced=False,
            is_dry_run=request.validate_only,
        )
    )


def _alteration(resource: IncrementalAlterConfigsResource) -> Alteration:
    return Alteration(
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        change_count=len(resource.configs),
        changes=(
            WantedChange(name=config.name, operation=config.config_operation, value=config.value)
            for config in resource.configs
        ),
    )
