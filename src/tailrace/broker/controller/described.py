"""`DescribedNode`: what DescribeConfigs asks of a node, for a controller (KIP-919).

Tools that ask the controller itself look at settings before they change them.
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from tailrace.broker.changing import is_changeable
from tailrace.broker.config import BROKER_SETTINGS, BrokerConfig
from tailrace.cluster.metadata.image import EVERYTHING_CHANGED, MetadataImage
from tailrace.cluster.state import FollowedCluster
from tailrace.coordinator.groups.settings import ConsumerSettings
from tailrace.handlers.configs import alter_logger_levels
from tailrace.handlers.services import BrokerSettings
from tailrace.protocol.config_resources import ResourceType
from tailrace.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tailrace.values import dataclass, replace

if TYPE_CHECKING:
    from tailrace.handlers.services import Services

_LOGGERS: Final = ResourceType.BROKER_LOGGER


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DescribedNode:
    """The part of `Services` that DescribeConfigs uses."""

    node_id: int
    cluster: FollowedCluster
    """The state of the cluster; the maker of this publishes what follows."""
    settings: BrokerSettings
    consumer_settings: ConsumerSettings


def described_node(
    config: BrokerConfig,
    image: MetadataImage,
    *,
    offset: int,
    port_of: Callable[[str], int | None],
) -> DescribedNode:
    """A controller with these settings, and the state at an offset of its log."""
    cluster = FollowedCluster(config.node_id, defaults=config.topic_defaults)
    cluster.publish(image, EVERYTHING_CHANGED, offset=offset)
    return DescribedNode(
        node_id=config.node_id,
        cluster=cluster,
        settings=BrokerSettings(
            declared={each.name: each for each in BROKER_SETTINGS},
            is_changeable=is_changeable,
            port_of=port_of,
            given={**config.given, **config.ignored},
            check=_unchecked,
            apply=_unapplied,
        ),
        consumer_settings=config.consumer_groups,
    )


async def alter_with_loggers(
    node: "Services",
    request: IncrementalAlterConfigsRequest,
    decide: Callable[[IncrementalAlterConfigsRequest], Any],
) -> IncrementalAlterConfigsResponse:
    """The answer where levels of loggers of this process are among the changes (KIP-412).

    `decide` is the handler for the rest, which is of the cluster.
    """
    loggers = [each for each in request.resources if each.resource_type == _LOGGERS]
    others = [each for each in request.resources if each.resource_type != _LOGGERS]
    answer = IncrementalAlterConfigsResponse()
    if others:
        decided = decide(replace(request, resources=tuple(others)))
        answer = await decided if isinstance(decided, Awaitable) else decided
    done = (alter_logger_levels(node, each, is_dry_run=request.validate_only) for each in loggers)
    return replace(answer, responses=(*answer.responses, *done))


def _unchecked(*_: object) -> None:
    raise AssertionError("a controller changes settings by its rules")


async def _unapplied() -> None:
    _unchecked()
