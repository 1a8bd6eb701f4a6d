"""The state of a cluster that the files of its metadata log prove, read without changing them.

    newest whole snapshot, or the beginning of the log -> every batch after it that is whole

Damage below the snapshot costs nothing. Above it the state ends where the first batch is missing.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from copy import copy
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from tailrace.cluster.metadata.delta import MetadataFaultError
from tailrace.cluster.metadata.image import ImageChange
from tailrace.cluster.metadata.replay import MetadataReplay
from tailrace.cluster.metadata.snapshot_files import SnapshotFile, find_snapshots, load_snapshot
from tailrace.errors import CorruptionError, DirectoryError, UnsupportedCodecError
from tailrace.model import METADATA_TOPIC, Offset, TopicPartition
from tailrace.protocol.errors import MalformedRecordError, UnknownRecordError
from tailrace.records.batch import Batch, UnsupportedMagicError
from tailrace.runtime.files import Files
from tailrace.storage.names import LOG_SUFFIX, parse_segment_file_name, segment_file_name
from tailrace.storage.walk import walk_batches
from tailrace.values import dataclass, field

if TYPE_CHECKING:
    from tailrace.reading.located import Skipped

PARTITION: Final = TopicPartition(METADATA_TOPIC, 0)
METADATA_FOLDER: Final = f"{METADATA_TOPIC}-0"
"""The folder of the metadata log in its log directory."""
_DAMAGED: Final = (CorruptionError, MalformedRecordError)
_NOT_OURS: Final = (
    UnknownRecordError,
    MetadataFaultError,
    UnsupportedCodecError,
    UnsupportedMagicError,
)


class LostMetadataError(DirectoryError):
    """No state can be proven from the files, or it is of a later release; nothing was changed."""


@dataclass(slots=True, kw_only=True)
class MetadataProof:
    """The state that the files prove."""

    replay: MetadataReplay = field(default_factory=MetadataReplay)
    """After the last batch that is proven."""
    removed_topics: frozenset[UUID] = frozenset()
    """Ids of the topics that batches after the snapshot have removed."""
    bytes_since_snapshot: int = 0
    """Size of the batches after the snapshot."""
    has_lost_records: bool = False
    """Whether there are sound batches after the damage: the state lacks what was acknowledged."""
    damaged: list[SnapshotFile] = field(default_factory=list)
    """Snapshots that are newer than the one used, and cannot be read."""
    snapshot_offset: int = 0
    """End of the snapshot that was used; 0: none."""
    is_whole: bool = True
    """Whether all bytes of the log are right, below the snapshot too: `open_log` cuts none."""


def prove_metadata(files: Files, folder: str, *, report: Callable[[str], None]) -> MetadataProof:
    """The state that the files of a folder prove; an empty one if there are none.

    `report` gets a sentence for each file that is damaged, and where the log ends for that.

    Raises:
        LostMetadataError: the log does not reach back to a whole snapshot or to its beginning, its
            beginning is damaged, or a record is not known to this release, or contradicts those
            before it.
        OSError: a file cannot be read.
    """
    proof = MetadataProof()
    if not files.is_directory(folder):
        return proof
    base = newest_snapshot(files, folder, report=report)
    proof.replay, proof.damaged = base.replay, list(base.damaged)
    proof.snapshot_offset = base.replay.next_offset
    try:
        _replay_log(files, folder, proof, base=base.file, report=report)
    except (*_NOT_OURS, *_DAMAGED) as error:
        raise _unreplayable(folder, proof.replay.next_offset, error) from error
    return proof


class SnapshotBase(NamedTuple):
    """The snapshot that a replay begins with."""

    replay: MetadataReplay
    """The state that it has; an empty one without a snapshot."""
    file: SnapshotFile | None
    damaged: tuple[SnapshotFile, ...]
    """Newer snapshots, which cannot be read."""


def newest_snapshot(files: Files, folder: str, *, report: Callable[[str], None]) -> SnapshotBase:
    """Load the newest snapshot of a folder that is whole.

    `report` gets a sentence for each that is damaged.

    Raises:
        LostMetadataError: a record is not known to this release, or contradicts those before it.
        OSError: a file cannot be read.
    """
    damaged: list[SnapshotFile] = []
    # The newest that is whole: an older one proves the same, with more of the log to replay.
    for found in reversed(find_snapshots(files, folder)):
        try:
            read = load_snapshot(files, found)
        except _DAMAGED as error:
            report(f"{found.path} is damaged and left out: {error}")
            damaged.append(found)
            continue
        except _NOT_OURS as error:
            raise _unreplayable(folder, 0, error) from error
        replay = MetadataReplay(read.image, next_offset=found.next_offset, epoch=found.epoch)
        replay.timestamp = read.log_timestamp
        # The batch that named them may be gone with the log below the snapshot.
        if read.voters is not None:
            replay.quorum = {"VotersRecord": read.voters}
        return SnapshotBase(replay, found, tuple(damaged))
    return SnapshotBase(MetadataReplay(), None, tuple(damaged))


def _unreplayable(folder: str, offset: int, error: Exception) -> LostMetadataError:
    # A record that cannot be read, in a batch with the right checksum, was written like that.
    return LostMetadataError(
        f"{folder} cannot be replayed from offset {offset} on: {error}; start the release that "
        "wrote it; nothing was changed"
    )


def _replay_log(
    files: Files,
    folder: str,
    proof: MetadataProof,
    *,
    base: SnapshotFile | None,
    report: Callable[[str], None],
) -> None:
    bases = _base_offsets(files.list(folder))
    # The usual case, without the modules that read around damage.
    if bases and _replay_whole(files, folder, bases, proof=proof):
        return
    from tailrace.reading.view import open_view

    damage: list[Skipped] = []
    log = None
    if bases:
        proof.is_whole = False
        # Kafka keeps no other log start of it than its first segment.
        log = open_view(
            files, folder, PARTITION, on_skip=damage.append, log_start_offset=Offset(bases[0])
        )
    replay = proof.replay
    start = 0 if log is None else log.reader.start_offset
    if start > replay.next_offset or (log is None and base is None and proof.damaged):
        begin = "there is no log" if log is None else f"the log begins at offset {start}"
        raise _lost(folder, begin, base)
    if log is None:
        if replay.next_offset > 0:
            report(
                f"{folder} has no log; the state is that of the snapshot, at {replay.next_offset}"
            )
        return
    gaps: list[str] = []

    def later_batches() -> Iterator[Batch]:
        for stored in log.batches(Offset(start), log.reader.end_offset):
            batch = stored.batch
            if batch.next_offset <= replay.next_offset:
                continue
            # What follows a gap may depend on what is lost in it: the state ends here.
            if batch.base_offset > replay.next_offset:
                gaps.append(f"the log is damaged at offset {replay.next_offset}")
                return
            proof.bytes_since_snapshot += batch.size
            yield batch

    _note_removed(proof, replay.see_all(later_batches()))
    if gaps and not replay.image.features:
        raise _lost(folder, gaps[0], base)
    proof.has_lost_records = bool(gaps)
    log.finish()
    for each in damage:
        report(
            f"{each.file} is damaged at byte {each.position}: {each.reason}; the state is proven "
            f"up to offset {replay.next_offset}"
        )


def _lost(folder: str, log: str, base: SnapshotFile | None) -> LostMetadataError:
    whole = "no snapshot is whole" if base is None else f"the newest whole one is {base.path}"
    return LostMetadataError(
        f"{folder}: {log} and {whole}, so the state of the cluster cannot be proven; restore the "
        "folder from a backup; nothing was changed"
    )


def _base_offsets(found: Iterable[str]) -> list[int]:
    """The base offsets of the segments among these files, rising."""
    parsed = filter(None, map(parse_segment_file_name, found))
    return sorted(base for base, suffix in parsed if suffix == LOG_SUFFIX)


def _replay_whole(files: Files, folder: str, bases: Sequence[int], *, proof: MetadataProof) -> bool:
    """Replay a log all of whose bytes are right; False if they are not, and nothing is replayed.

    It says nothing of damage, and needs no module that a broker does not start with.
    """
    replay, sizes = copy(proof.replay), [0]
    if replay.next_offset < bases[0]:
        return False

    def batches() -> Iterator[Batch]:
        end_offset = bases[0]
        for base in bases:
            path = f"{folder}/{segment_file_name(base, LOG_SUFFIX)}"
            if base != end_offset:
                raise CorruptionError("a segment is missing before it", path=path)
            end = 0
            with closing(files.open(path, read_only=True)) as file:
                size = file.size()
                for position, batch in walk_batches(file, path, start=0, limit=size):
                    end = position + batch.size
                    is_seen = batch.next_offset <= replay.next_offset
                    if batch.base_offset != end_offset or (
                        not is_seen and batch.base_offset < replay.next_offset
                    ):
                        raise CorruptionError("batches are missing", path=path, position=position)
                    end_offset = batch.next_offset
                    if is_seen:
                        batch.check()
                    else:
                        sizes.append(batch.size)
                        yield batch
            if end < size:
                raise CorruptionError("the last batch is not whole", path=path, position=end)

    try:
        change = replay.see_all(batches())
    except _DAMAGED:
        return False
    except _NOT_OURS:
        proof.replay = replay
        raise
    proof.replay, proof.bytes_since_snapshot = replay, sum(sizes)
    _note_removed(proof, change)
    return True


def _note_removed(proof: MetadataProof, change: ImageChange) -> None:
    # Those that were made and removed again too: their folders may be there.
    proof.removed_topics = (change.topics or frozenset()) - proof.replay.image.topics.keys()
