"""Check which brokers a client assigns the replicas of a partition to.

CreateTopics, CreatePartitions and AlterPartitionReassignments use it.
"""

from typing import Final

from tailrace.handlers.services import Services

SHOWN_MAX: Final = 8
"""Most brokers of an invalid assignment that the message names."""


def assignment_fault(services: Services, number: int, broker_ids: tuple[int, ...]) -> str | None:
    """A sentence about what is wrong with the replicas of partition `number`; None if nothing is.

    This broker is the only one, so it must be named once, and no other.
    """
    if broker_ids == (services.node_id,):
        return None
    shown = ", ".join(map(str, broker_ids[:SHOWN_MAX])) or "none"
    return (
        f"partition {number} is assigned to brokers {shown}; the only broker is {services.node_id}"
    )
