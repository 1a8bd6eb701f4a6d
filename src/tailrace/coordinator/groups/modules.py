"""The modules that a partition of groups needs, imported together on a worker thread."""

from tailrace.coordinator.groups.machine import GroupMachine
from tailrace.coordinator.groups.record_codec import GroupRecordCodec

__all__ = ["GroupMachine", "GroupRecordCodec"]
