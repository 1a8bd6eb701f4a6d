"""The topics of a job: whether they are those that it has begun, and what is left of them; pure.

A manifest says by topic, partition and offset how far a job has come. A topic that was deleted and
created again, and one of another cluster, have the same name and other records at these offsets. So
the settings of the manifest have the identity of each topic that the job has begun:

    "sources": {"flights": {"topic_id": "4L6g3nShT-eMCtK--X86sw", "cluster_id": "vPeOCWypqUO…"}}

Topic ids decide, as no other topic ever gets one again. Where one of the two is not known, or is
an id that each cluster has, those of the clusters decide: a directory without `meta.properties` and
a broker before Kafka 2.8 do not tell all.

Not here: asking for the ids (`stores`).

Invariants: a job that has begun a topic reads or writes no other of its name, as far as ids tell;
where they do not, a line says so. No offset below the end that a job has noted is taken again.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import field, replace
from itertools import pairwise
from typing import Any, Final
from uuid import UUID

from tailrace.errors import ConfigError
from tailrace.model import TopicPartition
from tailrace.spark.jobs.manifest import Manifest
from tailrace.spark.losses import is_other_topic
from tailrace.spark.offsets import (
    Extent,
    LateStart,
    OffsetAt,
    find_late_starts,
    resolve_ranges,
)
from tailrace.spark.options import Bound, Point, PointKind, SourceOptions
from tailrace.spark.planning import OffsetRange
from tailrace.storage.checkpoints import format_topic_id, parse_topic_id
from tailrace.values import dataclass

SOURCES: Final = "sources"
"""The setting of a manifest with the topics that a job reads."""

TARGETS: Final = "targets"
"""The setting of a manifest with the topics that a job writes."""

_OF_EACH_CLUSTER: Final = UUID(int=1)
"""The id of the metadata log, in every cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicIdentity:
    """The ids that tell a topic from others of its name; None is not known."""

    topic_id: UUID | None = None
    cluster_id: str | None = None

    def __str__(self) -> str:
        topic = "of unknown id" if self.topic_id is None else format_topic_id(self.topic_id)
        return f"topic {topic} of cluster {self.cluster_id or 'of unknown id'}"

    def is_other(self, found: "TopicIdentity") -> bool:
        """Whether the two are not the same topic; False too where nobody knows."""
        # The metadata log has the same id in every cluster, so it proves nothing.
        ids = self.topic_id, found.topic_id
        if None not in ids and ids != (_OF_EACH_CLUSTER,) * 2:
            return self.topic_id != found.topic_id
        clusters = self.cluster_id, found.cluster_id
        return None not in clusters and self.cluster_id != found.cluster_id

    def is_comparable(self, found: "TopicIdentity") -> bool:
        """Whether it is certain that the two are the same, if they are not others."""
        ids = self.topic_id, found.topic_id
        clusters = self.cluster_id, found.cluster_id
        return None not in ids and (ids != (_OF_EACH_CLUSTER,) * 2 or None not in clusters)

    def is_here(self, found: "TopicIdentity") -> bool:
        """Whether the topic of the same name is certainly this one, of one cluster."""
        is_one_cluster = self.cluster_id is not None and self.cluster_id == found.cluster_id
        return is_one_cluster and not self.is_other(found)

    def or_else(self, found: "TopicIdentity") -> "TopicIdentity":
        """This identity, with what is not known from another one of the same topic."""
        return TopicIdentity(
            topic_id=self.topic_id or found.topic_id, cluster_id=self.cluster_id or found.cluster_id
        )


Identities = Mapping[str, TopicIdentity]
"""Identities by the names of topics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The topics of a job as its manifest has them, held against those that are there."""

    others: dict[str, str] = field(default_factory=dict)
    """Why a topic is not the one that the job has begun, by its name."""
    unchecked: list[str] = field(default_factory=list)
    """A sentence for each topic that the job has begun and of which that is not known."""
    noted: dict[str, TopicIdentity] = field(default_factory=dict)
    """The identities of all topics for the manifest, from now on."""

    def faults(self, advice: str) -> list[str]:
        return [f"{topic}: {reason}; {advice}" for topic, reason in self.others.items()]


def identities_of(
    extents: Mapping[TopicPartition, Extent], cluster_id: Callable[[TopicPartition], str | None]
) -> dict[str, TopicIdentity]:
    """The identities of the topics of these partitions.

    Raises:
        ConfigError: partitions of a name are of several topics, as in directories that have been
            put together.
    """
    found: dict[str, TopicIdentity] = {}
    faults = []
    for partition, extent in sorted(extents.items()):
        here = TopicIdentity(topic_id=extent.topic_id, cluster_id=cluster_id(partition))
        before = found.setdefault(partition.topic, here)
        if is_other_topic(before.topic_id, here.topic_id):
            faults.append(
                f"{partition} is of {here}, and other partitions are of {before}; choose those of "
                "one topic with assign"
            )
        found[partition.topic] = before.or_else(here)
    if faults:
        raise ConfigError(faults)
    return found


def parse_identities(settings: Mapping[str, Any], name: str) -> dict[str, TopicIdentity]:
    """The identities in the settings of a manifest; none in one that is older than they are."""
    return {
        topic: TopicIdentity(
            topic_id=None if each["topic_id"] is None else parse_topic_id(each["topic_id"]),
            cluster_id=each["cluster_id"],
        )
        for topic, each in settings.get(name, {}).items()
    }


def format_identities(identities: Identities) -> dict[str, dict[str, str | None]]:
    return {
        topic: {
            "topic_id": None if each.topic_id is None else format_topic_id(each.topic_id),
            "cluster_id": each.cluster_id,
        }
        for topic, each in sorted(identities.items())
    }


def note_identities(manifest: Manifest, **identities: Identities) -> None:
    """Note topics as settings of a manifest, if they are not what it has.

    A job calls it before its first range, so that none counts whose topic is not known.
    """
    noted = {name: format_identities(each) for name, each in identities.items()}
    if noted != {name: manifest.settings.get(name, {}) for name in noted}:
        manifest.add([], settings=noted)


def compare_identities(
    noted: Identities, found: Identities, *, begun: Collection[str], what: str
) -> Comparison:
    """Hold the topics that are there against those that a job has `begun`.

    `what` is what the job has of them, as in "the archive has records".
    """
    result = Comparison(noted={**noted})
    for topic, here in sorted(found.items()):
        known = noted.get(topic, TopicIdentity())
        # Nothing of it counts yet, so it may be any topic of the name.
        if topic not in begun:
            result.noted[topic] = here
        elif known.is_other(here):
            result.others[topic] = (
                f"{what} of {known}, and this is {here}: it was deleted and created again, or is "
                "another cluster's"
            )
        else:
            # A broker that was upgraded tells ids that the manifest lacks; from now on they are
            # checked.
            result.noted[topic] = known.or_else(here)
            if not known.is_comparable(here):
                result.unchecked.append(_unchecked(topic, known, here, what=what))
    return result


def known_identities(identities: Identities, topics: Collection[str]) -> Identities:
    """The identities of some topics, as far as anything is known of them."""
    return {
        name: each
        for name, each in identities.items()
        if name in topics and each != TopicIdentity()
    }


def _unchecked(topic: str, known: TopicIdentity, here: TopicIdentity, *, what: str) -> str:
    if here.topic_id is None:
        reason = "the log does not tell its topic id"
    elif known.topic_id is None:
        reason = (
            f"its manifest has no topic id; it has {format_topic_id(here.topic_id)} from now on"
        )
    else:
        reason = "its id is the same in each cluster, and the cluster is not known"
    return f"{topic}: {what}, and whether of this topic is not checked: {reason}"


def remaining_ranges(
    options: SourceOptions,
    extents: Mapping[TopicPartition, Extent],
    *,
    ends: Mapping[TopicPartition, int],
    offset_at: OffsetAt,
    noted_as: str,
) -> dict[TopicPartition, tuple[int, int]]:
    """Start and limit of what is left by partition; none is empty.

    A partition continues at its end in `ends`, or starts where the options say. `noted_as` replaces
    the option `startingOffsets` in messages about partitions that continue.

    Raises:
        ConfigError: as `resolve_ranges`.
    """
    # Before the first run there is nothing to continue, and all faults of the options are named by
    # them.
    if ends:
        points = {}
        for partition in extents:
            point = options.starting.point_or_none(partition)
            if partition in ends:
                point = Point(PointKind.OFFSET, ends[partition])
            if point is not None:
                points[partition] = point
        options = replace(options, starting=Bound(option=noted_as, of_partition=points))
    found = resolve_ranges(options, extents, offset_at=offset_at)
    return {
        partition: (start, limit) for partition, (start, limit) in found.items() if start < limit
    }


def late_starts(
    options: SourceOptions,
    extents: Mapping[TopicPartition, Extent],
    *,
    ends: Mapping[TopicPartition, int],
    noted_as: str,
) -> list[LateStart]:
    """The logs that begin above the end of a job, or above the offset that the options ask for.

    A partition that the job begins is asked for from offset 0 on, if it is from its earliest one.
    """
    noted = {each: Point(PointKind.OFFSET, end) for each, end in ends.items()}
    new = {each: extent for each, extent in extents.items() if each not in ends}
    return [
        *find_late_starts(Bound(option=noted_as, of_partition=noted), extents),
        *find_late_starts(options.starting, new, earliest=0),
    ]


def cut_evenly(whole: OffsetRange, count: int) -> list[OffsetRange]:
    """The range cut into `count` ranges of equal length, or into single offsets if it has fewer."""
    count = min(count, whole.length)
    # Whole numbers all the way: floats would lose offsets above 2**53.
    borders = [whole.start + whole.length * index // count for index in range(count + 1)]
    return [whole.part(start, limit) for start, limit in pairwise(borders)]
