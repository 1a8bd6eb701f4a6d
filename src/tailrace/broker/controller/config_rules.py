"""`config_rules`: what a controller checks of settings that are no topics' (`ResourceRules`).

As Kafka's `ControllerConfigurationValidator`: the settings of groups have the limits that are in
the controller's own file. Those of brokers are checked by the broker that forwards them.
"""

from collections.abc import Callable, Collection, Mapping
from functools import partial

from tailrace.broker.config import BROKER_SETTINGS
from tailrace.cluster.control.state import RefusedError, ResourceRules
from tailrace.cluster.topic_rules import check_group_limit
from tailrace.coordinator.groups.settings import ConsumerSettings, check_group_configs
from tailrace.errors import TailraceError
from tailrace.handlers.client_metrics import check_subscription
from tailrace.handlers.services import InvalidRequestError, error_code, error_message
from tailrace.protocol.config_resources import ResourceType

Check = Callable[[Collection[str], str, Mapping[str, str]], None]


def config_rules(groups: ConsumerSettings) -> Mapping[ResourceType, ResourceRules]:
    """The rules for each type of resources but topics; `groups` has the limits of groups."""
    declared = {each.name: each for each in BROKER_SETTINGS}
    return {
        ResourceType.BROKER: ResourceRules(lambda *_: None, declared),
        ResourceType.GROUP: ResourceRules(
            partial(_refuse, check=partial(_check_group, groups=groups))
        ),
        ResourceType.CLIENT_METRICS: ResourceRules(partial(_refuse, check=check_subscription)),
    }


def _check_group(
    known: Collection[str], group_id: str, configs: Mapping[str, str], *, groups: ConsumerSettings
) -> None:
    if not group_id:
        raise InvalidRequestError("Default group resources are not allowed.")
    check_group_configs(configs, groups)
    check_group_limit(group_id, known)


def _refuse(known: Collection[str], name: str, configs: Mapping[str, str], *, check: Check) -> None:
    """Check, and refuse with the code that a broker answers."""
    try:
        check(known, name, configs)
    except TailraceError as error:
        raise RefusedError(error_code(error), error_message(error)) from error
