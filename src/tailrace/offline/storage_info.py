"""`storage_info`: whose log directories are, and which metadata log they have.

Reads only, and takes no lock, so a broker may be at work.
"""

from collections.abc import Callable, Mapping, Sequence

from tailrace.cluster.bootstrap import FILE as BOOTSTRAP
from tailrace.cluster.bootstrap import first_image
from tailrace.cluster.metadata.image import MetadataImage
from tailrace.cluster.metadata.proof import METADATA_FOLDER
from tailrace.cluster.metadata.quorum_state import QuorumState, read_quorum_state
from tailrace.cluster.metadata.snapshot_files import SnapshotFile, find_snapshots
from tailrace.errors import CorruptionError
from tailrace.offline.cat import readable
from tailrace.offline.metadata_state import END, NoMetadataError, damage_text, metadata_state
from tailrace.runtime.files import Files
from tailrace.storage import names
from tailrace.storage.directories import MetaProperties, clean_stop_epoch, read_identity
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryInfo:
    """One log directory."""

    path: str
    identity: MetaProperties | None
    """None: it is not formatted."""
    stop_epoch: int | None
    """The broker epoch in the mark of an orderly stop; None without one, as while a broker runs."""
    partition_count: int
    """Number of partition folders."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataInfo:
    """The metadata log, or what a log without any state will begin with."""

    directory: str
    """The directory that has it."""
    image: MetadataImage
    start_offset: int | None
    """The first offset of its files; None: there is no log with a state yet."""
    next_offset: int | None
    """The offset behind the last record."""
    epoch: int | None
    """The epoch of the last record."""
    quorum: QuorumState | None
    """The content of `quorum-state`."""
    snapshots: tuple[SnapshotFile, ...]
    """Oldest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageInfo:
    """Several log directories of one node."""

    directories: tuple[DirectoryInfo, ...]
    metadata: MetadataInfo | None
    """None: there is neither a metadata log nor a `bootstrap.checkpoint`."""


def storage_info(
    files: Files, directories: Sequence[str], *, tell: Callable[[str], None]
) -> StorageInfo:
    """Look at log directories; `tell` is told in a sentence of each file that is damaged.

    Raises:
        DirectoryError: one cannot be read, or a file in it cannot be understood.
        UnknownRecordError: the metadata log has records of a later release.
    """
    with readable(directories[0]):
        listed = {each: files.list(each) for each in directories}
        found = tuple(_directory(files, path, inside) for path, inside in listed.items())
        homes = [path for path, inside in listed.items() if METADATA_FOLDER in inside]
        metadata = _metadata(files, homes[0], tell=tell) if homes else None
        if metadata is None:
            metadata = _beginning(files, listed)
        return StorageInfo(directories=found, metadata=metadata)


def _directory(files: Files, path: str, inside: Sequence[str]) -> DirectoryInfo:
    partitions = [
        each
        for each in inside
        if names.parse_partition_directory_name(each) is not None
        and not names.is_metadata_directory_name(each)
    ]
    return DirectoryInfo(
        path=path,
        identity=read_identity(files, path),
        stop_epoch=clean_stop_epoch(files, path),
        partition_count=len(partitions),
    )


def _metadata(files: Files, home: str, *, tell: Callable[[str], None]) -> MetadataInfo | None:
    """The metadata log of a directory; None if it has no state."""
    folder = f"{home}/{METADATA_FOLDER}"
    try:
        quorum = read_quorum_state(files, folder)
    except CorruptionError as error:
        tell(str(error))
        quorum = None
    try:
        state = metadata_state(files, folder, END, tell=lambda each: tell(damage_text(each)))
    except NoMetadataError:
        return None
    if not state.image.features:
        return None
    snapshots = tuple(find_snapshots(files, folder))
    segments = filter(None, map(names.parse_segment_file_name, files.list(folder)))
    bases = [base for base, suffix in segments if suffix == names.LOG_SUFFIX]
    return MetadataInfo(
        directory=home,
        image=state.image,
        start_offset=min(bases, default=state.next_offset),
        next_offset=state.next_offset,
        epoch=state.epoch,
        quorum=quorum,
        snapshots=snapshots,
    )


def _beginning(files: Files, listed: Mapping[str, Sequence[str]]) -> MetadataInfo | None:
    for path, inside in listed.items():
        if BOOTSTRAP in inside:
            return MetadataInfo(
                directory=path,
                image=first_image(files, path, min_insync_replicas="1"),
                start_offset=None,
                next_offset=None,
                epoch=None,
                quorum=None,
                snapshots=(),
            )
    return None
