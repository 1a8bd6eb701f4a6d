"""Verification of a transaction with its coordinator before its first batch (KIP-890).

A slow or faulty client may send a batch of a transaction that its coordinator has ended already, or
to which this partition was never added. No marker would follow, and read_committed consumers would
stop there forever. So before the first batch of a transaction is appended, the broker asks the
coordinator whether the partition belongs to it:

    broker                          log                             coordinator
    begin_verification      ->      entry made, its guard handed out
    ask                     ->                                      yes
    append(guard=...)       ->      guard matches the entry: appended, entry removed

A marker that arrives while the broker asks the coordinator removes the entry, so the guard of the
batch matches no entry. The next try gets a new guard, the client's as well as the broker's own. The
guard is an object and not a flag, because the answer for an earlier transaction must not admit a
later one.

The entry also has the lowest sequence that is being verified. A producer without state may begin at
any sequence, and a batch that is verified first must not overtake an earlier one.

`handlers.produce_transactions` and `handlers.txn_offset_commit` ask the coordinator.

Invariant: kept only in memory. After a restart the coordinator is asked again.
"""

from tailrace.model import ProducerEpoch, ProducerId
from tailrace.records.batch import Batch
from tailrace.values import dataclass, field


class VerificationGuard:
    """Token by which an append proves its verification; equal only to itself."""

    __slots__ = ()


@dataclass(slots=True, kw_only=True)
class Verification:
    """The verification in progress of one producer."""

    epoch: ProducerEpoch
    lowest_sequence: int
    """The lowest base sequence of this epoch that waits for the coordinator."""
    since_ms: int
    """When the entry was made, by the broker's clock."""
    begins_at_zero: bool = False
    """Whether the producer has a new epoch for each transaction (KIP-890): if the log does not know
    it, its first sequence must be 0."""
    guard: VerificationGuard = field(default_factory=VerificationGuard)


class Verifications:
    """The verifications of one log, by producer id; only its owner's thread uses it."""

    def __init__(self) -> None:
        self.is_required = False
        """Whether a transaction may begin only with a guard."""
        self._entries: dict[ProducerId, Verification] = {}

    def get(self, producer_id: ProducerId) -> Verification | None:
        return self._entries.get(producer_id)

    def begin(
        self,
        producer_id: ProducerId,
        *,
        epoch: ProducerEpoch,
        sequence: int,
        now_ms: int,
        begins_at_zero: bool = False,
    ) -> Verification:
        """The verification of a producer; begins one if there is none.

        A lower sequence of the same epoch, or a newer epoch with its sequence, is taken over; the
        guard and the time stay.
        """
        entry = self._entries.get(producer_id)
        if entry is None:
            entry = Verification(
                epoch=epoch,
                lowest_sequence=sequence,
                since_ms=now_ms,
                begins_at_zero=begins_at_zero,
            )
            self._entries[producer_id] = entry
        elif epoch > entry.epoch:
            entry.epoch, entry.lowest_sequence = epoch, sequence
        elif epoch == entry.epoch:
            entry.lowest_sequence = min(entry.lowest_sequence, sequence)
        return entry

    def has_let_in(self, batch: Batch, guard: VerificationGuard | None) -> bool:
        """Whether a batch may begin a transaction: verification is not required or `guard` fits."""
        if not self.is_required:
            return True
        entry = self._entries.get(batch.producer_id)
        return entry is not None and entry.guard is guard

    def lowest_sequence_or_none(self, batch: Batch, *, is_known: bool) -> int | None:
        """The sequence that must be appended before `batch`, or None; also if not required.

        `is_known` says whether the log has state of the producer.
        """
        entry = self._entries.get(batch.producer_id)
        if entry is not None and entry.begins_at_zero and not is_known and batch.base_sequence:
            return 0
        is_ahead = entry is not None and batch.base_sequence > entry.lowest_sequence
        return entry.lowest_sequence if entry is not None and is_ahead else None

    def forget(self, producer_id: ProducerId) -> None:
        """Remove the entry of a producer, if any: its transaction has begun or ended."""
        self._entries.pop(producer_id, None)

    def expire(self, now_ms: int, *, expiration_ms: int) -> None:
        """Remove entries older than `expiration_ms`."""
        self._entries = {
            producer_id: entry
            for producer_id, entry in self._entries.items()
            if now_ms - entry.since_ms < expiration_ms
        }
