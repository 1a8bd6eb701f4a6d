"""The modules that a partition of groups needs, imported together on a worker thread."""

from tailrace.coordinator.groups.all_groups import AllGroupsMachine
from tailrace.coordinator.groups.record_codec import GroupRecordCodec

__all__ = ["AllGroupsMachine", "GroupRecordCodec"]
