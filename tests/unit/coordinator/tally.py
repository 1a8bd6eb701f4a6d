"""A coordinator that counts: the smallest machine with records, transactions and parked replies."""

import asyncio
from dataclasses import dataclass, field
from struct import Struct

from tailrace.coordinator.machine import (
    CoordinatorRecord,
    Decision,
    Origin,
    Propose,
    TransactionalProducer,
)
from tailrace.coordinator.shard import PartitionLog, Shard
from tailrace.coordinator.statistics import ShardCounts
from tailrace.errors import CorruptionError
from tailrace.model import TopicPartition
from tailrace.protocol.records import TransactionLogKey, TransactionLogValue
from tailrace.testing.outside import Outside

PARTITION = TopicPartition("__tally", 0)
COUNT = Struct(">q")


def added(name: str, count: int) -> CoordinatorRecord:
    """A record that adds to a name's count; any type will do, as the codec is this file's."""
    key = TransactionLogKey(transactional_id=name)
    return CoordinatorRecord(key, TransactionLogValue(producer_id=count))


class TallyCodec:
    """A name, and a number of eight bytes; names that begin with `?` are of a newer version."""

    def encode(self, record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
        """Key and value."""
        assert isinstance(record.key, TransactionLogKey)
        assert isinstance(record.value, TransactionLogValue)
        return record.key.transactional_id.encode(), COUNT.pack(record.value.producer_id)

    def decode(self, key: bytes, value: bytes | None) -> CoordinatorRecord | None:
        """The record, or None."""
        if key.startswith(b"?"):
            return None
        if value is None or len(value) != COUNT.size:
            raise CorruptionError("a count has eight bytes")
        return added(key.decode(), *COUNT.unpack(value))


@dataclass
class Tally:
    """Counts by name."""

    counts: dict[str, int] = field(default_factory=dict)
    pending: dict[int, list[tuple[str, int]]] = field(default_factory=dict)
    """Additions of open transactions, by producer."""
    parked: "list[asyncio.Future[int]]" = field(default_factory=list)
    propose: Propose | None = None
    undone: list[Exception] = field(default_factory=list)

    def add(
        self, name: str, count: int, *, producer: TransactionalProducer | None = None
    ) -> Decision[int]:
        """Add to a count; the reply is the sum."""
        return Decision(
            reply=self.counts.get(name, 0) + count,
            records=(added(name, count),),
            producer=producer,
            undo=self.undone.append,
        )

    def get(self, name: str) -> Decision[int]:
        """The count."""
        return Decision(reply=self.counts.get(name, 0))

    def park(self) -> Decision[int]:
        """A reply that comes later."""
        self.parked.append(asyncio.get_running_loop().create_future())
        return Decision(reply=self.parked[-1])

    def replay(self, record: CoordinatorRecord, origin: Origin) -> None:
        """Add, at once or when the transaction commits."""
        assert isinstance(record.key, TransactionLogKey)
        assert isinstance(record.value, TransactionLogValue)
        change = record.key.transactional_id, record.value.producer_id
        if change[0] == "bug":
            raise RuntimeError("a bug in the machine")
        if origin.producer_id >= 0:
            self.pending.setdefault(origin.producer_id, []).append(change)
        else:
            self._add(*change)

    def replay_marker(self, producer_id: int, *, is_commit: bool) -> None:
        """Add what the transaction has, or forget it."""
        for change in self.pending.pop(producer_id, []):
            if is_commit:
                self._add(*change)

    def _add(self, name: str, count: int) -> None:
        self.counts[name] = self.counts.get(name, 0) + count

    def start(self, propose: Propose) -> None:
        """Remember how to decide without a client."""
        self.propose = propose

    def stop(self, error: Exception) -> None:
        """Answer everyone who waits."""
        for each in self.parked:
            if not each.done():
                each.set_exception(error)


def tally_on(
    outside: Outside,
    log: PartitionLog,
    *,
    commit_timeout_ms: int | None = None,
    counts: ShardCounts | None = None,
) -> Shard[Tally]:
    """A shard on this log, not loaded yet."""
    return Shard(
        log,
        Tally,
        TallyCodec,
        clock=outside.runtime.clock,
        commit_timeout_ms=commit_timeout_ms,
        counts=counts,
    )
