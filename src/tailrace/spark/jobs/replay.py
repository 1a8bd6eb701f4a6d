"""A topic again: from an archive, another topic or a directory into a topic, each record once.

    replay(
        spark, {"archive": "lake", "subscribe": "flights"}, {"bootstrap.servers": …},
        offset_map="moved",
    )

Keys, values, headers and timestamps are kept, and the order of the records of each source partition
that go to one partition of the target; with `keeps_partitions`, that is its own. The directory
`moved` gets the offset map (docs/formats/offset-map.md), by which a run continues where another one
ended or was killed, and by which consumers find their place in the target.

Each record is written exactly once, also when tasks are retried, run twice at a time, or outlive a
run that was killed; `replay_send` says how, and on which conditions. Others may write to the target
meanwhile. A replay with another offset map is another replay, and writes all again.

Not here: making topics. A replay's records are as old as in the source, and retention of a topic
with Kafka's defaults would delete them within minutes; so the user makes the target, and chooses
its retention.
Nor transactions: logs are read with `read_committed` unless the options say otherwise, and what was
in one transaction is not in one any more. Header names that are not UTF-8 get replacement
characters, and timestamps that int64 cannot hold in microseconds become the nearest that it can.

Invariant: what the manifest says was sent, is in the target, and the offset map has its place.
"""

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from tailrace.client.config import CLIENT_SETTINGS
from tailrace.client.producer.config import parse_producer_config
from tailrace.errors import ConfigError, FatalError
from tailrace.model import TopicPartition
from tailrace.spark.folder import open_folder
from tailrace.spark.jobs.manifest import Manifest, held_manifest
from tailrace.spark.jobs.replay_ends import (
    BrokerTarget,
    OpenSource,
    ReplaySource,
    TargetSettings,
    open_source,
)
from tailrace.spark.jobs.replay_plan import (
    NAME,
    REPLAYED,
    PlannedRange,
    entry_of,
    files_of,
    least_ends,
    plan_waves,
    progress_of,
    replay_ranges,
)
from tailrace.spark.jobs.replay_send import ReplayItem, ReplayTask, StagedSend, send_item
from tailrace.spark.jobs.topics import (
    SOURCES,
    TARGETS,
    Identities,
    TopicIdentity,
    compare_identities,
    identities_of,
    known_identities,
    late_starts,
    note_identities,
    parse_identities,
)
from tailrace.spark.jobs.work import Job, Progress, run_items
from tailrace.spark.offsets import LateStart
from tailrace.spark.options import SourceOptions, parse_job_options
from tailrace.spark.planning import OffsetRange
from tailrace.values import dataclass

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORMAT: Final = "tailrace.replay/1"

ARCHIVE: Final = "archive"
"""Option that names an archive to read, in place of the source's `path` or broker."""

_BEGIN_AGAIN: Final = (
    "choose another offset map, and a topic that has no records of this replay, to begin again"
)

# What else a producer has would change what is written: transactions, partitioners, interceptors.
_USED: Final = frozenset(each.name for each in CLIENT_SETTINGS) | {
    "batch.size", "max.request.size", "compression.type", "compression.level", "buffer.memory",
    "delivery.timeout.ms", "max.in.flight.requests.per.connection",
}  # fmt: skip

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySettings:
    """The target of a replay; it is the same in every run."""

    topics: Mapping[str, str] = field(default_factory=dict)
    """Target topics by source topics; those that are not named keep their names."""
    keeps_partitions: bool = False
    """Whether a record stays in the partition of its number; else its key decides."""

    def target(self, topic: str) -> str:
        """The topic that records of a topic of the source go to."""
        return self.topics.get(topic, topic)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySummary:
    """Counts of one run."""

    records: int = 0
    """Records that this run put into the target, or found there from an interrupted run."""
    found: int = 0
    """Records that an interrupted attempt had sent; they are counted in `records` too."""
    bytes: int = 0
    """Size of the batches that were sent."""
    ranges: int = 0
    gone: int = 0
    """Offsets that the source no longer had, so that the target lacks them, if they had records."""
    seconds: float = 0.0

    @property
    def records_per_second(self) -> int:
        """Records of this run in a second of it."""
        return int(self.records / self.seconds) if self.records else 0


def check_arguments(
    source_options: Mapping[str, str],
    producer_settings: Mapping[str, object],
    *,
    offset_map: str,
    settings: ReplaySettings,
) -> ReplayTask:
    """Check the arguments of a replay; returns what its tasks need.

    Raises:
        ConfigError: what is wrong with them, all of it.
    """
    faults: list[str] = []
    source = _source(source_options, faults)
    target = _target(producer_settings, faults)
    if not offset_map:
        faults.append("offset_map: a directory or a URI")
    else:
        try:
            offset_map = open_folder(offset_map).path
        except ConfigError as error:
            faults += error.faults
    # What a pattern matches, and whether two addresses are one cluster, is known after a broker was
    # asked: see `plan_replay`.
    if source is not None and target is not None and source.options.bootstrap == target.bootstrap:
        topics = getattr(source.options.selection, "names", ())
        faults += [_into_itself(topic) for topic in topics if settings.target(topic) == topic]
    if faults or source is None or target is None:
        raise ConfigError(faults)
    return ReplayTask(source=source, target=target, offset_map=offset_map)


def replay(
    spark: "SparkSession",
    source_options: Mapping[str, str],
    producer_settings: Mapping[str, object],
    *,
    offset_map: str,
    settings: ReplaySettings | None = None,
    progress: Progress | None = None,
) -> ReplaySummary:
    """Send what the source has now and the offset map at `offset_map`, a path or URI, has not.

    Options are those of the source `tailrace`, or `archive` with the directory of an archive and a
    selection; where it starts counts for the first run only. Settings of the producer have Kafka's
    names; the topics exist.

    Raises:
        ConfigError: faults of the arguments, all of them; the replay was begun with others; a topic
            does not exist, or has too few partitions to keep theirs; a topic is not the one that
            the replay has read or written, but has its name.
        FatalError: a topic of the target was deleted meanwhile; a condition of writing each record
            once does not hold, see `replay_send`; the broker refuses a record; an executor does not
            see what the driver sees.
        CorruptionError: the source is damaged, or a manifest.
        RetriableError: a broker cannot be reached; the same call continues later.
    """
    settings = settings or ReplaySettings()
    task = check_arguments(
        source_options, producer_settings, offset_map=offset_map, settings=settings
    )
    with ExitStack() as stack:
        manifest = stack.enter_context(
            held_manifest(task.offset_map, form=FORMAT, files_of=files_of, owned=NAME)
        )
        _settle(manifest, settings)
        source = stack.enter_context(closing(open_source(task.source)))
        target = stack.enter_context(closing(BrokerTarget(task.target)))
        plan = plan_replay(manifest, source, target, options=task.source.options, settings=settings)
        for each in [*plan.warnings, *map(str, plan.late)]:
            logger.warning("%s", each)
        note_identities(manifest, **{SOURCES: plan.sources, TARGETS: plan.targets})
        waves = plan_waves([wanted for wanted, _ in source.measure(plan.ranges)])
        job = Job(
            spark,
            directories=task.source.options.directories,
            target=task.offset_map,
            progress=progress,
        )
        # Set at once, because ranges are planned round by round.
        job.meter.total = sum(each.limit - each.start for each in plan.pending)
        job.meter.total += sum(each.length for wave in waves for each in wave)
        run = _Run(job, manifest, task, plan=plan, settings=settings, source=source, target=target)
        summary = ReplaySummary(gone=sum(each.missing for each in plan.late))
        for planned in run.planned_rounds(waves):
            summary = _added(summary, run.send(planned))
            job.meter.advance(sum(each.limit - each.start for each in planned))
        return replace(summary, seconds=job.seconds)


class _Run:
    """One call of `replay`, after its plan."""

    def __init__(
        self,
        job: Job,
        manifest: Manifest,
        task: ReplayTask,
        *,
        plan: "ReplayPlan",
        settings: ReplaySettings,
        source: OpenSource,
        target: BrokerTarget,
    ) -> None:
        self._job = job
        self._manifest = manifest
        self._task = task
        self._plan = plan
        self._settings = settings
        self._source = source
        self._target = target

    def planned_rounds(
        self, waves: Sequence[Sequence[OffsetRange]]
    ) -> Iterator[Sequence[PlannedRange]]:
        """Ranges for one Spark job after another; each is in the manifest before its job starts."""
        size = self._job.round_size
        # First what was interrupted: its records come before all others of its partition.
        pending = self._plan.pending
        for start in range(0, len(pending), size):
            yield pending[start : start + size]
        for wave in waves:
            for start in range(0, len(wave), size):
                planned = self._planned(wave[start : start + size])
                self._manifest.add([entry_of(each) for each in planned])
                yield planned

    def _planned(self, ranges: Sequence[OffsetRange]) -> list[PlannedRange]:
        targets: list[list[TopicPartition]] = []
        for each in ranges:
            name = self._settings.target(each.partition.topic)
            numbers = range(self._plan.counts[name])
            if self._settings.keeps_partitions:
                numbers = range(each.partition.partition, each.partition.partition + 1)
            targets.append([TopicPartition(name, number) for number in numbers])
        # Asked once for a round, before any of its tasks begins: the ends are where a resumed
        # attempt looks for its records.
        ends = self._target.ends({each for found in targets for each in found})
        return [
            self._planned_range(each, {target: ends[target] for target in found})
            for each, found in zip(ranges, targets, strict=True)
        ]

    def _planned_range(
        self, wanted: OffsetRange, ends: Mapping[TopicPartition, int]
    ) -> PlannedRange:
        name = self._settings.target(wanted.partition.topic)
        # An id for each range, never used again: its sequence numbers then count the records of the
        # range.
        producer_id, producer_epoch = self._target.new_producer()
        return PlannedRange(
            topic=wanted.partition.topic,
            partition=wanted.partition.partition,
            start=wanted.start,
            limit=wanted.limit,
            target=name,
            partition_count=self._plan.counts[name],
            keeps_partition=self._settings.keeps_partitions,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            since={each.partition: end for each, end in ends.items()},
        )

    def send(self, planned: Sequence[PlannedRange]) -> list[StagedSend]:
        """One round; first the names, then the manifest."""
        wanted = self._source.measure({each.source: (each.start, each.limit) for each in planned})
        items = [
            ReplayItem(planned=each, wanted=found)
            for each, found in zip(planned, wanted, strict=True)
        ]
        staged = run_items(self._job.spark, items, partial(send_item, self._task))
        # Before anything counts: a topic that was deleted and made again has none of what was
        # acknowledged.
        self._check_targets({each.target for each in planned})
        self._manifest.folder.publish(
            {written: final for each in staged for written, final in each.renamed.items()}
        )
        self._manifest.add([entry_of(each.entry) for each in staged])
        return staged

    def _check_targets(self, topics: Collection[str]) -> None:
        """Find that what was sent since the run began is in the topics that it began with.

        Raises:
            FatalError: one was deleted since; no id comes back.
        """
        found = self._target.identities(topics)
        for name in sorted(topics):
            known = self._plan.targets.get(name, TopicIdentity())
            if name not in found or known.is_other(found[name]):
                raise FatalError(
                    f"topic {name!r} was deleted while a replay sent to it, and records with it; "
                    f"{_BEGIN_AGAIN}"
                )


def check_replay(task: ReplayTask, settings: ReplaySettings) -> None:
    """Raise what would end a replay before its first record, without Spark.

    Raises:
        ConfigError, FatalError, CorruptionError, RetriableError: as `replay`.
    """
    manifest = Manifest.open(open_folder(task.offset_map), form=FORMAT)
    faults = _changed_settings(manifest, settings)
    if faults:
        raise ConfigError(faults)
    with (
        closing(open_source(task.source)) as source,
        closing(BrokerTarget(task.target)) as target,
    ):
        plan_replay(manifest, source, target, options=task.source.options, settings=settings)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayPlan:
    """The ranges of a run, and what it has to say and to note before them."""

    pending: list[PlannedRange]
    """The interrupted ranges."""
    ranges: dict[TopicPartition, tuple[int, int]]
    """First offset and limit of those not begun."""
    late: list[LateStart]
    """Sources that begin above what was sent, or above what is asked for."""
    warnings: list[str]
    """Sentences about topics that are not checked, and about ranges that stay interrupted."""
    sources: Identities
    """The topics that the replay has read or is to read."""
    targets: Identities
    """The topics that it has written or is to write."""
    counts: Mapping[str, int]
    """Partitions of those that are to be written."""


def plan_replay(
    manifest: Manifest,
    source: OpenSource,
    target: BrokerTarget,
    *,
    options: SourceOptions,
    settings: ReplaySettings,
) -> ReplayPlan:
    """Plan a run from what is there at both ends.

    Raises:
        ConfigError: something is selected that does not exist, or offsets that the source lacks; a
            topic of either end is not the one that the replay was begun with; a topic of a cluster
            would be replayed into itself; others as `count_target_partitions`.
    """
    interrupted, ends = progress_of(manifest.entries)
    # Interrupted ranges are resent as they were planned, so new ranges begin after them.
    ends |= {each.source: each.limit for each in interrupted}
    extents = source.extents()
    begun = {each.topic for each in ends}
    found = identities_of(extents, source.cluster_id)
    sources = compare_identities(
        parse_identities(manifest.settings, SOURCES),
        found,
        begun=begun,
        what="the replay has sent records",
    )
    faults = sources.faults("choose another offset map")
    # Before the target is asked, which may be out of reach: offsets that the source lacks are the
    # user's mistake.
    ranges = (
        {} if faults else replay_ranges(options, extents, ends=ends, offset_at=source.offset_at)
    )
    begun_targets = {settings.target(each.topic) for each in extents if each.topic in begun}
    named = sorted({settings.target(each.topic) for each in extents})
    there = target.identities(named) if named else {}
    # An archive or files of a topic may well be put back into it.
    if options.bootstrap is not None:
        faults += [
            _into_itself(name)
            for name in sorted(found.keys() & there.keys())
            if settings.target(name) == name and found[name].is_here(there[name])
        ]
    targets = compare_identities(
        parse_identities(manifest.settings, TARGETS),
        there,
        begun={settings.target(each) for each in begun},
        what="the replay has written to this name",
    )
    faults += [
        *targets.faults(_BEGIN_AGAIN),
        *(
            f"topic {name!r}, which the replay has written, does not exist at the target any more; "
            f"{_BEGIN_AGAIN}"
            for name in sorted(begun_targets - there.keys())
        ),
    ]
    # It asks the target for offsets, which means nothing for a topic that is another one.
    if not faults:
        faults += _shorter_targets(manifest, target, begun_targets)
    if faults:
        raise ConfigError(faults)
    # A source may be selected more narrowly than before. What is left stays pending in the
    # manifest.
    pending = [each for each in interrupted if each.source in extents]
    left = [
        f"{each.source}: offsets {each.start} to {each.limit} stay sent in part, as they are not "
        "selected or the topic is gone"
        for each in interrupted
        if each.source not in extents
    ]
    begun |= {each.topic for each in ranges}
    return ReplayPlan(
        pending=pending,
        ranges=ranges,
        late=late_starts(options, extents, ends=ends, noted_as=REPLAYED),
        warnings=[*sources.unchecked, *targets.unchecked, *left],
        sources=known_identities(sources.noted, begun),
        targets=known_identities(targets.noted, {settings.target(each) for each in begun}),
        counts=count_target_partitions(
            target, [*(each.source for each in pending), *ranges], settings
        ),
    )


def _into_itself(topic: str) -> str:
    return f"topics: {topic} would be replayed into itself; name another target"


def _shorter_targets(
    manifest: Manifest, target: BrokerTarget, topics: Collection[str]
) -> list[str]:
    """A sentence for each partition that has lost records of the replay, whatever ids tell."""
    counts = target.partitions(topics) if topics else {}
    # Ids may be unknown (brokers before 2.8, directories without them); offsets that went back are
    # a proof too.
    least = {
        partition: end
        for partition, end in least_ends(manifest.entries).items()
        if partition.topic in topics
    }
    there = [each for each in least if each.partition < counts[each.topic]]
    ends = target.ends(there) if there else {}
    return [
        f"{partition}: the replay has written it up to offset {end} at least, and it ends at "
        f"{ends.get(partition, 0)}; {_BEGIN_AGAIN}"
        for partition, end in sorted(least.items())
        if ends.get(partition, 0) < end
    ]


def count_target_partitions(
    target: BrokerTarget, sources: Sequence[TopicPartition], settings: ReplaySettings
) -> dict[str, int]:
    """Count the target's partitions of each topic that receives records of the sources.

    Raises:
        ConfigError: a topic does not exist, or is too small to keep the partitions.
    """
    needed: dict[str, int] = {}
    for each in sources:
        name = settings.target(each.topic)
        # Partitions are numbered from 0, so the largest number tells how many there have to be.
        needed[name] = max(needed.get(name, 0), each.partition + 1)
    counts = target.partitions(sorted(needed)) if needed else {}
    faults = [
        f"topic {name!r} does not exist at the target; make it with as many partitions as the "
        f"source ({count}), and with retention.ms=-1 if old records are to stay"
        for name, count in sorted(needed.items())
        if name not in counts
    ]
    if settings.keeps_partitions:
        faults += [
            f"topic {name!r} has {counts[name]} partitions at the target, and keeping "
            f"those of the source needs {count}"
            for name, count in sorted(needed.items())
            if counts.get(name, count) < count
        ]
    if faults:
        raise ConfigError(faults)
    return counts


def _source(given: Mapping[str, str], faults: list[str]) -> ReplaySource | None:
    """The source; None where the options have faults, which are added."""
    # Aborted records would become committed ones in the target.
    options = {"kafka.isolation.level": "read_committed", **given}
    archive = options.pop(ARCHIVE, None)
    if archive is not None:
        named = [each for each in ("path", "paths", "kafka.bootstrap.servers") if each in options]
        if named:
            faults.append(f"{ARCHIVE}, {named[0]}: give exactly one")
        options = {name: value for name, value in options.items() if name not in named}
        options["path"] = archive
    try:
        parsed = parse_job_options(options)
        return ReplaySource(
            options=parsed, archive=None if archive is None else open_folder(archive).path
        )
    except ConfigError as error:
        faults += error.faults
        return None


def _target(given: Mapping[str, object], faults: list[str]) -> TargetSettings | None:
    """The target; None where the settings have faults, which are added."""
    unused = sorted(each for each in given if each not in _USED)
    faults += [
        f"producer_settings: {name}: a replay has no use for it; there are: "
        f"{', '.join(sorted(_USED))}"
        for name in unused
    ]
    chosen = {name: value for name, value in given.items() if name in _USED}
    # Quotas and the broker's logs go by it.
    chosen.setdefault("client.id", "tailrace-replay")
    # Sequence numbers are how a replay knows what has arrived.
    chosen["enable.idempotence"] = True
    try:
        config = parse_producer_config(chosen)
    except ConfigError as error:
        faults += [f"producer_settings: {each}" for each in error.faults]
        return None
    return TargetSettings(
        bootstrap=str(chosen["bootstrap.servers"]),
        producer_settings=chosen,
        batch_size=config.batch_size,
        request_size_max=config.max_request_size,
    )


def _settle(manifest: Manifest, settings: ReplaySettings) -> None:
    """Note the settings of a new replay, or find that they are those of the old one."""
    if not manifest.settings:
        manifest.add([], settings=_noted_settings(settings))
        return
    faults = _changed_settings(manifest, settings)
    if faults:
        raise ConfigError(faults)


def _noted_settings(settings: ReplaySettings) -> dict[str, Any]:
    return {"topics": dict(settings.topics), "keeps_partitions": settings.keeps_partitions}


def _changed_settings(manifest: Manifest, settings: ReplaySettings) -> list[str]:
    """A sentence for each setting that differs from that of the first run."""
    known = manifest.settings
    return [
        f"{name}: the replay was begun with {known[name]}, and stays so"
        for name, chosen in _noted_settings(settings).items()
        if known and known[name] != chosen
    ]


def _added(summary: ReplaySummary, staged: Sequence[StagedSend]) -> ReplaySummary:
    entries = [each.entry for each in staged]
    return replace(
        summary,
        records=summary.records + sum(each.records for each in entries),
        found=summary.found + sum(each.found for each in entries),
        bytes=summary.bytes + sum(each.bytes for each in entries),
        ranges=summary.ranges + len(entries),
    )
