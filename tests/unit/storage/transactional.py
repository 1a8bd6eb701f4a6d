"""Producers with transactions, and batches as a leader sends them, for tests of whole logs."""

from tailrace.model import AppendOrigin, LeaderEpoch
from tailrace.records.batch import stamp
from tailrace.records.control import build_end_marker
from tailrace.storage.log import Log, LogAppendInfo
from tests.unit.storage.builders import NOW, batch


class TransactionalProducer:
    """Writes to one log as its leader takes it; moves no high watermark."""

    def __init__(self, log: Log, producer_id: int, *, epoch: int = 0) -> None:
        self.log = log
        self.producer_id = producer_id
        self.epoch = epoch
        self._sequence = 0

    def append(self, count: int = 1, *, value: bytes = b"value") -> LogAppendInfo:
        """A batch of `count` records in the transaction, which it may begin."""
        data = batch(
            *[value] * count,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self._sequence,
            is_transactional=True,
        )
        self._sequence += count
        return self.log.append(memoryview(data), leader_epoch=LeaderEpoch(0), now_ms=NOW)

    def end(
        self, *, is_commit: bool, coordinator_epoch: int = 0, epoch: int | None = None
    ) -> LogAppendInfo:
        """The marker of a transaction's end, as the coordinator writes it."""
        data = build_end_marker(
            self.producer_id,
            self.epoch if epoch is None else epoch,
            is_commit=is_commit,
            coordinator_epoch=coordinator_epoch,
            timestamp=NOW,
        )
        return self.log.append(
            memoryview(data),
            leader_epoch=LeaderEpoch(0),
            now_ms=NOW,
            origin=AppendOrigin.COORDINATOR,
        )

    def commit(self) -> LogAppendInfo:
        """End the transaction; its records count."""
        return self.end(is_commit=True)

    def abort(self) -> LogAppendInfo:
        """End the transaction; its records do not count."""
        return self.end(is_commit=False)


def append_plain(log: Log, count: int = 1) -> LogAppendInfo:
    """A batch of `count` records of no producer; moves no high watermark."""
    return log.append(
        memoryview(batch(*[b"plain"] * count)), leader_epoch=LeaderEpoch(0), now_ms=NOW
    )


def replicated(
    base_offset: int, *values: bytes, leader_epoch: int = 0, **options: object
) -> bytearray:
    """A batch with the offset and epoch that its leader gave it."""
    data = batch(*values, **options)  # type: ignore[arg-type]
    stamp(memoryview(data), base_offset=base_offset, leader_epoch=leader_epoch)
    return data


def replicated_marker(base_offset: int, producer_id: int, *, is_commit: bool) -> bytearray:
    """A marker with the offset that its leader gave it."""
    data = build_end_marker(producer_id, 0, is_commit=is_commit, coordinator_epoch=0, timestamp=NOW)
    stamp(memoryview(data), base_offset=base_offset, leader_epoch=0)
    return data


def follow(log: Log, *batches: bytes | bytearray) -> int:
    """Append batches in one call, as a follower does; the new log end."""
    return log.append_as_follower(memoryview(b"".join(batches)), now_ms=NOW)
