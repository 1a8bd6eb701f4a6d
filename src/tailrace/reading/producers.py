"""State of the producers of a partition, followed batch by batch.

    snapshot     the state at an offset, held against what the walk has seen up to there
    sequences    each batch of a producer follows on its last one
    markers      each ends a transaction that is open; an abort has its entry in the index

Nothing is refused and no file is written, other than in `tailrace.storage.producers`, whose rules
are the same: here a log is judged as it is, however it came to be so.

Invariant: what the walk cannot know is no fault of a producer. A producer that was first seen
after the start of the log may have begun before it; after a hole (compaction, damage) sequences
and transactions may lack their beginning.
"""

from typing import Final

from tailrace.model import NO_TIMESTAMP, Offset, ProducerEpoch, ProducerId
from tailrace.records.batch import Batch, sequence_after
from tailrace.records.control import ControlType, end_transaction_marker_or_none
from tailrace.records.layout import SEQUENCE_MAX
from tailrace.records.runs import Header
from tailrace.storage.config import DAY_MS
from tailrace.storage.snapshots import NONE, KnownProducer
from tailrace.values import dataclass, replace

_NO_OFFSET: Final = Offset(NONE)


@dataclass(slots=True)
class SeenProducer:
    """One producer, as of the last batch seen."""

    epoch: ProducerEpoch
    last_sequence: int = NONE
    last_offset: Offset = _NO_OFFSET
    transaction_start: Offset = _NO_OFFSET
    holes_at_start: int = 0
    """Number of holes that the walk has passed when the transaction was seen to begin."""
    holes: int = 0
    """Number of holes that the walk has passed at the producer's last batch."""
    timestamp: int = NO_TIMESTAMP
    """Timestamp (ms) of the producer's last batch or marker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedTransaction:
    """A marker that the walk came across."""

    producer_id: ProducerId
    first_offset: Offset | None
    """First offset of the transaction; None if none was seen to begin."""
    last_offset: Offset
    """The marker's."""
    last_stable_offset: Offset
    is_aborted: bool
    is_unbroken: bool
    """Whether no hole lies after the first offset, in which another transaction may have begun."""
    is_exact: bool
    """Whether there is no hole and no unknown beginning, so that all numbers must agree."""


class ProducerWalk:
    """The producers up to the batch that was seen last."""

    def __init__(self, first_offset: int = 0) -> None:
        """The walk begins at `first_offset`, with no producer known."""
        self.producers: dict[ProducerId, SeenProducer] = {}
        self.holes = 0
        """Ranges of offsets that were not seen: gaps, and damaged batches."""
        self.is_history_known = not first_offset
        """Whether the state before the first batch is known."""
        self._first_offset = first_offset
        # Producer id by first offset, in rising order.
        self._open: dict[Offset, ProducerId] = {}

    def copy(self) -> "ProducerWalk":
        """The same state, to go on from without a change to this one."""
        found = ProducerWalk(self._first_offset)
        found.producers = {each: replace(seen) for each, seen in self.producers.items()}
        found.holes, found.is_history_known = self.holes, self.is_history_known
        found._open = dict(self._open)
        return found

    def start_from(self, known: dict[ProducerId, KnownProducer]) -> None:
        """Take over the state of a snapshot, in place of what was seen."""
        self.producers = {
            producer_id: SeenProducer(
                each.epoch,
                each.last_sequence,
                each.last_offset,
                each.transaction_start,
                timestamp=each.timestamp,
            )
            for producer_id, each in known.items()
        }
        starts = (
            (each.transaction_start, producer_id)
            for producer_id, each in known.items()
            if each.has_open_transaction
        )
        self._open = dict(sorted(starts))
        self.is_history_known = True

    def sequence_fault(self, batch: Batch) -> str | None:
        """Return the reason why a data batch cannot follow its producer's last one, or None.

        To be asked before `see`.
        """
        known = self.producers.get(batch.producer_id)
        if known is None or batch.is_control or batch.base_sequence < 0:
            return None
        # Batches may be missing in between; a new epoch begins at 0.
        # A gap may hold the batches that the sequence jumps over.
        if known.holes != self.holes or known.epoch != batch.producer_epoch:
            return None
        if batch.max_timestamp - known.timestamp >= DAY_MS:
            return None  # A broker has forgotten the producer (`producer.id.expiration.ms`).
        due = sequence_after(known.last_sequence, 1)
        if known.last_sequence < 0 or batch.base_sequence == due:
            return None
        return (
            f"producer {batch.producer_id} continues with sequence {batch.base_sequence}, where "
            f"{due} is due"
        )

    def is_next(self, header: Header) -> bool:
        """Whether a sound batch of a run is just the next one of a known producer.

        If so, it is noted, as by `see`. If not, nothing changes, and `see` has to be called.
        """
        base, *_, delta, _, timestamp, producer_id, producer_epoch, sequence, _ = header
        known = self.producers.get(producer_id)
        if (
            known is None
            or known.epoch != producer_epoch
            or known.holes != self.holes
            or known.last_sequence < 0
            or sequence != (known.last_sequence + 1) & SEQUENCE_MAX
        ):
            return False
        known.last_sequence = (sequence + delta) & SEQUENCE_MAX
        known.last_offset = base + delta  # type: ignore[assignment]
        known.timestamp = timestamp
        return True

    def see(self, batch: Batch) -> EndedTransaction | None:
        """Note a sound batch with a producer id; the marker that it is, or None for data.

        Raises:
            CorruptionError, UnsupportedCodecError: a control record that cannot be read; it is
                not noted.
        """
        known = self.producers.get(batch.producer_id)
        if batch.is_control:
            return self._see_marker(batch, known)
        if known is None:
            known = self.producers[batch.producer_id] = SeenProducer(batch.producer_epoch)
        known.epoch = batch.producer_epoch
        known.last_sequence, known.last_offset = batch.last_sequence, batch.last_offset
        known.holes, known.timestamp = self.holes, batch.max_timestamp
        if batch.is_transactional and known.transaction_start < 0:
            known.transaction_start, known.holes_at_start = batch.base_offset, self.holes
            self._open[batch.base_offset] = batch.producer_id
        return None

    def _see_marker(self, batch: Batch, known: SeenProducer | None) -> EndedTransaction | None:
        marker = end_transaction_marker_or_none(batch)
        if marker is None:
            return None
        # A marker without data is normal: the transaction had none in this partition, or
        # DeleteRecords has removed it.
        if known is None:
            known = self.producers[batch.producer_id] = SeenProducer(batch.producer_epoch)
        first = None if known.transaction_start < 0 else known.transaction_start
        if first is not None:
            self._open.pop(first, None)
        if known.epoch != batch.producer_epoch:
            # KIP-360 and KIP-890: a new epoch counts from 0 again, so the old sequences say
            # nothing.
            known.last_sequence, known.last_offset = NONE, _NO_OFFSET
            known.holes = self.holes
        known.epoch, known.transaction_start = batch.producer_epoch, _NO_OFFSET
        known.timestamp = batch.max_timestamp
        # Of the others: this transaction has just ended.
        first_open = self.first_open
        return EndedTransaction(
            producer_id=batch.producer_id,
            first_offset=first,
            last_offset=batch.last_offset,
            last_stable_offset=batch.next_offset if first_open is None else first_open,
            is_aborted=marker.type is ControlType.ABORT,
            is_unbroken=known.holes_at_start == self.holes,
            is_exact=self.is_history_known and not self.holes,
        )

    @property
    def first_open(self) -> Offset | None:
        """First offset of the oldest open transaction; None without one."""
        return next(iter(self._open), None)

    def open_transactions(self) -> list[tuple[Offset, ProducerId]]:
        """First offset and producer id of each open transaction, the oldest first."""
        return list(self._open.items())

    def disagreement(self, snapshot: dict[ProducerId, KnownProducer]) -> str | None:
        """Compare a snapshot of this offset with the batches; returns a difference, or None.

        Only of producers that the walk has seen: the others may have been forgotten or may be
        older than the log. Nor of batches from before the walk, if their state is not known.
        """
        for producer_id, each in snapshot.items():
            # A snapshot may have producers whose batches were compacted or deleted.
            seen = self.producers.get(producer_id)
            if seen is None:
                continue
            pairs: list[tuple[str, int, int]] = [("epoch", each.epoch, seen.epoch)]
            # Retention may have left a marker of a producer whose batches it has deleted.
            if seen.last_offset >= 0 or not self._is_before(each.last_offset):
                pairs += [
                    ("last sequence", each.last_sequence, seen.last_sequence),
                    ("last offset", each.last_offset, seen.last_offset),
                ]
            # Or the rest of a transaction that has begun before.
            if not self._is_before(each.transaction_start):
                pairs.append(
                    ("open transaction from", each.transaction_start, seen.transaction_start)
                )
            for name, said, found in pairs:
                if said != found:
                    return f"producer {producer_id}: {name} {said}, where the log has {found}"
        return None

    def _is_before(self, offset: int) -> bool:
        """Whether the batch at an offset lies before a walk that knows nothing of it."""
        return not self.is_history_known and 0 <= offset < self._first_offset
