"""Any sequence of operations on a log gives what a plain list of batches would give."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from tailrace.model import AppendOrigin, Codec, LeaderEpoch, ProducerId, SpecialTimestamp
from tailrace.reading.reader import open_log_reader
from tailrace.records.batch import Batch, read_batches
from tailrace.records.builder import records_of
from tailrace.records.control import ControlType, EndTransactionMarker, build_end_marker
from tailrace.storage.config import LogConfig
from tailrace.storage.index.transaction import AbortedTxn
from tailrace.storage.log import Log
from tailrace.storage.offset_lookup import find_offset
from tailrace.storage.positions import ReadLimit
from tailrace.storage.recovery import LogCut
from tailrace.storage.shrink import delete_old_segments, raise_log_start, truncate_to
from tailrace.testing import MemoryFiles
from tests.unit.storage.builders import FOLDER, NOW, batch, open_at, records, settings
from tests.unit.storage.transactional import follow, replicated

CONFIG = settings(segment_bytes=900, segment_index_bytes=96, index_interval_bytes=150)
WITH_GAPS = settings(
    segment_bytes=900,
    segment_index_bytes=96,
    index_interval_bytes=150,
    cleanup_policy="compact,delete",
)
"""Settings of a follower's log. With `delete` alone, a start takes a gap for damage."""
PRODUCERS = (1, 2, 3)

RECORD = st.tuples(st.binary(max_size=120), st.integers(-20, 20))
SHARE = st.floats(0, 1)
PLAIN = st.tuples(
    st.just("append"), st.sampled_from(Codec), st.lists(RECORD, min_size=1, max_size=5)
)
FOLLOWED = st.tuples(
    st.just("follow"), st.integers(0, 4), st.lists(st.integers(1, 3), min_size=1, max_size=3)
)
REST = st.one_of(
    st.tuples(st.just("transact"), st.sampled_from(PRODUCERS), st.integers(1, 3)),
    st.tuples(st.just("end"), st.sampled_from(PRODUCERS), st.booleans()),
    st.tuples(st.just("replicate"), st.one_of(st.just(1.0), SHARE), st.none()),
    st.tuples(st.just("read"), SHARE, st.integers(0, 700)),
    st.tuples(st.just("find"), st.integers(-25, 60), st.none()),
    st.tuples(st.just("truncate"), SHARE, st.none()),
    st.tuples(st.just("raise start"), SHARE, st.none()),
    st.tuples(st.just("keep bytes"), st.integers(0, 2000), st.none()),
    st.tuples(st.just("keep time"), st.integers(0, 60), st.none()),
    st.tuples(
        st.sampled_from(["roll", "sync", "commit", "checkpoint", "reopen", "kill", "power loss"]),
        st.none(),
        st.none(),
    ),
)


class Entry(NamedTuple):
    """A batch of the list."""

    base: int
    rows: tuple[tuple[bytes, int], ...]
    """Value and timestamp of each record."""
    producer_id: int = -1
    end: ControlType | None = None
    """Decision of a marker; None for data."""
    forgotten_id: int = -1
    """The producer, if the log knows no more that this belongs to a transaction."""

    @property
    def last(self) -> int:
        """The last offset."""
        return self.base + len(self.rows) - 1


class Transaction(NamedTuple):
    """A transaction as the list has it."""

    producer_id: int
    first: int
    marker: int | None
    is_aborted: bool


@dataclass(slots=True)
class Model:
    """The log under test, the disk it is on, and the list it is held against."""

    config: LogConfig
    files: MemoryFiles = field(default_factory=MemoryFiles)
    entries: list[Entry] = field(default_factory=list)
    start: int = 0
    end: int = 0
    high_watermark: int = 0
    cuts: list[LogCut] = field(default_factory=list)
    log: Log = field(init=False)

    def __post_init__(self) -> None:
        self.open(is_clean=False, recovery_point=0)

    def open(self, *, is_clean: bool, recovery_point: int) -> None:
        """Open what is on the disk."""
        self.log = open_at(
            self.files,
            config=self.config,
            is_clean=is_clean,
            checkpoints=(recovery_point, self.start),
            report=self.cuts.append,
        )

    def append(self, codec: Codec, rows: list[tuple[bytes, int]]) -> None:
        """Append a batch; timestamps wander, and on the whole they rise."""
        given_rows = tuple((value, NOW + self.end + delta) for value, delta in rows)
        data = batch(
            *(value for value, _ in given_rows),
            timestamps=[timestamp for _, timestamp in given_rows],
            codec=codec,
        )
        self.write(data, Entry(self.end, given_rows))

    def transact(self, producer_id: int, count: int) -> None:
        """Append a batch to a producer's transaction."""
        known = self.log.producers.get(ProducerId(producer_id))
        rows = ((b"of %d" % producer_id, NOW + self.end),) * count
        data = batch(
            *(value for value, _ in rows),
            timestamps=[timestamp for _, timestamp in rows],
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0 if known is None else known.last_sequence + 1,
            is_transactional=True,
        )
        self.write(data, Entry(self.end, rows, producer_id))

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        """Append a marker."""
        kind = ControlType.COMMIT if is_commit else ControlType.ABORT
        value = EndTransactionMarker(type=kind, coordinator_epoch=0).value
        data = build_end_marker(
            producer_id, 0, is_commit=is_commit, coordinator_epoch=0, timestamp=NOW + self.end
        )
        self.write(
            data,
            Entry(self.end, ((value, NOW + self.end),), producer_id, kind),
            origin=AppendOrigin.COORDINATOR,
        )

    def write(
        self, data: bytearray, entry: Entry, origin: AppendOrigin = AppendOrigin.CLIENT
    ) -> None:
        """Append as the leader."""
        done = self.log.append(
            memoryview(data), leader_epoch=LeaderEpoch(0), now_ms=NOW, origin=origin
        )
        assert (done.base_offset, done.last_offset) == (entry.base, entry.last)
        self.entries.append(entry)
        self.end = entry.last + 1

    def follow(self, gap: int, counts: list[int]) -> None:
        """Append batches as a follower, with offsets missing before each."""
        batches = []
        for count in counts:
            entry = Entry(self.end + gap, ((b"followed", NOW + self.end),) * count)
            batches.append(
                replicated(
                    entry.base,
                    *(value for value, _ in entry.rows),
                    timestamps=[timestamp for _, timestamp in entry.rows],
                )
            )
            self.entries.append(entry)
            self.end = entry.last + 1
        assert follow(self.log, *batches) == self.end

    def replicate(self, share: float) -> None:
        """Raise the high watermark to the end of a batch."""
        wanted = self.start + round(share * (self.end - self.start))
        offset = next((each.last + 1 for each in self.entries if each.last >= wanted), self.end)
        is_news = self.log.advance_high_watermark(offset)
        assert is_news == (offset > self.high_watermark)
        self.high_watermark = max(self.high_watermark, offset)

    def transactions(self) -> Iterator[Transaction]:
        """Yield the list's transactions in the order of their first offsets."""
        for number, first in enumerate(self.entries):
            if first.producer_id < 0 or first.end is not None:
                continue
            before = [e for e in self.entries[:number] if e.producer_id == first.producer_id]
            if before and before[-1].end is None:
                continue
            later = self.entries[number:]
            marker = next(
                (e for e in later if e.producer_id == first.producer_id and e.end is not None), None
            )
            yield Transaction(
                first.producer_id,
                first.base,
                None if marker is None else marker.base,
                is_aborted=marker is not None and marker.end is ControlType.ABORT,
            )

    def last_stable(self) -> int:
        """Return the start of the oldest transaction whose end is not replicated."""
        undecided = [
            each.first
            for each in self.transactions()
            if each.marker is None or each.marker >= self.high_watermark
        ]
        return min(self.high_watermark, max(min(undecided, default=self.end), self.start))

    def read(self, share: float, bytes_max: int) -> None:
        """Read somewhere, as each kind of reader does."""
        offset = self.start + round(share * (self.end - self.start))
        limits = {
            ReadLimit.LOG_END: self.end,
            ReadLimit.HIGH_WATERMARK: self.high_watermark,
            ReadLimit.LAST_STABLE: self.last_stable(),
        }
        for limit, limit_offset in limits.items():
            assert self.log.positions.limit(limit) == limit_offset
            found = self.log.read(offset, bytes_max=bytes_max, is_first_whole=True, limit=limit)
            got = [each for _, each in read_batches(found.read())]
            shown = [each for each in self.entries if offset <= each.last < limit_offset]
            assert bool(got) == (bool(shown) and offset < limit_offset)
            assert len(found.read()) <= max(bytes_max, got[0].size if got else 0)
            shown = shown[: len(got)]
            for each, entry in zip(got, shown, strict=True):
                check_batch(each, entry)
            if limit is ReadLimit.LAST_STABLE:
                self.check_committed(got, shown, found.aborted)
            else:
                assert not found.aborted

    def check_committed(
        self, got: list[Batch], shown: list[Entry], told: tuple[AbortedTxn, ...]
    ) -> None:
        """Check that a consumer that filters by the told aborts keeps committed batches only."""
        aborted = [each for each in self.transactions() if each.is_aborted]
        for abort in told:
            # One whose first segment is gone may have been found again from where it goes on.
            assert any(
                one.producer_id == abort.producer_id
                and one.marker == abort.last_offset
                and one.first <= abort.first_offset
                for one in aborted
            )
        kept = []
        waiting, dropped = sorted(told, key=lambda each: each.first_offset), set()
        for each in got:
            while waiting and waiting[0].first_offset <= each.last_offset:
                dropped.add(waiting.pop(0).producer_id)
            if each.is_control:
                dropped.discard(each.producer_id)
            elif each.producer_id not in dropped:
                kept.append(each.base_offset)
        assert kept == [
            entry.base
            for entry in shown
            if entry.end is None
            and not any(
                one.producer_id == entry.producer_id
                and one.marker is not None
                and one.first <= entry.base < one.marker
                for one in aborted
            )
        ]

    def find(self, delta: int) -> None:
        """Find by time: the first record that is young enough, and the youngest that is left."""
        times = [
            time
            for each in self.entries
            for number, (_, time) in enumerate(each.rows)
            if each.base + number >= self.start
        ]
        self.check_found(NOW + delta, NOW + delta)
        if times:
            self.check_found(SpecialTimestamp.MAX_TIMESTAMP, max(times))

    def check_found(self, asked: int, timestamp: int) -> None:
        """Hold an answer against the list."""
        candidates = (
            (time, entry.base + number)
            for entry in self.entries
            for number, (_, time) in enumerate(entry.rows)
            if time >= timestamp and entry.base + number >= self.start
        )
        wanted = next(candidates, None)
        if wanted is not None and wanted[1] >= self.high_watermark:
            wanted = None
        found = find_offset(self.log, asked)
        assert (None if found is None else tuple(found[0])) == wanted

    def truncate(self, share: float) -> None:
        """Cut the tail off; below the first segment everything goes.

        What is kept is replicated first where it ends a transaction: a snapshot does not tell.
        """
        offset = round(share * self.end)
        ends = [each.marker for each in self.transactions() if each.marker is not None]
        if any(self.high_watermark <= marker < offset for marker in ends):
            self.replicate(1.0)
        first_base = self.log.segments.first.base_offset
        truncate_to(self.log, offset)
        if offset >= self.end:
            return
        self.entries = [each for each in self.entries if each.last < offset]
        if offset < first_base:
            self.entries.clear()
            self.start = self.end = self.high_watermark = offset
            return
        self.end = self.log.end_offset
        assert max((each.last + 1 for each in self.entries), default=0) <= self.end <= offset
        self.start = min(self.start, self.end)
        self.high_watermark = min(self.high_watermark, self.end)
        self.forget()

    def forget(self) -> None:
        """Take deleted records out of transactions that have lost their marker since.

        Only a snapshot can know of those, and none need be left.
        """
        for each in tuple(self.transactions()):
            known = self.log.producers.get(ProducerId(each.producer_id))
            is_known = known is not None and known.transaction_start == each.first
            if each.marker is None and each.first < self.start and not is_known:
                self.entries = [
                    entry._replace(producer_id=-1, forgotten_id=each.producer_id)
                    if entry.producer_id == each.producer_id
                    and each.first <= entry.base
                    and entry.last < self.start
                    else entry
                    for entry in self.entries
                ]

    def raise_start(self, share: float) -> None:
        """Delete records, but none that is undecided: a start need not know those."""
        offset = self.start + round(share * (self.last_stable() - self.start))
        assert raise_log_start(self.log, offset) == (offset > self.start)
        # The next start is told of the log start, so its epochs are on the device first.
        self.log.epochs.save()
        self.start = offset

    def keep(self, *, retention_bytes: int = -1, retention_ms: int = -1) -> None:
        """Delete old segments by size or time, once every transaction has ended."""
        for each in tuple(self.transactions()):
            if each.marker is None:
                self.end_transaction(each.producer_id, is_commit=False)
        now_ms = NOW + self.end
        self.log.config = replace(
            self.config, retention_bytes=retention_bytes, retention_ms=retention_ms
        )
        segments = tuple(self.log.segments)
        size = self.log.size
        gone = 0
        for number, segment in enumerate(segments):
            behind = segments[number + 1].base_offset if number + 1 < len(segments) else self.end
            is_active = segment is segments[-1]
            times = [
                time
                for each in self.entries
                if segment.base_offset <= each.base < behind
                for _, time in each.rows
            ]
            is_due = (behind <= self.start and not is_active) or (
                bool(segment.size)
                and (
                    now_ms - max(times) > retention_ms
                    if retention_bytes < 0
                    else size - segment.size >= retention_bytes
                )
            )
            if not is_due or behind > self.high_watermark:
                break
            size -= segment.size
            gone += 1
        assert len(delete_old_segments(self.log, now_ms)) == gone
        self.log.config = self.config
        if gone:
            self.start = max(self.start, self.log.segments.first.base_offset)
            assert self.log.segments.first.base_offset == (
                segments[gone].base_offset if gone < len(segments) else self.end
            )

    def restart(self, kind: str) -> None:
        """Stop in some way, open again, and hold all records against the list."""
        point = self.log.positions.recovery_point
        if kind == "reopen":
            self.log.finish()
            self.log.sync()
            self.log.close()
            self.open(is_clean=True, recovery_point=self.end)
        else:
            self.log.close()
            self.files = self.files.crash(keep_unsynced=kind == "kill")
            self.open(is_clean=False, recovery_point=point)
        end = self.log.end_offset
        if kind == "power loss":
            assert end >= point
            assert end in {self.start, *(each.last + 1 for each in self.entries)}
            self.entries = [each for each in self.entries if each.last < end]
        else:
            assert end == self.end
            assert not self.cuts
        self.end = self.high_watermark = end
        # What lies below the log start in its segment may be seen again.
        self.entries = [
            each._replace(producer_id=each.forgotten_id, forgotten_id=-1)
            if each.forgotten_id >= 0
            else each
            for each in self.entries
        ]
        self.forget()
        self.cuts.clear()
        self.check()

    def check(self) -> None:
        """The log and a reader beside it have exactly the records of the list."""
        assert self.log.start_offset == self.start
        assert self.log.end_offset == self.end
        assert self.log.positions.high_watermark == self.high_watermark
        assert self.log.positions.last_stable == self.last_stable()
        got = [(record.offset, record.value, record.timestamp) for record in records(self.log)]
        assert got == self.rows(self.start)
        first_base = self.log.segments.first.base_offset
        reader = open_log_reader(self.files, FOLDER)
        assert reader.end_offset == self.end
        beside = [
            (record.offset, record.value, record.timestamp)
            for each in reader.batches(first_base, reader.end_offset)
            for record in records_of(each)
        ]
        assert beside == self.rows(first_base)

    def rows(self, start: int) -> list[tuple[int, bytes, int]]:
        """Offset, value and timestamp of each record from the batch that holds an offset on."""
        return [
            (each.base + number, *row)
            for each in self.entries
            if each.last >= start
            for number, row in enumerate(each.rows)
        ]


def check_batch(got: Batch, entry: Entry) -> None:
    """Hold a batch against its entry."""
    got.check()
    assert got.producer_id == entry.producer_id
    assert [(record.offset, record.value, record.timestamp) for record in records_of(got)] == [
        (entry.base + number, *row) for number, row in enumerate(entry.rows)
    ]


def work(model: Model, operation: tuple[str, object, object]) -> None:
    """Do one operation on the log and on the list."""
    match operation:
        case ("append", Codec() as codec, list(rows)):
            model.append(codec, rows)
        case ("follow", int(gap), list(counts)):
            model.follow(gap, counts)
        case ("transact", int(producer_id), int(count)):
            model.transact(producer_id, count)
        case ("end", int(producer_id), bool(is_commit)):
            model.end_transaction(producer_id, is_commit=is_commit)
        case ("replicate", float(share), _):
            model.replicate(share)
        case ("read", float(share), int(bytes_max)):
            model.read(share, bytes_max)
        case ("find", int(delta), _):
            model.find(delta)
        case ("truncate", float(share), _):
            model.truncate(share)
        case ("raise start", float(share), _):
            model.raise_start(share)
        case ("keep bytes", int(limit), _):
            model.keep(retention_bytes=limit)
        case ("keep time", int(limit), _):
            model.keep(retention_ms=limit)
        case ("roll", _, _):
            model.log.roll()
        case ("sync", _, _):
            model.log.sync()
        case ("commit", _, _):
            model.log.commit()
        case ("checkpoint", _, _):
            model.log.sync_rolled()
        case (kind, _, _):
            model.restart(kind)
    assert model.log.positions.last_stable == model.last_stable()


@given(st.lists(st.one_of(PLAIN, PLAIN, REST, REST), min_size=10, max_size=60))
def test_a_log_is_a_list(operations: list[tuple[str, object, object]]) -> None:
    """The two are equal after any appends, transactions, deletions and crashes of a leader."""
    model = Model(CONFIG)
    for operation in operations:
        work(model, operation)
    model.check()


@given(st.lists(st.one_of(FOLLOWED, FOLLOWED, PLAIN, REST, REST), min_size=10, max_size=60))
def test_a_log_with_gaps_is_a_list(operations: list[tuple[str, object, object]]) -> None:
    """The two are equal after any acts of a compacted log's follower, except the loss of power."""
    model = Model(WITH_GAPS)
    for operation in operations:
        work(model, ("kill", None, None) if operation[0] == "power loss" else operation)
    model.check()
