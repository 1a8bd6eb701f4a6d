"""Plans a repair of a directory: decides everything before anything is changed.

    log file             damaged ranges go, as `damage` says
    index, .txnindex     rebuilt from the first segment that is changed, or that has a wrong one
    set-aside-….bytes    what recovery took out of service comes back, where it fits
    .snapshot            those after the change, and wrong ones, are removed and rewritten
    leader-epoch-…       rebuilt from the batches; batches whose epoch falls get the one that is due
    offset checkpoints   a malformed one goes; entries above the end of their log go
    partition.metadata   rebuilt from what else knows the topic's id
    __cluster_metadata   reported, with advice; nothing in it is ever changed
    the rest             reported, with advice

`verify` says what is wrong outside of the log files, `damage` what goes of them. Nothing is changed
here, and no lock is taken.
"""

import json
import uuid
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from tailrace.cluster.image import TOPIC_RESOURCE, Topic
from tailrace.cluster.metadata.proof import METADATA_FOLDER, prove_metadata
from tailrace.errors import UNEXPECTED_JSON, CorruptionError, DirectoryError
from tailrace.model import METADATA_TOPIC, NO_LEADER_EPOCH, Offset, TopicPartition
from tailrace.offline.findings import Finding, Rule, Severity
from tailrace.offline.leftovers import Exchange, Restore, plan_exchange, plan_restores
from tailrace.offline.segment_check import Progress
from tailrace.offline.verify import verify
from tailrace.reading.damage import Drop, EpochRun, LogDamage, OnDamage, find_damage, whole_drops
from tailrace.reading.directory import DataDirectory, believed_log_start, list_segments
from tailrace.reading.listing import SegmentFiles
from tailrace.reading.lookup import find_end
from tailrace.runtime.files import Files
from tailrace.storage import evidence, names
from tailrace.storage.checkpoints import (
    read_epoch_checkpoint,
    read_offset_checkpoint,
    read_partition_metadata,
    read_text,
    write_atomically,
)
from tailrace.storage.config import usable_configs
from tailrace.storage.directories import unusable
from tailrace.storage.names import parse_partition_directory_name
from tailrace.storage.snapshots import list_snapshots, snapshot_path
from tailrace.values import dataclass, field, replace

_OF_BATCHES = frozenset(
    {Rule.FRAME, Rule.CHECKSUM, Rule.RECORDS, Rule.OFFSET_ORDER, Rule.TAIL, Rule.TRANSACTION}
)
_OF_INDEXES = frozenset({Rule.OFFSET_INDEX, Rule.TIME_INDEX, Rule.TRANSACTION_INDEX})

_ADVICE_ON_METADATA = (
    "only a broker writes the metadata log, so no repair changes anything in it: a start of "
    "Tailrace keeps what its checksums prove, and says what is missing; or restore the folder from "
    "a backup; where the quorum has other controllers, Kafka can fetch the log from them"
)

CHECKPOINTS = (
    names.RECOVERY_POINTS,
    names.LOG_START_OFFSETS,
    names.HIGH_WATERMARKS,
    names.CLEANER_OFFSETS,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedFix:
    """A file that is put right without a loss of records."""

    path: str
    sentence: str
    """The change and its reason."""


@dataclass(slots=True, kw_only=True)
class PartitionPlan:
    """The planned changes to one partition."""

    partition: TopicPartition
    folder: str
    drops: list[Drop] = field(default_factory=list)
    rescued: int = 0
    """Records after damage that stay in the log."""
    fixes: list[PlannedFix] = field(default_factory=list)
    changed_from: int | None = None
    """Base offset of the first segment whose indexes are rebuilt; None if none are."""
    stale_snapshots: list[str] = field(default_factory=list)
    epochs: list[tuple[int, int]] | None = None
    """New content of the epoch checkpoint; None if the file stays as it is."""
    restamped: frozenset[int] = frozenset()
    """Base offsets of segments with batches that get another leader epoch."""
    restores: list[Restore] = field(default_factory=list)
    """Ranges that recovery has set aside and that the repair puts back."""
    topic_id: uuid.UUID | None = None
    """New topic id in `partition.metadata`; None if the file stays as it is."""
    finishes_exchange: bool = False
    """Whether `.swap` files are put in place, and nothing else is done."""
    log_start: int = 0
    log_end: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether nothing is wrong."""
        return not self.drops and not self.fixes


class RecordCounts(NamedTuple):
    """Numbers of rescued, set-aside and lost records, from the headers of their batches."""

    rescued: int
    """Stay in the log after damage, or come back from what a recovery has set aside."""
    set_aside: int
    """Sound ones that leave the log and are whole in quarantine files."""
    lost: int
    """Were in damaged batches."""
    unknown_ranges: int
    """Dropped ranges without a header that can be believed: their number is unknown."""


@dataclass(slots=True, kw_only=True)
class RepairPlan:
    """The planned changes to a directory."""

    root: str
    partitions: list[PartitionPlan] = field(default_factory=list)
    damaged_checkpoints: list[str] = field(default_factory=list)
    """Paths of those that cannot be parsed."""
    void_entries: dict[str, set[TopicPartition]] = field(default_factory=dict)
    """The partitions whose entries go, by name of the checkpoint."""
    log_starts: dict[TopicPartition, int] = field(default_factory=dict)
    """Entries of the log start checkpoint that are written again."""
    fixes: list[PlannedFix] = field(default_factory=list)
    advice: list[Finding] = field(default_factory=list)
    """Faults that no repair can put right, with instructions for the operator."""
    notes: list[Finding] = field(default_factory=list)
    """Facts about the log that the repair does not change: for information."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not self.partitions and not self.fixes

    @property
    def record_counts(self) -> RecordCounts:
        """The records of all partitions that the plan changes."""
        drops = [drop for each in self.partitions for drop in each.drops]
        rescued = sum(each.rescued for each in self.partitions)
        restores = [restore for each in self.partitions for restore in each.restores]
        set_aside = sum(drop.sound_records for drop in drops)
        return RecordCounts(
            rescued=rescued + sum(restore.records for restore in restores),
            set_aside=set_aside,
            lost=sum(drop.records or 0 for drop in drops) - set_aside,
            unknown_ranges=sum(drop.unknown_ranges for drop in drops),
        )


def plan_repair(
    files: Files,
    directory: DataDirectory,
    on_damage: OnDamage,
    *,
    progress: Progress = lambda _: None,
) -> RepairPlan:
    """Plan the whole repair of a directory.

    Raises:
        DirectoryError: a file cannot be read.
    """
    plan = RepairPlan(root=directory.path)
    # All of them: the fault of one file (a checkpoint, say) decides about others.
    findings = list(verify(files, directory, progress=progress))
    # An interrupted repair has changed logs whose indexes are still the old ones, and `verify` may
    # not find each of them.
    unfinished = read_journal(files, directory.path)
    begun = {} if unfinished is None else unfinished.partitions
    for each in findings:
        if each.path.rpartition("/")[0] == directory.path:
            _plan_root_file(plan, each)
    if unfinished is not None:
        sentence = "an earlier repair was interrupted; it is completed"
        plan.fixes.append(PlannedFix(path=directory.path, sentence=sentence))
    starts = {
        partition: believed_log_start(
            files,
            directory.path,
            partition,
            folder=folder,
            segments=list_segments(files, folder)[0],
        )
        for partition, folder in directory.partitions.items()
    }
    _plan_log_starts(files, directory, starts, plan=plan)
    for partition, folder in directory.partitions.items():
        # With the slash, so that flights-1 does not get what was found in flights-10.
        of_folder = [each for each in findings if each.path.startswith(f"{folder}/")]
        # Dropping a record of the metadata log would change the cluster's state without a word.
        if partition.topic == METADATA_TOPIC:
            plan.advice += [
                _advising(each, _ADVICE_ON_METADATA)
                for each in of_folder
                if each.severity is not Severity.INFO
            ]
            continue
        made = _plan_partition(
            files,
            PartitionPlan(partition=partition, folder=folder, log_start=starts[partition]),
            of_folder,
            on_damage=on_damage,
            begun=begun.get(partition),
            plan=plan,
        )
        if not made.is_empty:
            plan.partitions.append(made)
    # Last: an entry beyond the end is only void if the plan does not move that end.
    _plan_void_entries(files, directory, findings, starts=starts, plan=plan)
    return plan


def _plan_log_starts(
    files: Files,
    directory: DataDirectory,
    starts: Mapping[TopicPartition, int],
    *,
    plan: RepairPlan,
) -> None:
    """The log starts that are known without their checkpoint, if that is damaged."""
    # The file goes as a whole, and with it the log starts that DeleteRecords has set.
    path = f"{directory.path}/{names.LOG_START_OFFSETS}"
    if path not in plan.damaged_checkpoints:
        return
    for partition, start in starts.items():
        if partition.topic == METADATA_TOPIC:
            continue
        segments, _ = list_segments(files, directory.partitions[partition])
        if segments and start > segments[0].base_offset:
            plan.log_starts[partition] = start
            sentence = f"{partition} starts at {start}, as its leader epochs say"
            plan.fixes.append(PlannedFix(path=path, sentence=sentence))


def _plan_void_entries(
    files: Files,
    directory: DataDirectory,
    findings: Sequence[Finding],
    *,
    starts: Mapping[TopicPartition, int],
    plan: RepairPlan,
) -> None:
    """Entries of checkpoints that know an offset above the end of their log, damage apart."""
    changing = {each.partition for each in plan.partitions if each.drops or each.restores}
    for name in (names.RECOVERY_POINTS, names.LOG_START_OFFSETS):
        path = f"{directory.path}/{name}"
        if not any(each.path == path and each.offset is not None for each in findings):
            continue
        for partition, offset in read_offset_checkpoint(files, path).items():
            # Entries of deleted partitions do no harm: a broker drops them at its next checkpoint.
            if partition not in directory.partitions or partition in changing:
                continue
            if partition.topic == METADATA_TOPIC:
                continue
            folder = directory.partitions[partition]
            segments, _ = list_segments(files, folder)
            if any(each.path.endswith(names.SWAP_SUFFIX) for each in segments):
                continue  # Where the log ends is known when the exchange is finished.
            end = find_end(files, segments) if segments else starts[partition]
            # An entry at the end is usual: all of the log is on the device, or was deleted.
            if offset <= end:
                continue
            plan.void_entries.setdefault(name, set()).add(partition)
            sentence = f"the entry of {partition}, {offset}, goes: its log ends at {end}"
            plan.fixes.append(PlannedFix(path=path, sentence=sentence))


def _plan_root_file(plan: RepairPlan, finding: Finding) -> None:
    if finding.rule is Rule.CHECKPOINT and finding.offset is None:
        plan.damaged_checkpoints.append(finding.path)
        sentence = f"dropped, a broker starts without it: {finding.sentence}"
        plan.fixes.append(PlannedFix(path=finding.path, sentence=sentence))
    elif finding.rule is Rule.IDENTITY:
        plan.advice.append(
            _advising(
                finding,
                "restore it from a backup, or write node.id and cluster.id as another directory of "
                "the same broker has them",
            )
        )
    elif finding.severity is Severity.UNVERIFIED:
        plan.advice.append(_advising(finding, "make it readable and repair again"))
    elif finding.rule is Rule.LEFTOVER and finding.severity is Severity.WARNING:
        plan.advice.append(finding)


def _plan_partition(
    files: Files,
    made: PartitionPlan,
    findings: Sequence[Finding],
    *,
    on_damage: OnDamage,
    begun: int | None,
    plan: RepairPlan,
) -> PartitionPlan:
    wrong = [each for each in findings if each.severity is not Severity.INFO]
    rules = {each.rule for each in wrong}
    unreadable = [each for each in wrong if each.severity is Severity.UNVERIFIED]
    # A file that cannot be read may be good: nothing of this partition is decided.
    if unreadable:
        plan.advice += [_advising(each, "make it readable and repair again") for each in unreadable]
        return made
    segments, listed = list_segments(files, made.folder)
    # With faults in an exchange that is half done, it is not known which files are the log.
    if rules - {Rule.LEFTOVER, Rule.ORPHAN}:
        exchange = plan_exchange(files, made.folder, segments=segments, listed=listed)
        if exchange is not None:
            _plan_exchange(made, exchange, wrong, plan=plan)
            made.changed_from = begun
            return made
    damage = LogDamage()
    if rules & (_OF_BATCHES | {Rule.LEADER_EPOCH}):
        damage = find_damage(files, segments, on_damage)
        _plan_log(files, made, damage, segments=segments)
    # A starting broker drops such a log whole; the plan says so before.
    if not made.drops:
        _plan_lost_tail(files, made, segments=segments)
    plan.advice += [
        _advising(each, "no repair is known that loses less than it saves, so it stays")
        for each in wrong
        if each.rule in _OF_BATCHES and not _is_dropped(each, made.drops)
    ]
    epoch_path = f"{made.folder}/{names.LEADER_EPOCHS}"
    if Rule.LEADER_EPOCH in rules or any(each.path == epoch_path for each in wrong):
        # Not looked at yet, or a log without any epoch, for which a second look is cheap.
        if not damage.runs:
            damage = find_damage(files, segments, on_damage)
        _plan_epochs(files, made, damage, path=epoch_path)
    # The end of the log moves with the drops; the next repair restores what fits after it.
    if Rule.SET_ASIDE in rules and not made.drops:
        _plan_restores(files, made, segments=segments, listed=listed)
    plan.notes += [each for each in findings if each.rule is Rule.SET_ASIDE and each not in wrong]
    indexes = [each for each in wrong if each.rule in _OF_INDEXES]
    made.fixes += [
        PlannedFix(path=each.path, sentence=f"rebuilt from the log: {each.sentence}")
        for each in indexes
    ]
    bases = [_base_of(each.path) for each in indexes]
    bases += [] if begun is None else [begun]
    if made.changed_from is not None:
        bases.append(made.changed_from)
    # All indexes from there on, since a drop moves every position after it.
    made.changed_from = min(bases, default=None)
    # The interrupted repair had finished with the log and not with what follows from it.
    if begun is not None and made.is_empty:
        made.fixes.append(
            PlannedFix(path=made.folder, sentence="indexes and snapshots are rewritten")
        )
    _plan_snapshots(files, made, wrong)
    for each in wrong:
        if each.rule in {Rule.ORPHAN, Rule.LEFTOVER}:
            sentence = f"removed or put in place, as a broker's start does: {each.sentence}"
            made.fixes.append(PlannedFix(path=each.path, sentence=sentence))
        elif each.rule is Rule.METADATA:
            _plan_metadata(files, made, each, plan=plan)
        elif each.rule is Rule.SEQUENCE:
            plan.notes.append(each)
    return made


def _plan_exchange(
    made: PartitionPlan, exchange: Exchange, wrong: Sequence[Finding], *, plan: RepairPlan
) -> None:
    """Put `.swap` files in place, or have the operator decide; the log itself stays as it is."""
    advice = exchange.advice
    if advice is None:
        made.finishes_exchange = True
        sentence = "put in place of the segments that it replaces, as a broker's start does"
        made.fixes.append(PlannedFix(path=exchange.path, sentence=sentence))
        advice = "repair again, once the exchange of segments is finished"
    waiting = [each for each in wrong if each.rule not in {Rule.LEFTOVER, Rule.ORPHAN}]
    plan.advice += [_advising(each, advice) for each in waiting]


def _is_dropped(finding: Finding, drops: Sequence[Drop]) -> bool:
    """Whether the place of a finding goes; the sound records around a fault may make it stay."""
    position = finding.position or 0
    return any(
        each.path == finding.path and 0 <= position - each.position <= each.size_bytes
        for each in drops
    )


def _plan_log(
    files: Files, made: PartitionPlan, damage: LogDamage, *, segments: Sequence[SegmentFiles]
) -> None:
    """The drops of a partition; everything goes if what is left lies below the log start."""
    # What is left was deleted on request: a broker would drop it too.
    if damage.drops and damage.log_end < made.log_start:
        reason = f"it lies below the log start offset {made.log_start}"
        first, *later = damage.drops
        gone = {each.base_offset for each in damage.drops if each.is_whole_file}
        rest = [each for each in segments if each.base_offset not in gone]
        damage.drops = whole_drops(files, rest, reason=f"{first.reason}; {reason}")
        damage.drops += [each for each in later if each.is_whole_file]
        damage.log_end, damage.runs, damage.rescued = Offset(made.log_start), [], 0
    made.drops, made.log_end = damage.drops, damage.log_end
    made.rescued = damage.rescued
    if damage.drops:
        made.changed_from = damage.drops[0].base_offset


def _plan_lost_tail(files: Files, made: PartitionPlan, *, segments: Sequence[SegmentFiles]) -> None:
    """Plan to drop the whole log if it ends below its start, as a starting broker does.

    What is left was deleted on request. Offsets below the start must not be given out again: a
    consumer that has committed the start would never see the new records under them.
    """
    end = find_end(files, segments)
    if end >= made.log_start or not segments:
        return
    if not evidence.is_of_this_log(files, made.folder, made.log_start):
        return
    reason = f"the log ends at offset {end}, below the log start offset {made.log_start}"
    made.drops, made.log_end = whole_drops(files, segments, reason=reason), made.log_start
    made.changed_from = segments[0].base_offset


def _plan_restores(
    files: Files,
    made: PartitionPlan,
    *,
    segments: Sequence[SegmentFiles],
    listed: Sequence[str],
) -> None:
    made.restores, _ = plan_restores(files, made.folder, segments=segments, listed=listed)
    if not made.restores:
        return
    made.fixes += [PlannedFix(path=each.path, sentence=each.sentence) for each in made.restores]
    made.log_end = made.restores[-1].next_offset
    bases = [made.restores[0].base_offset]
    made.changed_from = min(bases + ([] if made.changed_from is None else [made.changed_from]))


def _plan_epochs(files: Files, made: PartitionPlan, damage: LogDamage, *, path: str) -> None:
    try:
        known = read_epoch_checkpoint(files, path)
    except CorruptionError:
        # Damaged itself, so the batches alone decide.
        known = []
    made.epochs, made.restamped = plan_epochs(damage.runs, known, log_end=damage.log_end)
    made.fixes.append(PlannedFix(path=path, sentence="rebuilt from the batches"))
    if made.restamped:
        bases = [*made.restamped] + ([] if made.changed_from is None else [made.changed_from])
        made.changed_from = min(bases)
        made.fixes += [
            PlannedFix(
                path=f"{made.folder}/{names.segment_file_name(base, names.LOG_SUFFIX)}",
                sentence="leader epochs that fall get the one that is due; no record changes",
            )
            for base in sorted(made.restamped)
        ]


def plan_epochs(
    runs: Sequence[EpochRun], known: Sequence[tuple[int, int]], *, log_end: int
) -> tuple[list[tuple[int, int]], frozenset[int]]:
    """Plan the entries of the epoch checkpoint, and find the segments whose batches contradict it.

    Where the epochs of the batches rise, and none is negative, they are right. Otherwise the
    checkpoint is, if it covers the log; without one, the rising runs with the most batches, or
    epoch 0 if all are negative.
    """
    epochs = [NO_LEADER_EPOCH, *(run.epoch for run in runs)]
    # What batches say is covered by their checksums, but not the epoch, which the leader stamps: so
    # only a sequence that rises throughout is believed.
    if all(before < after for before, after in pairwise(epochs)):
        return [(run.epoch, run.start_offset) for run in runs], frozenset()
    # The checkpoint covers the log, so the batches that contradict it are stamped again.
    if known and known[0][1] <= runs[0].start_offset and known[-1][1] < log_end:
        entries = list(known)
    else:
        entries = []
        for run in _heaviest_rise([each for each in runs if each.epoch >= 0]):
            if not entries or run.epoch > entries[-1][0]:
                start = run.start_offset if entries else runs[0].start_offset
                entries.append((run.epoch, start))
        entries = entries or [(0, runs[0].start_offset)]
    bad: set[int] = set()
    for run in runs:
        if {epoch_due(entries, run.start_offset), epoch_due(entries, run.last_offset)} != {
            run.epoch
        }:
            bad |= run.bases
    return entries, frozenset(bad)


def epoch_due(entries: Sequence[tuple[int, int]], offset: int) -> int:
    """The leader epoch that a batch at `offset` has to have."""
    # The last entry at or before the offset; the first one also covers what is before it.
    number = bisect_right(entries, offset, key=lambda entry: entry[1]) - 1
    return entries[max(number, 0)][0]


def _heaviest_rise(runs: Sequence[EpochRun]) -> list[EpochRun]:
    """The runs of rising epochs that keep the most batches, and leave out the others."""
    best: list[tuple[int, int]] = []
    for number, run in enumerate(runs):
        # The longest rise, weighed by batches. A log has few epochs, so the square of their number
        # is small.
        fitting = [(best[i][0], i) for i in range(number) if runs[i].epoch <= run.epoch]
        weight, before = max(fitting, default=(0, -1))
        best.append((weight + run.batches, before))
    number = max(range(len(best)), key=lambda each: best[each][0], default=-1)
    kept = []
    while number >= 0:
        kept.append(runs[number])
        number = best[number][1]
    return kept[::-1]


def _plan_snapshots(files: Files, made: PartitionPlan, wrong: Sequence[Finding]) -> None:
    faults = {each.path: each.sentence for each in wrong if each.rule is Rule.SNAPSHOT}
    first_lost = made.drops[0].offset if made.drops else None
    # A snapshot is only a short cut: without one a broker reads the log from its start.
    for offset in list_snapshots(files, made.folder):
        path = snapshot_path(made.folder, offset)
        if path in faults:
            sentence = f"removed, the state is rebuilt from the log: {faults[path]}"
        # It counts batches that go: a producer's next sequence would be taken for a gap.
        elif first_lost is not None and offset > first_lost:
            sentence = "removed, it counts what is dropped; the state is rebuilt from the log"
        else:
            continue
        made.stale_snapshots.append(path)
        made.fixes.append(PlannedFix(path=path, sentence=sentence))


def _plan_metadata(
    files: Files, made: PartitionPlan, finding: Finding, *, plan: RepairPlan
) -> None:
    topic = made.partition.topic
    try:
        known = known_topic(files, plan.root, topic)
    except DirectoryError as error:
        plan.advice.append(_advising(finding, str(error)))
        return
    # The metadata log first, because a starting broker holds the file against it.
    made.topic_id = known.topic_id if known is not None else _id_of_sibling(files, plan.root, topic)
    # A made-up id would have the broker set the partition aside as another topic's.
    if made.topic_id is None:
        advice = "remove the file: a broker that knows the topic writes it again when it starts"
        plan.advice.append(_advising(finding, advice))
        return
    sentence = f"rebuilt with the topic id that is known elsewhere: {finding.sentence}"
    made.fixes.append(PlannedFix(path=finding.path, sentence=sentence))


def _id_of_sibling(files: Files, root: str, topic: str) -> uuid.UUID | None:
    """The topic id that another partition of the topic has."""
    for name in files.list(root):
        partition = names.parse_partition_directory_name(name)
        if partition is None or partition.topic != topic:
            continue
        try:
            found = read_partition_metadata(files, f"{root}/{name}/{names.PARTITION_METADATA}")
        except (CorruptionError, NotADirectoryError):
            continue
        if found is not None:
            return found
    return None


def _advising(finding: Finding, advice: str) -> Finding:
    return replace(finding, sentence=f"{finding.sentence}; {advice}")


def _base_of(path: str) -> int:
    parsed = names.parse_segment_file_name(path.rpartition("/")[2])
    assert parsed is not None
    return parsed[0]


JOURNAL_FILE = "tailrace-repair.json"
_JOURNAL_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """The changes that a repair has begun."""

    was_clean: bool
    """Whether the directory had the mark of an orderly stop."""
    partitions: Mapping[TopicPartition, int]
    """Base offset of the first segment that is changed."""


def read_journal(files: Files, root: str) -> Journal | None:
    """Read the journal of an interrupted repair; None if there was none.

    Raises:
        DirectoryError: the file is not one of this release.
        OSError: it cannot be read.
    """
    path = f"{root}/{JOURNAL_FILE}"
    if not files.exists(path):
        return None
    try:
        content = json.loads(read_text(files, path))
        # Not guessed at: a later release may have changed things that this one does not know.
        if content["version"] != _JOURNAL_VERSION:
            raise ValueError(f"version {content['version']}, not {_JOURNAL_VERSION}")
        partitions = {}
        for name, base_offset in content["partitions"].items():
            partition = parse_partition_directory_name(name)
            if partition is None or type(base_offset) is not int:
                raise ValueError(f"{str(name)[:40]!r} is no partition with an offset")
            partitions[partition] = base_offset
        return Journal(was_clean=content["was_clean"] is True, partitions=partitions)
    except (CorruptionError, *UNEXPECTED_JSON) as error:
        raise DirectoryError(
            f"{path} cannot be understood ({error}); remove it and repair again"
        ) from error


def write_journal(files: Files, root: str, journal: Journal) -> None:
    """Put the note on the device.

    Raises:
        OSError: the device refused; the old note, if any, is still there.
    """
    content = {
        "version": _JOURNAL_VERSION,
        "was_clean": journal.was_clean,
        "partitions": {str(each): base for each, base in sorted(journal.partitions.items())},
    }
    # Written before the first change and removed after the last one, so that a crash between them
    # is completed by the next repair.
    write_atomically(files, root, JOURNAL_FILE, text=json.dumps(content) + "\n")


def known_topic(files: Files, root: str, name: str) -> Topic | None:
    """The topic as the metadata log of the directory has it; None if that has none.

    Nothing is changed.

    Raises:
        DirectoryError: the state cannot be read, or not be proven.
    """
    try:
        proof = prove_metadata(files, f"{root}/{METADATA_FOLDER}", report=lambda _: None)
        image = proof.replay.image
    except DirectoryError:
        raise
    except OSError as error:
        raise unusable(root, error) from error
    state = image.topic(name)
    if state is None:
        return None
    return Topic(
        name=name,
        topic_id=state.topic_id,
        partitions=tuple(sorted(state.partitions)),
        configs=usable_configs(image.configs_of(TOPIC_RESOURCE, name)),
    )
