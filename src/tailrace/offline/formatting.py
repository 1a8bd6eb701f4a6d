"""Format log directories, as Kafka's storage tool does for a quorum of static voters.

    all directories     bootstrap.checkpoint: the levels of features that the cluster begins with
    then each           meta.properties: cluster, node, and an id of the directory

A directory is formatted when it has its `meta.properties`. A crash before that leaves it
unformatted, and the next attempt writes its files again.
"""

import random
import uuid
from collections.abc import Mapping, Sequence

from tailrace.cluster.bootstrap import write_bootstrap_file
from tailrace.cluster.metadata.features import (
    FEATURES,
    NEWEST_METADATA_VERSION,
    LevelChange,
    initial_levels,
    plan_levels,
)
from tailrace.cluster.metadata.image import METADATA_VERSION, MetadataImage
from tailrace.cluster.metadata.proof import METADATA_FOLDER
from tailrace.errors import DirectoryError
from tailrace.runtime.clock import Clock
from tailrace.runtime.files import Files
from tailrace.storage import names
from tailrace.storage.checkpoints import parse_topic_id
from tailrace.storage.directories import (
    MetaProperties,
    id_text,
    read_identity,
    unusable,
    write_identity,
)
from tailrace.values import dataclass

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
        known = {each: _checked(files, each, wanted) for each in directories}
        if len(known) < len(directories):
            raise DirectoryError("a directory is given twice")
        cluster_id, node_id = _node(known, wanted, chance)
        new = [each for each in known if known[each] is None]
        now_ms = clock.now_ms()
        for at in new:
            files.make_directory(at)
            write_bootstrap_file(files, at, MetadataImage(features=wanted.levels), now_ms=now_ms)
        identities = {}
        for at in new:
            identity = MetaProperties(
                cluster_id=cluster_id, node_id=node_id, directory_id=_random_id(chance)
            )
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
    if cluster_id is not None:
        try:
            parse_topic_id(cluster_id)
        except ValueError as error:
            raise DirectoryError(
                f"{cluster_id!r} is no cluster id; it has to be 22 letters of base64, as those "
                "that kafka-storage random-uuid prints"
            ) from error
    for path, identity in known.items():
        if identity is None:
            continue
        cluster_id = identity.cluster_id if cluster_id is None else cluster_id
        node_id = identity.node_id if node_id is None else node_id
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
    return id_text(uuid.UUID(int=chance.getrandbits(128), version=4))
