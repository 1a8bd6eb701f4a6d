"""ListConfigResources (74): the names of resources that have settings (KIP-1142).

Versions: 0 to 1.
Behaviour: the topics, this broker and its loggers, the subscriptions to metrics of clients, and the
    groups that have settings of their own. A type that Kafka does not have is UNSUPPORTED_VERSION.
Version notes: v0 asks for client metrics only; v1 names types of resources, and none means all.
"""

from collections.abc import Awaitable
from functools import partial

from tailrace.handlers.client_metrics import subscriptions
from tailrace.handlers.services import Services
from tailrace.protocol.answers import PARTS_INLINE_MAX, LongAnswer
from tailrace.protocol.config_resources import RESOURCE_TYPES, ResourceType
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from tailrace.runtime.slices import Slices, each_in_slices


def handle_list_config_resources(
    services: Services, header: RequestHeader, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse | Awaitable[ListConfigResourcesResponse] | LongAnswer:
    """The names of the resources of the requested types."""
    wanted = frozenset(request.resource_types) or RESOURCE_TYPES
    if header.api_version == 0:
        wanted = frozenset({int(ResourceType.CLIENT_METRICS)})
    if not wanted <= RESOURCE_TYPES:
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    make = partial(_list, services, wanted)
    image = services.controller.image
    is_long = len(image.topics) + len(image.group_configs) > PARTS_INLINE_MAX
    return LongAnswer(make) if is_long else make()


async def _list(services: Services, wanted: frozenset[int]) -> ListConfigResourcesResponse:
    names: dict[ResourceType, list[str]] = {
        ResourceType.TOPIC: list(services.controller.image.topics),
        ResourceType.BROKER: [str(services.node_id)],
        ResourceType.BROKER_LOGGER: [str(services.node_id)],
        ResourceType.CLIENT_METRICS: subscriptions(services),
        ResourceType.GROUP: list(services.controller.image.group_configs),
    }
    slices = Slices()
    resources: list[ConfigResource] = []
    for kind, named in names.items():
        if kind in wanted:
            resources += await each_in_slices(named, partial(_resource, kind), slices)
    return ListConfigResourcesResponse(error_code=ErrorCode.NONE, config_resources=tuple(resources))


def _resource(kind: ResourceType, name: str) -> ConfigResource:
    return ConfigResource(resource_name=name, resource_type=kind)
