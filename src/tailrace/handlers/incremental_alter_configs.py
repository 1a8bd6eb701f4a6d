"""IncrementalAlterConfigs (44): change single settings of topics while the broker runs.

Versions: 0 to 1.
Behaviour: each resource is changed or refused on its own, and a refused one is as it was. SET gives
    a value, DELETE goes back to the broker's default (also of a setting that is not there), APPEND
    and SUBTRACT change a list, which is the default's if the topic has none of its own.
    INVALID_CONFIG: unknown names, with a suggestion, values out of range, APPEND and SUBTRACT of
    what is no list, all of them in the message; and settings that contradict each other.
    INVALID_REQUEST: a resource or a setting twice, no value, unknown operations and resources.
    When the answer leaves, every open log acts on the new settings with its next call. Sizes of
    indexes and preallocation, and by how much segment.ms is shortened, count from the next segment
    on. Where `compact` is taken from `cleanup.policy`, a compaction that is under way is called
    off; what it has exchanged so far stays.
After a crash: the topic has its new settings once they were answered; before that its old ones, or
    all of the new ones.
Not done: settings of brokers (INVALID_REQUEST); loggers, client metrics and groups; policies.
"""

from tailrace.handlers.configs import Alteration, WantedChange, alter
from tailrace.handlers.services import Services
from tailrace.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)


async def handle_incremental_alter_configs(
    services: Services, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    """Change the settings of every topic that allows it."""
    wanted = (_alteration(resource) for resource in request.resources)
    return IncrementalAlterConfigsResponse(
        responses=await alter(services, wanted, is_replaced=False, is_dry_run=request.validate_only)
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
