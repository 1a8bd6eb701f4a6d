"""Features of a cluster (KIP-584): the levels that may be finalized, and those of a new cluster.

    metadata.version   which records the metadata log has; 30 is that of Kafka 4.3
    others             what brokers and clients may use: group.version, transaction.version ...

The level of metadata.version says in which version a record is written.

A level of 0 is a feature that is not in use, and no record says so.

`plan_levels` checks a change as Kafka's controller does: all of the request, or nothing.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from tailrace.cluster.metadata.image import METADATA_VERSION, MetadataImage
from tailrace.errors import DirectoryError, FatalError

if TYPE_CHECKING:
    from tailrace.protocol.metadata_records import BrokerFeature, ControllerFeature

ELIGIBLE_LEADERS: Final = "eligible.leader.replicas.version"
"""Name of the feature whose level says whether eligible leader replicas are kept (KIP-966)."""

KRAFT_VERSION: Final = "kraft.version"
"""Name of the feature that says where the voters are named. Control records have its level, so it
is in no image."""
KRAFT_VERSIONS: Final = (0, 1)
"""The lowest and the highest level of it that this release can continue with."""

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
"""Kinds of changes of a level, by Kafka's number (KIP-778)."""


class FeatureUpdateError(FatalError, ValueError):
    """A change of a level that the cluster does not allow; nothing has changed."""


class Feature(NamedTuple):
    """The levels of a feature."""

    lowest: int
    highest: int
    initial: tuple[tuple[int, int], ...] = ()
    """Levels that a new cluster begins with: each with its first level of `metadata.version`."""


# metadata.version begins with 3.3-IV3: Kafka 4 dropped all levels before it with ZooKeeper.
FEATURES: Final[Mapping[str, Feature]] = {
    METADATA_VERSION: Feature(7, 30),
    ELIGIBLE_LEADERS: Feature(0, 1, ((26, 1),)),
    "group.version": Feature(0, 1, ((22, 1),)),
    "share.version": Feature(0, 1, ((28, 1),)),
    "streams.version": Feature(0, 1, ((29, 1),)),
    "transaction.version": Feature(0, 2, ((24, 2),)),
}
"""Every feature of Apache Kafka 4.3, by name."""

NEWEST_METADATA_VERSION: Final = FEATURES[METADATA_VERSION].highest

METADATA_VERSIONS: Final[Mapping[str, int]] = {
    "3.3-IV3": 7, "3.4-IV0": 8, "3.5-IV0": 9, "3.5-IV1": 10, "3.5-IV2": 11, "3.6-IV0": 12,
    "3.6-IV1": 13, "3.6-IV2": 14, "3.7-IV0": 15, "3.7-IV1": 16, "3.7-IV2": 17, "3.7-IV3": 18,
    "3.7-IV4": 19, "3.8-IV0": 20, "3.9-IV0": 21, "4.0-IV0": 22, "4.0-IV1": 23, "4.0-IV2": 24,
    "4.0-IV3": 25, "4.1-IV0": 26, "4.1-IV1": 27, "4.2-IV0": 28, "4.2-IV1": 29, "4.3-IV0": 30,
}  # fmt: skip
"""Levels of `metadata.version`, by the name that Kafka's tools show."""


# Kafka marks them in its table of versions (`didMetadataChange`). Over none of the others can a
# downgrade lose a record.
_RECORDS_CHANGE_AT: Final = (8, 11, 13, 14, 15, 17, 23, 30)
"""Levels of `metadata.version` with records or fields that the level before does not have."""
_ELIGIBLE_LEADERS_SINCE: Final = 23
"""First level of `metadata.version` whose records can name eligible leader replicas."""


_REGISTER_BROKER: Final = ((30, 4), (17, 3), (8, 2), (0, 1))
"""First level of `metadata.version`, and the version of the record from there on."""
_PARTITION: Final = ((23, 2), (17, 1), (0, 0))
TRANSACTIONS_SINCE: Final = 13
"""First level at which several batches can count as one (KIP-868)."""


class LevelChange(NamedTuple):
    """A change that is asked for."""

    level: int
    """The new level; 0: the feature is not in use any more."""
    kind: int = UPGRADE
    """`UPGRADE`, `SAFE_DOWNGRADE` or `UNSAFE_DOWNGRADE`."""


def metadata_level(release: str) -> int:
    """The level of `metadata.version` of a release: 29 for `4.2`, `4.2.1` and `4.2-IV1`.

    Raises:
        ValueError: it is none, or one before 3.3-IV3, with which no cluster can begin.
    """
    if release in METADATA_VERSIONS:
        return METADATA_VERSIONS[release]
    major_minor = ".".join(release.split(".")[:2])
    levels = [
        level for name, level in METADATA_VERSIONS.items() if name.rpartition("-")[0] == major_minor
    ]
    if not levels:
        first, *_, last = METADATA_VERSIONS
        raise ValueError(
            f"{release!r} is no release that is known here; there are {first} to {last}, and the "
            "names without IV for the last of each"
        )
    return levels[-1]


def metadata_release(level: int) -> str | None:
    """The name of a level of `metadata.version`, as `4.2-IV1`; None if it is not known."""
    return next((name for name, each in METADATA_VERSIONS.items() if each == level), None)


def initial_levels(metadata_version: int = NEWEST_METADATA_VERSION) -> dict[str, int]:
    """The levels of a new cluster, in the order in which Kafka's storage tool writes them."""
    levels = {METADATA_VERSION: metadata_version}
    for name, feature in FEATURES.items():
        # A feature begins only with a level of metadata.version that has records for it.
        reached = [level for first, level in feature.initial if first <= metadata_version]
        if reached:
            levels[name] = reached[-1]
    return levels


def check_levels(levels: Mapping[str, int], *, folder: str) -> None:
    """Check that this release knows the levels of the cluster whose metadata log is in `folder`.

    Raises:
        DirectoryError: a feature or a level that is not known.
    """
    for name, level in levels.items():
        # To serve what is not understood would lose it with the next snapshot.
        feature = FEATURES.get(name)
        if feature is None or not feature.lowest <= level <= feature.highest:
            known = "no such feature" if feature is None else f"{feature.lowest} to {feature[1]}"
            raise DirectoryError(
                f"{folder}: {name} is at level {level}, and this release knows {known}; start the "
                "release that wrote it, or a newer one of Tailrace; nothing was changed"
            )


def plan_levels(
    image: MetadataImage,
    changes: Mapping[str, LevelChange],
    *,
    node_id: int,
    kraft_version: int | None = None,
) -> dict[str, int]:
    """The new level of each feature that changes; changes nothing.

    `node_id` is this node. The registrations of all others have to know the new levels too.
    `kraft_version` is in no image, and can only stay what it is; None: it is not known.

    Raises:
        FeatureUpdateError: the first change that is not allowed: an unknown feature, level or kind
            of change; a level that another node does not know; a lower level as an upgrade, or a
            higher one as a downgrade; a level of `metadata.version` that has no records for what
            the log may have already; eligible leader replicas without records for them.
    """
    planned = {**image.features, **{name: change.level for name, change in changes.items()}}
    for name, change in changes.items():
        if name == KRAFT_VERSION and change.level == kraft_version:
            continue
        reason = _refusal(image, name, change, node_id=node_id)
        if name == ELIGIBLE_LEADERS and change.level > 0 and reason is None:
            reached = planned.get(METADATA_VERSION, 0)
            if reached < _ELIGIBLE_LEADERS_SINCE:
                reason = f"it needs {METADATA_VERSION} {_ELIGIBLE_LEADERS_SINCE}, not {reached}"
        if reason is not None:
            raise FeatureUpdateError(
                f"{name} cannot get level {change.level}: {reason}; no feature was changed"
            )
    return {
        name: change.level
        for name, change in changes.items()
        if name != KRAFT_VERSION and change.level != image.features.get(name, 0)
    }


def _refusal(image: MetadataImage, name: str, change: LevelChange, *, node_id: int) -> str | None:
    """Why one change is not allowed, by itself; None if it is."""
    feature, current = FEATURES.get(name), image.features.get(name, 0)
    if change.kind not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        return f"there is no kind of change with the number {change.kind}"
    # It is in control records of the log's beginning, which nobody rewrites.
    if name == KRAFT_VERSION:
        return "the voters of a cluster are named where they were when it was formatted"
    if feature is None:
        return "this broker knows no such feature"
    if not feature.lowest <= change.level <= feature.highest:
        return f"this broker knows the levels {feature.lowest} to {feature.highest}"
    # A node that does not know the level could not read the records that come with it.
    for node, (lowest, highest) in _levels_of_others(image, name, node_id=node_id):
        if not lowest <= change.level <= highest:
            return f"{node} knows the levels {lowest} to {highest}"
    if change.level < current and change.kind == UPGRADE:
        return f"it is at level {current}, and the change is no downgrade"
    if change.level > current and change.kind != UPGRADE:
        return f"it is at level {current}, and the change is a downgrade"
    if name == METADATA_VERSION:
        for level in _RECORDS_CHANGE_AT:
            if change.level < level <= current:
                return f"the log may have records that are new in level {level}"
    return None


def _levels_of_others(
    image: MetadataImage, name: str, *, node_id: int
) -> Iterator[tuple[str, tuple[int, int]]]:
    """The lowest and highest level of a feature that each other node has registered."""
    for broker_id, broker in image.brokers.items():
        if broker_id != node_id:
            yield f"broker {broker_id}", _range_of(broker.features, name)
    for controller_id, controller in image.controllers.items():
        if controller_id != node_id:
            yield f"controller {controller_id}", _range_of(controller.features, name)


def _range_of(
    registered: "tuple[BrokerFeature, ...] | tuple[ControllerFeature, ...]", name: str
) -> tuple[int, int]:
    for each in registered:
        if each.name == name:
            return each.min_supported_version, each.max_supported_version
    return 0, 0


def register_broker_version(level: int) -> int:
    """The version in which RegisterBrokerRecord is written."""
    # Every node that has finalized the level can read it, whatever its release (KIP-584).
    return _version_at(_REGISTER_BROKER, level)


def partition_version(level: int) -> int:
    """The version in which PartitionRecord and PartitionChangeRecord are written."""
    return _version_at(_PARTITION, level)


def _version_at(versions: tuple[tuple[int, int], ...], level: int) -> int:
    return next(version for first, version in versions if level >= first)
