"""Server-side assignors (KIP-848): from subscriptions and topics to a target for each member."""

from collections.abc import Mapping
from typing import Final

from tailrace.coordinator.groups.assignors.problem import Assignor
from tailrace.coordinator.groups.assignors.range import assign_range
from tailrace.coordinator.groups.assignors.uniform import assign_uniform

ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniform, "range": assign_range}
"""All assignors by name, the default first, as in `group.consumer.assignors`."""
