"""Format log directories and say whose they are, as Kafka's storage tool does.

    all directories     bootstrap.checkpoint: the levels of features that the cluster begins with
    then each           meta.properties: cluster, node, and an id of the directory

A directory is formatted when it has its `meta.properties`. A crash before that leaves it
unformatted, and the next attempt writes its files again.

No voter is named, as with `--no-initial-controllers` of Kafka's tool (KIP-853): a controller of
ours names itself in its log at its first start (`broker.controller.log_start`).

`storage_info` reads only and takes no lock, so a broker may be at work.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from tailrace.cluster.bootstrap import FILE as BOOTSTRAP
from tailrace.cluster.bootstrap import first_image, write_bootstrap_file
from tailrace.cluster.metadata.features import (
    FEATURES,
    NEWEST_METADATA_VERSION,
    LevelChange,
    initial_levels,
    plan_levels,
)
from tailrace.cluster.metadata.image import METADATA_VERSION, MetadataImage, ScramUser
from tailrace.cluster.metadata.proof import METADATA_FOLDER
from tailrace.cluster.metadata.quorum_state import QuorumState, read_quorum_state
from tailrace.cluster.metadata.snapshot_files import SnapshotFile, find_snapshots
from tailrace.errors import CorruptionError, DirectoryError
from tailrace.offline.cat import readable
from tailrace.offline.metadata_state import END, NoMetadataError, damage_text, metadata_state
from tailrace.runtime.clock import Clock
from tailrace.runtime.files import Files
from tailrace.runtime.ids import random_uuid
from tailrace.storage import names
from tailrace.storage.directories import (
    CLUSTER_ID,
    MetaProperties,
    clean_stop_epoch,
    id_text,
    read_identity,
    unusable,
    write_identity,
)
from tailrace.values import dataclass

if TYPE_CHECKING:
    from tailrace.protocol.metadata_records import UserScramCredentialRecord

DEFAULT_NODE_ID = 1
"""The node that a directory is formatted for if none is given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The node that directories are formatted for; None: that of those that are formatted."""

    cluster_id: str | None = None
    """None where none is formatted: a random one."""
    node_id: int | None = None
    """None where none is formatted: `DEFAULT_NODE_ID`."""
    levels: Mapping[str, int]
    """Levels of features, `metadata.version` among them."""
    scram: "Mapping[ScramUser, UserScramCredentialRecord]" = MappingProxyType({})
    """SCRAM credentials with which the cluster begins."""
    ignores_formatted: bool = False
    """Whether directories that are formatted stay as they are, instead of being an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Formatted:
    """A directory after it was formatted."""

    path: str
    identity: MetaProperties
    is_new: bool
    """Whether it was formatted now."""


def levels_of(release: int | None, given: Mapping[str, int]) -> dict[str, int]:
    """The levels of a new cluster: those of a release, the newest by default, and others given.

    Raises:
        FeatureUpdateError: an unknown feature or level, or two that exclude each other.
    """
    newest = NEWEST_METADATA_VERSION if release is None else release
    level = given.get(METADATA_VERSION, newest)
    wanted = {METADATA_VERSION: level, **initial_levels(level), **given}
    # In the order of the known features, since some need the level of an earlier one.
    order = [
        *filter(wanted.__contains__, FEATURES),
        *(each for each in given if each not in FEATURES),
    ]
    changes = {name: LevelChange(wanted[name]) for name in order}
    return plan_levels(MetadataImage(), changes, node_id=DEFAULT_NODE_ID)


def format_directories(
    files: Files,
    directories: Sequence[str],
    wanted: Wanted,
    *,
    clock: Clock,
    chance: random.Random,
) -> tuple[Formatted, ...]:
    """Format directories, which are made if they are not there; on the device on return.

    Raises:
        DirectoryError: nothing was changed: one is given twice, is formatted already, has a
            metadata log or partitions of an unknown node, or is of another node or cluster; the
            cluster id is none. Or one cannot be read or written.
    """
    at = directories[0]
    try:
        # All of them before the first is changed.
        known = {each: _checked(files, each, wanted) for each in directories}
        # A dict by path has lost the second one.
        if len(known) < len(directories):
            raise DirectoryError("a directory is given twice")
        cluster_id, node_id = _node(known, wanted, chance)
        new = [each for each in known if known[each] is None]
        now_ms = clock.now_ms()
        for at in new:
            files.make_directory(at)
            # Before any identity: a directory without `meta.properties` can be formatted again.
            image = MetadataImage(features=wanted.levels, scram=wanted.scram)
            write_bootstrap_file(files, at, image, now_ms=now_ms)
        identities = {}
        for at in new:
            identity = MetaProperties(
                cluster_id=cluster_id, node_id=node_id, directory_id=_random_id(chance)
            )
            # Each has a directory id of its own (KIP-858), and all have the same node and cluster.
            write_identity(files, at, identity)
            identities[at] = identity
    except DirectoryError:
        raise
    except OSError as error:
        raise unusable(at, error) from error
    return tuple(
        Formatted(path=path, identity=found or identities[path], is_new=found is None)
        for path, found in known.items()
    )


def _checked(files: Files, path: str, wanted: Wanted) -> MetaProperties | None:
    """The identity of a directory that stays as it is; None for one that can be formatted."""
    if not files.exists(path):
        return None
    identity = read_identity(files, path)
    if identity is not None:
        if not wanted.ignores_formatted:
            raise DirectoryError(
                f"{path} is formatted already, for node {identity.node_id} of cluster "
                f"{identity.cluster_id}; add --ignore-formatted to leave it as it is"
            )
        return identity
    # A new identity would make another cluster of the records that are there.
    for name in files.list(path):
        if name == METADATA_FOLDER:
            raise DirectoryError(
                f"{path} has a metadata log and no {names.META_PROPERTIES}; restore that file from "
                "a backup"
            )
        if names.parse_partition_directory_name(name) and files.is_directory(f"{path}/{name}"):
            raise DirectoryError(
                f"{path} has partitions, such as {name}, and no {names.META_PROPERTIES}; tailrace "
                "serve takes them over, and needs no format"
            )
    return None


def _node(
    known: Mapping[str, MetaProperties | None], wanted: Wanted, chance: random.Random
) -> tuple[str, int]:
    """The cluster id and the node id of all directories."""
    cluster_id, node_id = wanted.cluster_id, wanted.node_id
    # As in Kafka an id need not be one of those that its tool makes, such as 22 letters of base64.
    if cluster_id is not None and CLUSTER_ID.fullmatch(cluster_id) is None:
        raise DirectoryError(
            f"{cluster_id!r} is no cluster id; it has to be a word of up to 255 ASCII characters "
            "without spaces and backslashes"
        )
    for path, identity in known.items():
        if identity is None:
            continue
        cluster_id = identity.cluster_id if cluster_id is None else cluster_id
        node_id = identity.node_id if node_id is None else node_id
        # The first one decides where none was asked for, and so the others are held against it.
        if (identity.cluster_id, identity.node_id) != (cluster_id, node_id):
            raise DirectoryError(
                f"{path} belongs to node {identity.node_id} of cluster {identity.cluster_id}, and "
                f"not to node {node_id} of cluster {cluster_id}"
            )
    return (
        _random_id(chance) if cluster_id is None else cluster_id,
        DEFAULT_NODE_ID if node_id is None else node_id,
    )


def _random_id(chance: random.Random) -> str:
    # Of version 4, as those that Kafka's own tool makes.
    return id_text(random_uuid(chance))


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
    """The offset after the last record."""
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
    files: Files, directories: Sequence[str], *, report: Callable[[str], None]
) -> StorageInfo:
    """Look at log directories; `report` gets a sentence for each file that is damaged.

    Raises:
        DirectoryError: one cannot be read, or a file in it cannot be understood.
        UnknownRecordError: the metadata log has records of a later release.
    """
    with readable(directories[0]):
        listed = {each: files.list(each) for each in directories}
        found = tuple(_directory(files, path, inside) for path, inside in listed.items())
        homes = [path for path, inside in listed.items() if METADATA_FOLDER in inside]
        metadata = _metadata(files, homes[0], report=report) if homes else None
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


def _metadata(files: Files, home: str, *, report: Callable[[str], None]) -> MetadataInfo | None:
    """The metadata log of a directory; None if it has no state."""
    folder = f"{home}/{METADATA_FOLDER}"
    try:
        quorum = read_quorum_state(files, folder)
    except CorruptionError as error:
        report(str(error))
        quorum = None
    try:
        state = metadata_state(files, folder, END, on_skip=lambda each: report(damage_text(each)))
    except NoMetadataError:
        return None
    # A log of a quorum's own records alone, which has no state of a cluster yet.
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
