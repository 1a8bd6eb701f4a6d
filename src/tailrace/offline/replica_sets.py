"""Directories of several brokers, compared by what was committed.

    below both high watermarks     committed: each replica has it, byte for byte
    above one of them              not committed as far as that replica knows: it may lag, or have
                                   records that the next leader never had
    below a log start              deleted, by each replica in its own time
    below a cleaner's offset       compacted, by each replica in its own time
    at the end of metadata         not fetched, because one broker was stopped before the other

Only a difference that none of these explains is damage, or records that were lost.

Not here: differences themselves (`replicas`), and whether a log is whole (`verify`).

Invariant: nothing is explained by a checkpoint that is not there.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from tailrace.config.settings import INT64_MAX
from tailrace.model import METADATA_TOPIC, TopicPartition
from tailrace.offline.replicas import Comparison, Difference, DifferenceKind, compare_logs
from tailrace.reading.directory import DataDirectory
from tailrace.runtime.files import Files
from tailrace.storage.checkpoints import read_offset_checkpoint
from tailrace.storage.names import CLEANER_OFFSETS, HIGH_WATERMARKS
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedDifference:
    """A difference between two replicas, and the reason for it."""

    difference: Difference
    reason: str | None
    """The reason why replicas in order may differ like this; None: they may not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedReplica:
    """One replica, compared with that of the highest watermark."""

    partition: TopicPartition
    folder: str
    other_folder: str
    """The replica of the highest watermark."""
    comparison: Comparison
    differences: tuple[JudgedDifference, ...]

    @property
    def is_wrong(self) -> bool:
        """Whether a difference has no reason."""
        return any(each.reason is None for each in self.differences)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Replica:
    """A replica, with what the checkpoints of its directory say of it."""

    folder: str
    high_watermark: int | None
    cleaned: int
    """The offset up to which it may be compacted; 0: it is not."""


def compare_replicas(
    files: Files, directories: Sequence[DataDirectory]
) -> Iterator[ComparedReplica]:
    """Compare all replicas of each partition that several directories have.

    Raises:
        CorruptionError: a checkpoint cannot be read.
        DirectoryError: a folder or a log file cannot be listed.
        OSError: a checkpoint cannot be read.
    """
    for partition, replicas in _replicas(files, directories).items():
        if len(replicas) < 2:
            continue
        # What is committed is below the highest watermark: that replica has it all.
        first = max(replicas, key=lambda each: each.high_watermark or 0)
        for each in replicas:
            if each is not first:
                yield _compared(files, partition, each, other=first)


def _replicas(
    files: Files, directories: Iterable[DataDirectory]
) -> Mapping[TopicPartition, list[_Replica]]:
    found: dict[TopicPartition, list[_Replica]] = {}
    for directory in directories:
        watermarks = read_offset_checkpoint(files, f"{directory.path}/{HIGH_WATERMARKS}")
        cleaned = read_offset_checkpoint(files, f"{directory.path}/{CLEANER_OFFSETS}")
        for partition, folder in directory.partitions.items():
            replica = _Replica(
                folder=folder,
                high_watermark=watermarks.get(partition),
                cleaned=cleaned.get(partition, 0),
            )
            found.setdefault(partition, []).append(replica)
    return dict(sorted(found.items()))


def _compared(
    files: Files, partition: TopicPartition, replica: _Replica, *, other: _Replica
) -> ComparedReplica:
    comparison = compare_logs(files, replica.folder, other.folder)
    return ComparedReplica(
        partition=partition,
        folder=replica.folder,
        other_folder=other.folder,
        comparison=comparison,
        differences=tuple(
            JudgedDifference(
                difference=each,
                reason=_reason(each, replica, other, is_observed=partition.topic == METADATA_TOPIC),
            )
            for each in comparison.differences
        ),
    )


def _reason(
    difference: Difference, replica: _Replica, other: _Replica, *, is_observed: bool
) -> str | None:
    match difference.kind:
        case DifferenceKind.LOG_START:
            return "each replica deletes in its own time"
        case DifferenceKind.UNREADABLE:
            return None
        # Brokers only observe the metadata log, so that it has no checkpoint of a high watermark.
        case DifferenceKind.LOG_END if is_observed:
            return "metadata is fetched until a broker stops"
        case DifferenceKind.CONTENT | DifferenceKind.LOG_END:
            # A broker that has lost its checkpoint would know of nothing that is committed, but the
            # log may be.
            committed = min(
                INT64_MAX if each.high_watermark is None else each.high_watermark
                for each in (replica, other)
            )
            if difference.offset >= committed:
                return f"not committed: one of them has high watermark {committed}"
            # Both ends count: a range of differences may go on where nothing is compacted.
            cleaned = max(replica.cleaned, other.cleaned)
            is_known = difference.next_offset is not None
            if is_known and (difference.next_offset or 0) <= cleaned:
                return f"compacted up to offset {cleaned}, by each replica in its own time"
            return None
