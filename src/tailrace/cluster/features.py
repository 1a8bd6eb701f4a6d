"""Features of a cluster (KIP-584): the levels that may be finalized, and those of a new cluster.

    metadata.version   which records the metadata log has; 30 is that of Kafka 4.3
    others             what brokers and clients may use: group.version, transaction.version ...

A level of 0 is a feature that is not in use, and no record says so.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from tailrace.cluster.metadata.image import METADATA_VERSION
from tailrace.errors import DirectoryError


class Feature(NamedTuple):
    """The levels of a feature."""

    lowest: int
    highest: int
    initial: tuple[tuple[int, int], ...] = ()
    """Levels that a new cluster begins with: each with its first level of `metadata.version`."""


FEATURES: Final[Mapping[str, Feature]] = {
    METADATA_VERSION: Feature(7, 30),
    "eligible.leader.replicas.version": Feature(0, 1, ((26, 1),)),
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


def initial_levels(metadata_version: int = NEWEST_METADATA_VERSION) -> dict[str, int]:
    """The levels of a new cluster, in the order in which Kafka's storage tool writes them."""
    levels = {METADATA_VERSION: metadata_version}
    for name, feature in FEATURES.items():
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
        feature = FEATURES.get(name)
        if feature is None or not feature.lowest <= level <= feature.highest:
            known = "no such feature" if feature is None else f"{feature.lowest} to {feature[1]}"
            raise DirectoryError(
                f"{folder}: {name} is at level {level}, and this release knows {known}; start the "
                "release that wrote it, or a newer one of Tailrace; nothing was changed"
            )
