"""Checks what has to hold from one segment of a partition to the next.

    gaps          offsets that are missing between two batches or two segments
    epochs        agree with leader-epoch-checkpoint, and do not fall
    producers     sequences without a gap, markers that end a transaction; snapshots that agree
    aborts        the transaction index of each segment

Headers are enough for it, and the records of control batches: `segment_check` looks at the rest.

Invariant: an unusable batch is not believed. Where it ends is unknown, so what follows it may
begin anywhere, and what it held is a hole in every history.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import islice

from tailrace.errors import CorruptionError, counted
from tailrace.model import NO_LEADER_EPOCH, NO_PRODUCER_ID, Offset, ProducerId
from tailrace.offline.findings import Finding, Rule, Severity, batch_finding, file_finding
from tailrace.offline.indexes import check_aborts
from tailrace.offline.segment_check import Hole, SegmentWalk
from tailrace.reading.listing import SegmentFiles
from tailrace.reading.producers import EndedTransaction, ProducerWalk
from tailrace.records.batch import Batch
from tailrace.records.runs import BatchRun, Field
from tailrace.runtime.files import Files
from tailrace.storage import names
from tailrace.storage.segment_walk import Sound
from tailrace.storage.snapshots import KnownProducer, list_snapshots, read_snapshot, snapshot_path
from tailrace.values import dataclass, field, replace


@dataclass(slots=True, kw_only=True)
class PartitionWalk:
    """The state of a walk over a partition before the next batch."""

    files: Files
    folder: str
    next_offset: int
    """No batch may begin below it."""
    epochs: Sequence[tuple[int, int]]
    """Epoch and start offset, as the checkpoint has them."""
    log_start: int = 0
    """By the checkpoint. Of producers a broker may have forgotten what is below it."""
    is_in_use: bool = False
    """Whether a broker is at work in the directory, or was killed there."""
    is_of_coordinator: bool = False
    """Whether coordinators write this log, and no client does."""
    latest_epoch: int = NO_LEADER_EPOCH
    is_complete: bool = True
    """Whether every segment was walked to its end."""
    is_end_known: bool = True
    """Whether the last batch was sound, so that its end can be relied on."""
    is_sound: bool = True
    """Whether no batch so far was damaged."""
    gaps: int = 0
    """Gaps in offsets in the segment at hand."""
    first_gap: tuple[int, int, int] = (0, 0, 0)
    """Position, and the offsets on both sides."""
    producers: ProducerWalk = field(default_factory=ProducerWalk)
    snapshots: list[tuple[int, str]] = field(default_factory=list)
    """Offset and path of those that the walk has not come to, the lowest first."""
    markers: list[EndedTransaction] = field(default_factory=list)
    """Markers in the segment at hand."""
    _is_below_start: bool = False
    """Whether the walk has not come to the log start offset yet."""

    def begin(self, listed: Sequence[str]) -> Iterator[Finding]:
        """Read what was known before the first batch, and check that every snapshot can be read.

        `listed` are the files of the folder when its segments were listed; later ones do not count.
        """
        first_offset = self.next_offset
        # A log that begins at 0 has nothing before it.
        self.producers = ProducerWalk(first_offset)
        self._is_below_start = self.log_start > first_offset
        for offset in list_snapshots(self.files, self.folder):
            path = snapshot_path(self.folder, offset)
            # Written since the listing: of batches that this walk does not see.
            if path.rpartition("/")[2] not in listed:
                continue
            try:
                known = read_snapshot(self.files, path)
            except FileNotFoundError:
                continue  # A broker has just deleted it.
            except (CorruptionError, OSError) as error:
                yield file_finding(path, Rule.SNAPSHOT, error)
                continue
            fault = _snapshot_fault(known, offset)
            if fault is not None:
                yield _snapshot_finding(path, offset, fault, severity=Severity.ERROR)
            # A start removes those up to the log start.
            elif self._is_below_start and offset <= self.log_start:
                continue
            elif offset == first_offset:
                self.producers.start_from(known)
            elif offset > first_offset:
                self.snapshots.append((offset, path))

    def walk(
        self, segment: SegmentFiles, check: SegmentWalk, *, following: int | None
    ) -> Iterator[Finding]:
        """All findings of a segment, those of `check` included; `following` is the next one's base.

        Raises:
            OSError: a file cannot be read.
        """
        yield from self._enter(segment)
        for each in check.walk():
            if isinstance(each, Finding):
                yield each
            elif isinstance(each, Hole):
                self._pass_hole()
            elif isinstance(each.piece, BatchRun):
                yield from self._see_run(segment, each, each.piece)
            else:
                yield from self._see(segment, each.position, each.piece)
        if not check.is_complete:
            self.is_complete = self.is_sound = False
            self.producers.holes += 1
        yield from self._leave(segment, following=following, is_final=not check.has_grown)

    def finish(self) -> Iterator[Finding]:
        """The snapshots from the log end on, and the transactions that are open there."""
        for offset, path in self.snapshots:
            if offset > self.next_offset:
                sentence = f"it is of offset {offset}, and the log ends at {self.next_offset}"
                yield _snapshot_finding(path, offset, f"{sentence}; a broker removes it")
            elif offset == self.next_offset and self.is_sound and not self.producers.holes:
                yield from self._compare_snapshot(offset, path)
        for offset, producer_id in self.producers.open_transactions():
            yield Finding(
                severity=Severity.INFO,
                rule=Rule.TRANSACTION,
                path=self.folder,
                offset=offset,
                sentence=f"the transaction of producer {producer_id} is open at the end of the "
                "log; readers of committed records stop before it",
            )

    def _enter(self, segment: SegmentFiles) -> Iterator[Finding]:
        """Go on at the base offset of a segment; offsets between two segments may be missing."""
        self.gaps, self.markers = 0, []
        if segment.base_offset <= self.next_offset:
            return
        first, self.next_offset = self.next_offset, segment.base_offset
        self.producers.holes += 1
        if self.is_end_known and self.is_complete:
            yield Finding(
                severity=Severity.INFO,
                rule=Rule.GAP,
                path=segment.path,
                position=0,
                offset=first,
                sentence=f"offsets {first} to {segment.base_offset - 1} are missing before this "
                "segment; compaction leaves such gaps, and so does a lost machine",
            )

    def _pass_hole(self) -> None:
        """Pass damage: the next batch may begin anywhere, whatever was due."""
        self.is_sound = self.is_end_known = False
        self.producers.holes += 1

    def _see_run(self, segment: SegmentFiles, found: Sound, run: BatchRun) -> Iterator[Finding]:
        passed = self._pass(run)
        if passed < run.batch_count:
            for position, batch in islice(found.batches(), passed, None):
                yield from self._see(segment, position, batch)

    def _pass(self, run: BatchRun) -> int:
        """Pass over the first batches of a run whose headers show no fault; return their number."""
        # A snapshot is compared at its offset, so the run is walked batch by batch.
        if self.snapshots and self.snapshots[0][0] <= run.last_offset:
            return 0
        if self._is_below_start and run.last_offset >= self.log_start:
            return 0
        epoch = run.first_header[Field.LEADER_EPOCH]
        if epoch != NO_LEADER_EPOCH:
            both = self._due_epoch(run.base_offset), self._due_epoch(run.last_offset)
            if epoch < self.latest_epoch or any(each not in {None, epoch} for each in both):
                return 0
        # The usual log: nothing is looked at but the two ends of the run.
        if run.base_offset == self.next_offset and run.is_dense and not run.has_producers:
            passed, next_offset = run.batch_count, int(run.next_offset)
        else:
            passed, next_offset = self._pass_one_by_one(run, epoch)
        if passed:
            self.latest_epoch = max(self.latest_epoch, epoch)
            self.next_offset, self.is_end_known = next_offset, True
        return passed

    def _pass_one_by_one(self, run: BatchRun, epoch: int) -> tuple[int, int]:
        """Number of first batches of a run without a fault, and the offset after them."""
        passed, next_offset = 0, self.next_offset
        is_next = self.producers.is_next
        for header in run.headers:
            base_offset, _, leader_epoch, _, _, _, delta, _, _, producer_id, *_ = header
            if base_offset != next_offset or leader_epoch != epoch:
                break
            if producer_id > NO_PRODUCER_ID and not is_next(header):
                break
            next_offset += delta + 1
            passed += 1
        return passed, next_offset

    def _see(self, segment: SegmentFiles, position: int, batch: Batch) -> Iterator[Finding]:
        yield from self._compare_snapshots(batch.base_offset)
        if self._is_below_start:
            self._pass_deleted(batch)
        if batch.base_offset > self.next_offset:
            self.producers.holes += 1
            if self.is_end_known:
                # Only the first is named: compaction leaves one between nearly any two batches.
                if not self.gaps:
                    self.first_gap = position, self.next_offset, batch.base_offset
                self.gaps += 1
        self.next_offset, self.is_end_known = batch.next_offset, True
        yield from self._check_epoch(segment, position, batch)
        if batch.has_producer:
            yield from self._check_producer(segment, position, batch)

    def _pass_deleted(self, batch: Batch) -> None:
        """Begin with no known producer at the log start, and find no fault of one before it.

        A log start that DeleteRecords has moved may lie in the middle of a segment. A start without
        a later snapshot reads the batches from there on; what was open before is not known to it.
        """
        if batch.last_offset >= self.log_start:
            self.producers = ProducerWalk(batch.base_offset)
            self._is_below_start = False
        else:
            self.producers.holes += 1

    def _check_epoch(self, segment: SegmentFiles, position: int, batch: Batch) -> Iterator[Finding]:
        epoch = batch.leader_epoch
        if epoch == NO_LEADER_EPOCH:
            return
        # No batch spans two epochs.
        both = self._due_epoch(batch.base_offset), self._due_epoch(batch.last_offset)
        due = next((each for each in both if each not in (None, epoch)), epoch)
        # A broker appends the first batch of an epoch before it writes the checkpoint.
        is_new = self.is_in_use and epoch > max(dict(self.epochs), default=NO_LEADER_EPOCH)
        if epoch != due and not is_new:
            sentence = f"leader epoch {epoch}, where {names.LEADER_EPOCHS} has {due}"
            finding = batch_finding(
                segment.path, position, batch, rule=Rule.LEADER_EPOCH, sentence=sentence
            )
            yield replace(finding, severity=Severity.WARNING)
        elif epoch < self.latest_epoch:
            sentence = f"leader epoch {epoch} follows the higher epoch {self.latest_epoch}"
            yield batch_finding(
                segment.path, position, batch, rule=Rule.LEADER_EPOCH, sentence=sentence
            )
        else:
            self.latest_epoch = epoch

    def _due_epoch(self, offset: int) -> int | None:
        """The epoch that the checkpoint has for an offset; None before the oldest."""
        number = bisect_right(self.epochs, offset, key=lambda entry: entry[1]) - 1
        return self.epochs[number][0] if number >= 0 else None

    def _check_producer(
        self, segment: SegmentFiles, position: int, batch: Batch
    ) -> Iterator[Finding]:
        # Coordinators begin at 0 with each batch, and no broker looks at their sequences.
        fault = None if self.is_of_coordinator else self.producers.sequence_fault(batch)
        if fault is not None:
            finding = batch_finding(
                segment.path, position, batch, rule=Rule.SEQUENCE, sentence=fault
            )
            yield replace(finding, severity=Severity.WARNING)
        ended = self.producers.see(batch)
        if ended is not None:
            self.markers.append(ended)

    def _leave(
        self, segment: SegmentFiles, *, following: int | None, is_final: bool
    ) -> Iterator[Finding]:
        """The gaps in a segment, its transaction index, and the markers that end nothing."""
        if self.gaps:
            position, before, after = self.first_gap
            yield Finding(
                severity=Severity.INFO,
                rule=Rule.GAP,
                path=segment.path,
                position=position,
                offset=before,
                sentence=f"offsets are missing in {counted(self.gaps, 'place')}, first {before} to "
                f"{after - 1}; compaction leaves such gaps",
            )
        yield from check_aborts(
            self.files,
            segment.sibling(names.TRANSACTION_INDEX_SUFFIX),
            base_offset=segment.base_offset,
            limit_offset=self.next_offset if following is None else following,
            markers=self.markers,
            is_sound=self.is_sound and is_final,
        )
        # The coordinator writes a marker to each partition that was added, also if no record came;
        # and compaction removes records before markers.
        alone = [each for each in self.markers if each.first_offset is None]
        if alone:
            yield Finding(
                severity=Severity.INFO,
                rule=Rule.TRANSACTION,
                path=segment.path,
                offset=alone[0].last_offset,
                sentence=f"{len(alone)} markers end a transaction without a record in this log, "
                f"first that of producer {alone[0].producer_id}",
            )

    def _compare_snapshots(self, limit: int) -> Iterator[Finding]:
        """Compare the snapshots up to `limit`, below which no batch is left, with the walk."""
        while self.snapshots and self.snapshots[0][0] <= limit:
            offset, path = self.snapshots.pop(0)
            # One inside of a batch is of another log than this; after holes in the middle
            # of the log what it knew may be gone.
            if offset < self.next_offset or not self.is_sound or self.producers.holes:
                continue
            yield from self._compare_snapshot(offset, path)

    def _compare_snapshot(self, offset: int, path: str) -> Iterator[Finding]:
        try:
            fault = self.producers.disagreement(read_snapshot(self.files, path))
        except FileNotFoundError:
            return  # A broker has just deleted it.
        except (CorruptionError, OSError) as error:
            yield file_finding(path, Rule.SNAPSHOT, error)
            return
        if fault is not None:
            yield _snapshot_finding(path, offset, fault)


def _snapshot_fault(known: dict[ProducerId, KnownProducer], offset: Offset) -> str | None:
    for producer_id, each in known.items():
        newest = max(each.last_offset, each.transaction_start)
        if newest >= offset:
            return f"producer {producer_id} has offset {newest}, in the state before {offset}"
        if min(each.epoch, each.coordinator_epoch, each.transaction_start) < -1:
            return f"producer {producer_id} has a negative epoch or offset"
    return None


def _snapshot_finding(
    path: str, offset: int, sentence: str, *, severity: Severity = Severity.WARNING
) -> Finding:
    return Finding(
        severity=severity, rule=Rule.SNAPSHOT, path=path, offset=offset, sentence=sentence
    )
