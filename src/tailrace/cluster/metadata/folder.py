"""The folder of a metadata log: its settings, its services, and the log in it as files.

Leaders (`log`) and observers (`observer`) of a quorum open the same files; what the records in them
mean is theirs.
"""

import random
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from tailrace.cluster.metadata.proof import PARTITION
from tailrace.cluster.metadata.quorum_state import QuorumState, read_quorum_state
from tailrace.cluster.metadata.replay import MetadataReplay
from tailrace.cluster.metadata.snapshot_files import SnapshotFile, remove_snapshot_leftovers
from tailrace.config.settings import INT32_MAX, setting, settings_of
from tailrace.errors import CorruptionError, DirectoryError
from tailrace.runtime.clock import Clock
from tailrace.runtime.files import Files
from tailrace.storage.checkpoints import (
    format_topic_id,
    parse_topic_id,
    read_partition_metadata,
    write_partition_metadata,
)
from tailrace.storage.config import log_config, segment_configs
from tailrace.storage.folder import PartitionFolder, Removals
from tailrace.storage.log import Log
from tailrace.storage.names import PARTITION_METADATA, partition_directory_name
from tailrace.storage.recovery import LogCut, open_log
from tailrace.values import dataclass

TOPIC_ID: Final = parse_topic_id("AAAAAAAAAAAAAAAAAAAAAQ")
"""The id of the metadata log in every cluster."""
_DAMAGED_SUFFIX: Final = ".damaged"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class MetadataLogConfig:
    """Kafka's settings of the metadata log; bytes and milliseconds."""

    segment_bytes: int = setting(
        "metadata.log.segment.bytes",
        default=1 << 30,
        low=8 << 20,
        high=INT32_MAX,
        text="`segment.bytes` of the metadata log.",
    )
    segment_ms: int = setting(
        "metadata.log.segment.ms",
        default=604_800_000,
        low=1,
        text="`segment.ms` of the metadata log.",
    )
    snapshot_bytes: int = setting(
        "metadata.log.max.record.bytes.between.snapshots",
        default=20 << 20,
        low=1,
        text="A snapshot of the cluster's state is written when the metadata log has grown by "
        "this number of bytes.",
    )
    snapshot_ms: int = setting(
        "metadata.log.max.snapshot.interval.ms",
        default=3_600_000,
        low=0,
        text="A snapshot of the cluster's state is written when the last one is so old and "
        "something has changed; 0: none by time.",
    )
    retention_bytes: int = setting(
        "metadata.max.retention.bytes",
        default=100 << 20,
        low=-1,
        text="Most bytes of the metadata log and its snapshots; the newest snapshot is always "
        "kept. -1: no limit.",
    )
    retention_ms: int = setting(
        "metadata.max.retention.ms",
        default=604_800_000,
        low=-1,
        text="How long a snapshot is kept that is not the newest; -1: no limit.",
    )


METADATA_LOG_SETTINGS: Final = settings_of(MetadataLogConfig)


class MetadataFolder(NamedTuple):
    """The folder of a metadata log, with the services that its log works with."""

    files: Files
    clock: Clock
    chance: random.Random
    removals: Removals
    directory: str
    """The metadata.log.dir, in which the folder is."""

    @property
    def path(self) -> str:
        return f"{self.directory}/{partition_directory_name(PARTITION)}"

    def read_memory(self, replay: MetadataReplay) -> "Memory":
        """Read what the node remembers of its quorum; `replay` is the state that is proven.

        Raises:
            DirectoryError: it is the folder of a topic, or a file cannot be understood.
            OSError: a file cannot be read.
        """
        files, path = self.files, self.path
        state = topic_id = None
        if files.is_directory(path):
            try:
                state = read_quorum_state(files, path)
                topic_id = read_partition_metadata(files, f"{path}/{PARTITION_METADATA}")
            except CorruptionError as error:
                raise DirectoryError(
                    f"{error}; restore it, or remove it, since the log has what is needed of it; "
                    "nothing was changed"
                ) from error
        if topic_id not in (None, TOPIC_ID):
            raise DirectoryError(
                f"{path} is the folder of a topic with the id {format_topic_id(topic_id)}, not the "
                "metadata log; nothing was changed"
            )
        voters: tuple[int, ...] = ()
        if replay.voters is not None:
            voters = tuple(each.voter_id for each in replay.voters.voters)
        elif state is not None:
            voters = state.voters or ()
        return Memory(state, voters, has_topic_id=topic_id is not None)

    def make(self, memory: "Memory") -> None:
        """Make the folder if there is none, and remove what a crash has left in it.

        Raises:
            OSError: the device refuses.
        """
        files, path = self.files, self.path
        if not files.is_directory(path):
            # Records have passwords of settings, and what is needed to guess those of users.
            files.make_directory(path, is_private=True)
            files.sync_directory(self.directory)
        # Before any record: Kafka sets aside a folder that does not say whose it is.
        if not memory.has_topic_id:
            write_partition_metadata(files, path, PARTITION_METADATA, topic_id=TOPIC_ID)
        remove_snapshot_leftovers(files, path)

    def keep_damaged(self, snapshots: Iterable[SnapshotFile]) -> None:
        """Rename snapshots that cannot be read; raises OSError."""
        # Kept for the operator, under a name that Kafka and this broker pass over.
        for each in snapshots:
            self.files.rename(each.path, each.path + _DAMAGED_SUFFIX)

    def open_log(self, config: MetadataLogConfig, *, report: Callable[[str], None]) -> Log:
        """Open the log, each batch of which is checked; `report` gets a sentence for each cut.

        Raises:
            OSError: a file cannot be read or written.
        """

        def report_cut(cut: LogCut) -> None:
            report(f"{cut.path}: {cut.bytes_cut} bytes cut at {cut.position}: {cut.reason}")

        return open_log(
            PartitionFolder(
                partition=PARTITION,
                path=self.path,
                files=self.files,
                clock=self.clock,
                chance=self.chance,
                removals=self.removals,
            ),
            config=log_config(
                {
                    **segment_configs(config.segment_bytes),
                    "segment.ms": str(config.segment_ms),
                    # Snapshots decide what goes, not age and size of segments.
                    "retention.bytes": "-1",
                    "retention.ms": "-1",
                }
            ),
            # As Kafka, at every start: a wrong byte in it would be served as the truth.
            is_clean=False,
            report=report_cut,
        )


class Memory(NamedTuple):
    """The files of a folder that are neither log nor snapshots."""

    state: QuorumState | None
    """The content of `quorum-state`."""
    voters: tuple[int, ...]
    """Ids of the voters that the log names, or `quorum-state`; empty if neither does."""
    has_topic_id: bool
    """Whether `partition.metadata` is there."""
