"""Settings of a controller; each start of a broker reads them, and needs no rules for it."""

from typing import Final

from tailrace.config.settings import setting, settings_of
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class ControlConfig:
    """Kafka's settings of a controller."""

    session_timeout_ms: int = setting(
        "broker.session.timeout.ms",
        default=9000,
        low=1,
        text="Milliseconds after its last heartbeat when the controller fences a broker.",
    )
    is_rebalancing: bool = setting(
        "auto.leader.rebalance.enable",
        default=True,
        text="Whether the controller gives partitions back to their preferred leaders.",
    )
    rebalance_s: int = setting(
        "leader.imbalance.check.interval.seconds",
        default=300,
        low=1,
        text="Seconds between two looks for partitions that another replica than the preferred one "
        "leads.",
    )
    unclean_election_ms: int = setting(
        "unclean.leader.election.interval.ms",
        default=300_000,
        low=1,
        text="Milliseconds between two looks for partitions without a leader whose topic allows "
        "an unclean election.",
    )


CONTROL_SETTINGS: Final = settings_of(ControlConfig)
"""The settings that mean something on a node with a controller."""
