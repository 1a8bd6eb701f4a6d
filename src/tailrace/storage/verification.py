"""Transactions that a log has yet to hear of from their coordinator (KIP-890).

A client that is slow, or wrong, may send a batch of a transaction that its coordinator has ended
already, or never knew to reach this partition. Nobody would write a marker behind it, and readers
of committed records would stop there for good. So before the first batch of a transaction enters a
log, the broker asks the coordinator whether the partition belongs to it:

    broker                          log                             coordinator
    begin_verification      ->      entry made, its guard handed out
    ask                     ->                                      yes
    append(guard=...)       ->      the guard is the entry's: taken, and the entry goes

A marker that arrives while the coordinator is being asked takes the entry away, so the batch comes
with a guard that is none any more. The client's next try begins anew with another one; this is what
a guard is for, and why it is a thing and not a flag: the answer to an earlier question must not let
a later transaction in.

The entry also has the lowest sequence that is being asked about. An unknown producer may begin
anywhere, and a batch that was answered first must not get ahead of an earlier one.

What is not here: who asks, since this broker has no transaction coordinator yet. Until it has,
nobody calls `ProducerStates.begin_verification` or sets `Verifications.is_required`.

Invariant: kept in memory alone. What a restart forgets is asked anew.
"""

from dataclasses import dataclass, field

from tailrace.records.batch import Batch


class VerificationGuard:
    """What an append has to show; equal to itself only."""

    __slots__ = ()


@dataclass(slots=True, kw_only=True)
class Verification:
    """What is being asked about one producer."""

    epoch: int
    lowest_sequence: int
    """Of the batches of this epoch that wait for an answer."""
    since_ms: int
    """When the entry was made, by the broker's clock."""
    guard: VerificationGuard = field(default_factory=VerificationGuard)


class Verifications:
    """Of one log, by producer id; its owner's thread alone uses it."""

    def __init__(self) -> None:
        self.is_required = False
        """Whether a transaction may begin only with a guard."""
        self._entries: dict[int, Verification] = {}

    def get(self, producer_id: int) -> Verification | None:
        """What is being asked about a producer."""
        return self._entries.get(producer_id)

    def begin(self, producer_id: int, *, epoch: int, sequence: int, now_ms: int) -> Verification:
        """The entry of a producer, made if there is none.

        It takes over a lower sequence of its epoch, and both of a newer epoch; its guard and its
        age stay.
        """
        entry = self._entries.get(producer_id)
        if entry is None:
            entry = Verification(epoch=epoch, lowest_sequence=sequence, since_ms=now_ms)
            self._entries[producer_id] = entry
        elif epoch > entry.epoch:
            entry.epoch, entry.lowest_sequence = epoch, sequence
        elif epoch == entry.epoch:
            entry.lowest_sequence = min(entry.lowest_sequence, sequence)
        return entry

    def has_let_in(self, batch: Batch, guard: VerificationGuard | None) -> bool:
        """Whether a batch may begin a transaction; whoever shows the guard of its entry may."""
        if not self.is_required:
            return True
        entry = self._entries.get(batch.producer_id)
        return entry is not None and entry.guard is guard

    def lowest_sequence_or_none(self, batch: Batch) -> int | None:
        """The sequence that has to come before a batch, if one has; whether required or not."""
        entry = self._entries.get(batch.producer_id)
        is_ahead = entry is not None and batch.base_sequence > entry.lowest_sequence
        return entry.lowest_sequence if entry is not None and is_ahead else None

    def forget(self, producer_id: int) -> None:
        """Drop the entry of a producer: its transaction has begun or ended. None there is fine."""
        self._entries.pop(producer_id, None)

    def expire(self, now_ms: int, *, expiration_ms: int) -> None:
        """Drop the entries that nobody has used for so long."""
        self._entries = {
            producer_id: entry
            for producer_id, entry in self._entries.items()
            if now_ms - entry.since_ms < expiration_ms
        }
