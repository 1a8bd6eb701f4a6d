"""Make a partition of groups ready to be led; imported on a worker thread.

So the first record of a type and the first regular expression do not hold up the event loop.
"""

from contextlib import suppress

from tailrace.coordinator.groups.bulk_commits import LOG_BYTES_MIN, BulkCommits
from tailrace.coordinator.groups.machine import GroupMachine
from tailrace.coordinator.groups.record_codec import GroupRecordCodec, prepare_codec
from tailrace.coordinator.groups.settings import settings_of_group
from tailrace.coordinator.groups.topics import compile_pattern

__all__ = ["LOG_BYTES_MIN", "BulkCommits", "GroupMachine", "GroupRecordCodec", "settings_of_group"]

# 20 ms, which no heartbeat and no commit should wait for (decision 24).
prepare_codec()
with suppress(ImportError):  # A machine without the package serves all but expressions.
    compile_pattern("")
