"""AlterConfigs (33): replace all settings of topics, groups and brokers.

Versions: 0 to 2.
Behaviour: each resource is changed or refused on its own. A setting that the request does not name
    goes back to the broker's default. Allowed settings, when they apply, and what is refused: as
    IncrementalAlterConfigs, which clients should use instead.
After a crash: as IncrementalAlterConfigs.
Not done: policies. Loggers cannot be changed this way in Kafka either (INVALID_REQUEST).
"""

from tailrace.handlers.configs import Alteration, WantedChange, alter
from tailrace.handlers.services import Services
from tailrace.protocol.config_resources import ConfigOperation
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


async def handle_alter_configs(
    services: Services, _: RequestHeader, request: AlterConfigsRequest
) -> AlterConfigsResponse:
    """Replace the settings of every topic and group that allows it."""
    wanted = (_alteration(resource) for resource in request.resources)
    return AlterConfigsResponse(
        responses=await alter(
            services,
            wanted,
            result=AlterConfigsResourceResponse,
            is_replaced=True,
            is_dry_run=request.validate_only,
        )
    )


def _alteration(resource: AlterConfigsResource) -> Alteration:
    return Alteration(
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        change_count=len(resource.configs),
        changes=(
            WantedChange(name=config.name, operation=ConfigOperation.SET, value=config.value)
            for config in resource.configs
        ),
    )
