"""`alter`: a request to alter settings, in parts for this broker and for the controllers (KIP-590).

    loggers                          of this process: done here
    what cannot be carried out       unknown kinds, a resource or a setting twice: refused here
    settings of this broker          checked here, since only it knows them; made by a controller
    all other settings               made by a controller

As Kafka's ConfigAdminManager, whose words the handlers have.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from enum import Enum
from typing import Any, Final

from tailrace.protocol.config_resources import ConfigOperation, ResourceType
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
)
from tailrace.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResourceResponse,
)
from tailrace.values import replace

AlterRequest = AlterConfigsRequest | IncrementalAlterConfigsRequest
Resource = AlterConfigsResource | IncrementalAlterConfigsResource
Result = AlterConfigsResourceResponse | IncrementalAlterConfigsResourceResponse

Alter = Callable[[AlterRequest], Awaitable[Sequence[Result]]]
"""Carries out a part of a request, and returns a result for each of its resources."""

_OF_THE_CLUSTER: Final = frozenset(
    {ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLIENT_METRICS}
)


class Decider(Enum):
    """The one who decides about a resource of a request."""

    HERE = "this broker"
    CHECKED = "a controller, if this broker accepts it"
    CONTROLLER = "a controller"


def deciders(request: AlterRequest) -> list[Decider]:
    """The decider of each resource, in the order of the request."""
    counts = Counter((each.resource_type, each.resource_name) for each in request.resources)
    return [
        # Two changes of one resource have no order, so both are refused.
        Decider.HERE if counts[each.resource_type, each.resource_name] > 1 else _decider(each)
        for each in request.resources
    ]


def _decider(resource: Resource) -> Decider:
    # Kafka's controllers count on it that a broker has refused these.
    names = {each.name for each in resource.configs}
    if len(names) < len(resource.configs) or any(map(_lacks_value, resource.configs)):
        return Decider.HERE
    if resource.resource_type == ResourceType.BROKER:
        return Decider.CHECKED
    return Decider.CONTROLLER if resource.resource_type in _OF_THE_CLUSTER else Decider.HERE


def _lacks_value(change: Any) -> bool:  # noqa: ANN401 - a setting of either request
    operation = getattr(change, "config_operation", ConfigOperation.SET)
    return change.value is None and operation != ConfigOperation.DELETE


async def alter(request: AlterRequest, *, here: Alter, forward: Alter) -> list[Result]:
    """Carry out a request, each part where it is decided; a result for each of its resources."""
    found = deciders(request)
    by_decider = {each: [i for i, one in enumerate(found) if one is each] for each in Decider}
    checked = by_decider[Decider.CHECKED]
    results: dict[int, Result] = {}
    if local := by_decider[Decider.HERE]:
        results |= zip(local, await here(_part(request, local)), strict=True)
    if checked:
        # Nothing is changed by that: what the controllers make of it comes back in the metadata.
        checks = await here(replace(_part(request, checked), validate_only=True))
        results |= (
            (index, check)
            for index, check in zip(checked, checks, strict=True)
            if check.error_code != ErrorCode.NONE
        )
    rest = [index for index in range(len(found)) if index not in results]
    if rest:
        answered = {
            (each.resource_type, each.resource_name): each
            for each in await forward(_part(request, rest))
        }
        for index in rest:
            one = request.resources[index]
            results[index] = answered.get((one.resource_type, one.resource_name)) or _unanswered(
                one
            )
    return [results[index] for index in range(len(found))]


def _part(request: Any, indices: Iterable[int]) -> Any:  # noqa: ANN401 - of the same class
    return replace(request, resources=tuple(request.resources[index] for index in indices))


def _unanswered(resource: Resource) -> Result:
    kind = (
        AlterConfigsResourceResponse
        if isinstance(resource, AlterConfigsResource)
        else IncrementalAlterConfigsResourceResponse
    )
    return kind(
        error_code=ErrorCode.UNKNOWN_SERVER_ERROR,
        error_message="the controller's answer lacks this resource",
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
