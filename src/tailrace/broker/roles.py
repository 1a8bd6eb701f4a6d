"""The roles of a node, and the settings that mean something in each.

    broker,controller                 alone: the only broker, whose metadata log is the cluster's
        with a controller listener    the only controller, and a broker that registers with it
    broker                            a broker whose controllers are other nodes
    controller                        the only controller, and no broker

A quorum of several controllers is Apache Kafka's. What is checked here beyond each value alone is
in `KafkaConfig.validateValues` of Kafka.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from tailrace.broker.kraft.settings import KRAFT_SETTINGS
from tailrace.broker.listeners import has_controller_listener
from tailrace.cluster.control.settings import CONTROL_SETTINGS
from tailrace.config.settings import Value

if TYPE_CHECKING:
    from tailrace.broker.config import BrokerConfig

OF_BROKERS: Final = frozenset(each.name for each in KRAFT_SETTINGS)
"""The settings of a broker that registers with controllers."""
_OF_CONTROLLERS: Final = frozenset(each.name for each in CONTROL_SETTINGS)
_BOOTSTRAP: Final = "controller.quorum.bootstrap.servers"
_SEVERAL: Final = "a quorum of several controllers is Apache Kafka's; see docs/cluster.md"


def are_roles(roles: Value) -> bool:
    """Whether `process.roles` may have this value."""
    assert isinstance(roles, tuple)
    return sorted(roles) in (["broker", "controller"], ["broker"], ["controller"])


def settings_without_effect(texts: Mapping[str, str]) -> frozenset[str]:
    """The settings that mean nothing in the roles of these settings, which may have faults."""
    text = texts.get("process.roles") or "broker,controller"
    roles = sorted(each.strip() for each in text.split(","))
    if roles == ["broker"]:
        return _OF_CONTROLLERS - OF_BROKERS
    if roles == ["controller"]:
        return OF_BROKERS - _OF_CONTROLLERS - {_BOOTSTRAP}
    if has_controller_listener(texts):
        return frozenset()
    # What concerns other nodes means nothing where there are none.
    return OF_BROKERS | _OF_CONTROLLERS


def quorum_faults(config: "BrokerConfig") -> Iterator[str]:
    """Sentences about controllers that this node cannot have, or be."""
    if "controller" not in config.process_roles:
        # What is given and refused has its own sentence.
        if not config.controllers and not config.given.get(_BOOTSTRAP):
            yield (
                f"{_BOOTSTRAP}: with process.roles=broker it names the controllers, as HOST:PORT"
            )
        if any(each.id == config.node_id for each in config.controllers):
            yield (
                f"controller.quorum.voters: with process.roles=broker node.id {config.node_id} is "
                "none of the voters"
            )
        return
    # By their ids: the address of this node is that of its controller's listener, which there may
    # be none of.
    voters = {each.partition("@")[0] for each in config.quorum_voters}
    if voters - {str(config.node_id)}:
        yield (
            f"controller.quorum.voters: {','.join(config.quorum_voters)} is not node "
            f"{config.node_id} alone; this node can only be a quorum of its own, or with "
            f"process.roles=broker a broker of another; {_SEVERAL}"
        )
    if len(config.kraft.bootstrap_servers) > 1:
        yield (
            f"{_BOOTSTRAP}: {','.join(config.kraft.bootstrap_servers)} are several controllers; "
            f"{_SEVERAL}"
        )
    if config.is_broker and not config.has_controllers and config.replication_factor != 1:
        yield (
            f"default.replication.factor: it must be 1, because this broker is the only one, and "
            f"{config.replication_factor} is given; other brokers can join one that has a listener "
            "in controller.listener.names"
        )
