"""Transactions as DescribeTransactions and ListTransactions show them."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable

from tailrace.coordinator.transactions.state import Transaction, TransactionStatus
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.describe_transactions import TopicData, TransactionState
from tailrace.protocol.messages.list_transactions import TransactionState as Listed
from tailrace.values import dataclass

_STATUSES = {status.label: status for status in TransactionStatus}


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which transactions are listed."""

    statuses: Collection[TransactionStatus] | None
    """None: all."""
    producer_ids: Collection[int]
    """Empty: all."""
    duration_ms: int
    """Least time since their begin; negative: any."""
    is_listed: Callable[[str], bool]
    """Whether the client may see an id, and its pattern matches it."""

    def takes(self, transaction: Transaction, now_ms: int) -> bool:
        """Whether a transaction is listed."""
        return (
            (self.statuses is None or transaction.status in self.statuses)
            and (not self.producer_ids or transaction.producer_id in self.producer_ids)
            and (self.duration_ms < 0 or now_ms - transaction.start_ms >= self.duration_ms)
            and self.is_listed(transaction.transactional_id)
        )


def known_statuses(
    names: Iterable[str],
) -> tuple[Collection[TransactionStatus] | None, tuple[str, ...]]:
    """The statuses with these names, None for no names; and the names of none."""
    wanted = tuple(names)
    if not wanted:
        return None, ()
    statuses = {_STATUSES[each] for each in wanted if each in _STATUSES}
    return statuses, tuple(each for each in wanted if each not in _STATUSES)


def listed(transaction: Transaction) -> Listed:
    """A transaction in a list."""
    return Listed(
        transactional_id=transaction.transactional_id,
        producer_id=transaction.producer_id,
        transaction_state=transaction.status.label,
    )


def described(
    transactional_id: str, transaction: Transaction | None, is_visible: Callable[[str], bool]
) -> TransactionState:
    """A transaction with the partitions of the topics that the client may see."""
    if transaction is None:
        return undescribed(transactional_id, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    topics: dict[str, list[int]] = defaultdict(list)
    for each in sorted(transaction.partitions):
        if is_visible(each.topic):
            topics[each.topic].append(each.partition)
    return TransactionState(
        transactional_id=transactional_id,
        transaction_state=transaction.status.label,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.start_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=tuple(
            TopicData(topic=topic, partitions=tuple(partitions))
            for topic, partitions in topics.items()
        ),
    )


def undescribed(transactional_id: str, error: ErrorCode) -> TransactionState:
    """Why there is nothing to describe."""
    return TransactionState(transactional_id=transactional_id, error_code=error)
