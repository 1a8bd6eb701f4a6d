"""Any sequence of batches, markers and stops gives what the list of all that was taken says."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from tailrace.model import AppendOrigin, Offset, ProducerId
from tailrace.records.batch import Batch
from tailrace.storage.producers import (
    CoordinatorFencedError,
    InvalidProducerEpochError,
    InvalidTransactionStateError,
    KnownBatch,
    ProducerSequenceError,
    ProducerStates,
)
from tailrace.storage.segments import Segments
from tailrace.testing import MemoryFiles
from tests.unit.storage.builders import NOW
from tests.unit.storage.producer_builders import (
    ABORT,
    COMMIT,
    folder,
    marker,
    segments,
    sent,
    snapshots,
    states,
    write,
)

OPERATIONS = st.lists(
    st.one_of(
        st.tuples(
            st.just("data"),
            st.integers(1, 3),  # producer
            st.sampled_from([0, 0, 0, 0, 1, -1]),  # epochs after the newest
            st.sampled_from([0, 0, 0, 0, 1, -1, -2]),  # batches after the next one
            st.integers(1, 3),  # records
            st.booleans(),  # in a transaction
        ),
        st.tuples(
            st.just("marker"),
            st.integers(1, 3),
            st.sampled_from([0, 0, 0, 1, -1]),
            st.sampled_from([0, 0, 1, -1]),  # coordinator epochs after the newest
            st.sampled_from([COMMIT, ABORT]),
        ),
        st.tuples(st.just("high watermark"), st.integers(0, 3)),
        st.tuples(st.just("snapshot")),
        st.tuples(st.just("start")),
    ),
    min_size=5,
    max_size=40,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """One batch that was taken."""

    batch: Batch
    base_offset: int
    coordinator_epoch: int = -1
    """Coordinator epoch of a marker; -1 for other batches."""

    @property
    def last_offset(self) -> int:
        """Offset of its last record."""
        return self.base_offset + int(self.batch.last_offset_delta)


@dataclass(slots=True)
class Model:
    """The state under test, the disk it is on, and the list of all that was taken."""

    files: MemoryFiles = field(default_factory=folder)
    taken: list[Taken] = field(default_factory=list)
    high_watermark: int = 0
    log_end: int = 0
    forgotten: int = 0
    """Offset of the newest snapshot of a start, which has only the last batch of each producer."""
    log: Segments = field(init=False)
    known: ProducerStates = field(init=False)

    def __post_init__(self) -> None:
        self.known = states(self.files)
        self.log = segments(self.files)

    def of(self, producer_id: int) -> list[Taken]:
        """All of one producer."""
        return [each for each in self.taken if each.batch.producer_id == producer_id]

    def epoch(self, producer_id: int) -> int:
        """Producer epoch of its newest batch or marker."""
        return max((each.batch.producer_epoch for each in self.of(producer_id)), default=-1)

    def coordinator_epoch(self, producer_id: int) -> int:
        """Coordinator epoch of its newest marker."""
        return max((each.coordinator_epoch for each in self.of(producer_id)), default=-1)

    def batches(self, producer_id: int) -> list[Taken]:
        """The batches of its newest epoch that may be repeated."""
        epoch = self.epoch(producer_id)
        return [
            each
            for each in self.of(producer_id)
            if each.batch.producer_epoch == epoch and not each.batch.is_control
        ][-5:]

    def transactions(self) -> list[tuple[int, int, int]]:
        """Producer, first offset, and the offset of the marker or -1."""
        found: list[tuple[int, int, int]] = []
        open_at: dict[int, int] = {}
        for each in self.taken:
            producer_id = each.batch.producer_id
            if not each.batch.is_control:
                if each.batch.is_transactional:
                    open_at.setdefault(producer_id, each.base_offset)
            elif producer_id in open_at:
                found.append((producer_id, open_at.pop(producer_id), each.base_offset))
        return found + [(producer_id, first, -1) for producer_id, first in open_at.items()]

    def verdict(self, batch: Batch) -> str | Taken:
        """The rule that data breaks, the batch it repeats, or nothing."""
        producer_id, first = batch.producer_id, batch.base_sequence
        epoch, batches = self.epoch(producer_id), self.batches(producer_id)
        if epoch == -1:
            return ""
        if batch.producer_epoch < epoch:
            return "epoch"
        if batch.producer_epoch > epoch:
            batches = []
        for each in batches:
            if (each.batch.base_sequence, each.batch.last_sequence) == (first, batch.last_sequence):
                return each
        if first != (batches[-1].batch.last_sequence + 1 if batches else 0):
            return "sequence"
        is_open = any(who == producer_id and end == -1 for who, _, end in self.transactions())
        return "transaction" if is_open and not batch.is_transactional else ""

    def data(self, producer_id: int, more: tuple[int, int, int], *, is_open: bool) -> None:
        """A client sends a batch; `more` has epochs ahead, batches ahead and records."""
        ahead, skipped, count = more
        epoch = max(0, self.epoch(producer_id) + ahead)
        batches = self.batches(producer_id) if epoch == self.epoch(producer_id) else []
        sequence = batches[-1].batch.last_sequence + 1 if batches else 0
        if skipped < 0 and len(batches) >= -skipped:
            again = batches[skipped].batch
            sequence, count = again.base_sequence, again.record_count
        elif skipped:
            sequence += 1
        batch = sent(
            sequence, count=count, epoch=epoch, producer_id=producer_id, is_transactional=is_open
        )
        expected = self.verdict(batch)
        found = self.checked(batch, AppendOrigin.CLIENT)
        if isinstance(expected, Taken):
            assert isinstance(found, KnownBatch)
            assert found.base_offset == expected.base_offset
            return
        assert found == expected
        if not expected:
            self.take(batch)

    def checked(self, batch: Batch, origin: AppendOrigin) -> str | KnownBatch:
        """The batch that is repeated, the rule that is broken, or nothing."""
        try:
            return self.known.check(batch, origin=origin) or ""
        except InvalidProducerEpochError:
            return "epoch"
        except ProducerSequenceError:
            return "sequence"
        except InvalidTransactionStateError:
            return "transaction"
        except CoordinatorFencedError:
            return "coordinator"

    def marker(self, producer_id: int, ahead: int, *, coordinator: int, aborts: bool) -> None:
        """A coordinator ends a transaction, or what it takes for one."""
        epoch = max(0, self.epoch(producer_id) + ahead)
        coordinator_epoch = max(0, self.coordinator_epoch(producer_id) + coordinator)
        batch = marker(
            ABORT if aborts else COMMIT,
            epoch=epoch,
            producer_id=producer_id,
            coordinator_epoch=coordinator_epoch,
        )
        expected = ""
        if epoch < self.epoch(producer_id):
            expected = "epoch"
        elif coordinator_epoch < self.coordinator_epoch(producer_id):
            expected = "coordinator"
        assert self.checked(batch, AppendOrigin.COORDINATOR) == expected
        if not expected:
            self.take(batch, coordinator_epoch=coordinator_epoch)

    def take(self, batch: Batch, *, coordinator_epoch: int = -1) -> None:
        """Append a batch; what it completes is what the list says."""
        still_open = {first for _, first, end in self.transactions() if end == -1}
        each = Taken(batch=batch, base_offset=self.log_end, coordinator_epoch=coordinator_epoch)
        self.taken.append(each)
        self.log_end = write(self.log.active, batch, offset=self.log_end)
        completed = self.known.note(
            batch,
            base_offset=Offset(each.base_offset),
            last_offset=Offset(each.last_offset),
            timestamp=NOW,
        )
        ended = [
            (who, first)
            for who, first, end in self.transactions()
            if end == each.base_offset and batch.is_control
        ]
        assert ([] if completed is None else [completed[:2]]) == ended
        if completed is not None:
            still_open.remove(completed.first_offset)
            expected = min(still_open, default=self.log_end)
            assert self.known.last_stable_offset(completed) == expected
            self.known.complete(completed)

    def start(self) -> None:
        """Stop without a word, and start again from what is on the disk."""
        self.known = states(self.files)
        self.known.reload(self.log, log_start=Offset(0), log_end=Offset(self.log_end))
        self.known.advance_high_watermark(Offset(self.high_watermark))
        self.forgotten = max([self.forgotten, *snapshots(self.files)])

    def check(self) -> None:
        """Everything that can be asked for is what the list says."""
        unstable = [
            first
            for _, first, end in self.transactions()
            # A snapshot does not have those that ended before it.
            if end == -1 or end >= max(self.high_watermark, self.forgotten)
        ]
        assert self.known.first_unstable_offset == min(unstable, default=None)
        for producer_id in (1, 2, 3):
            known = self.known.get(ProducerId(producer_id))
            if known is None:
                assert not self.of(producer_id)
                continue
            assert known.epoch == self.epoch(producer_id)
            assert known.coordinator_epoch == self.coordinator_epoch(producer_id)
            batches = self.batches(producer_id)
            found = [(each.base_offset, each.first_sequence) for each in known.batches]
            newest = [(each.base_offset, each.batch.base_sequence) for each in batches]
            assert found == newest[len(newest) - len(found) :]
            behind = sum(each.last_offset >= self.forgotten for each in batches)
            assert len(found) >= max(behind, min(len(batches), 1))


@given(OPERATIONS)
def test_the_state_of_producers_is_what_the_log_says(operations: list[tuple[object, ...]]) -> None:
    """Accepted, refused, repeated and completed batches follow from the list of appends alone."""
    model = Model()
    for operation in operations:
        match operation:
            case ("data", int(who), int(ahead), int(skipped), int(count), bool(is_open)):
                model.data(who, (ahead, skipped, count), is_open=is_open)
            case ("marker", int(who), int(ahead), int(coordinator), kind):
                model.marker(who, ahead, coordinator=coordinator, aborts=kind is ABORT)
            case ("high watermark", int(more)):
                model.high_watermark = min(model.log_end, model.high_watermark + more)
                model.known.advance_high_watermark(Offset(model.high_watermark))
            case ("snapshot",):
                model.known.write_snapshot(Offset(model.log_end))
            case _:
                model.start()
        model.check()
