"""`ClusterTransactions`: the requests by which a driver ends the transactions of its tasks.

Not here: which are to be ended how (`commits`), and the producers that begin them (`rows`).
"""

import os
import re
import time
from collections.abc import Collection, Mapping
from typing import Final

from tailrace.client.admin.cluster import describe_cluster
from tailrace.client.admin.transactions import (
    FENCING_TIMEOUT_MS,
    NoSuchTransactionError,
    TransactionListing,
    describe_transactions,
    end_transactions,
    fence_producers,
    list_transactions,
    raise_epoch,
)
from tailrace.client.calls import Call
from tailrace.client.errors import RemoteFatalError, UnsupportedBrokerError
from tailrace.client.prepared_transaction import PreparedTransaction
from tailrace.client.producer.config import parse_producer_config
from tailrace.client.reader import ClusterReader
from tailrace.client.transaction_outcome import ForgottenTransactionError, find_outcome
from tailrace.config.settings import INT32_MAX, INT64_MAX
from tailrace.errors import FatalError, TailraceError
from tailrace.model import TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.spark.sink.ledger import GO_BACK, NO_COUNT, Count

LIMIT_MS: Final = 60_000
"""Longest time of one step, with all retries (Kafka: default.api.timeout.ms)."""

_GONE: Final = frozenset({
    ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_TXN_STATE,
})  # fmt: skip
"""A transaction is not open any more: it was ended, or it has expired."""

_OPEN: Final = "Ongoing"
_EMPTY: Final = "Empty"
"""An id whose producer has opened no transaction yet."""


class ClusterTransactions:
    """The transactions of one cluster, as `commits.Transactions` has them."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        """`settings` are those of the producer; connects when it is first asked."""
        self._cluster = ClusterReader(parse_producer_config(settings))
        self._cluster_id: str | None = None

    def cluster_id(self) -> str:
        """The id of the cluster; asked once.

        Raises:
            TailraceError: no broker answers for a minute.
        """
        if self._cluster_id is None:
            # An old broker tells none; then all clusters of that kind count as one.
            self._cluster_id = self._cluster.run(describe_cluster(self._call())).cluster_id or ""
        return self._cluster_id

    def commit(self, transactions: Collection[PreparedTransaction]) -> set[PreparedTransaction]:
        """Commit transactions; returns those that are not open any more.

        Raises:
            TailraceError: that of a transaction whose coordinator did not answer for a minute, or
                refuses; the others may be committed.
        """
        gone = set()
        ended = self._cluster.run(end_transactions(self._call(), transactions, commit=True))
        for transaction, outcome in ended.items():
            if isinstance(outcome, RemoteFatalError) and outcome.code in _GONE:
                gone.add(transaction)
            elif isinstance(outcome, TailraceError):
                raise outcome
        return gone

    def is_committed(self, partition: TopicPartition, *, offset: int, producer_id: int) -> bool:
        """Whether the log has the transaction of a record as a committed one.

        Raises:
            FatalError: that did not show within a minute, or the log does not have the record any
                more.
        """
        # The marker of a commit may still be on its way to the partition.
        limit = time.monotonic() + LIMIT_MS / 1000
        while time.monotonic() < limit:
            try:
                found = find_outcome(
                    self._cluster, partition, offset=offset, producer_id=producer_id
                )
            except ForgottenTransactionError as error:
                raise FatalError(
                    f"it is not known whether a transaction was committed: {error}. To write "
                    f"its rows again, {GO_BACK}"
                ) from error
            if found is not None:
                return found
        raise FatalError(
            f"{partition}: a transaction that is open before offset {offset} hides whether the "
            "batch there is committed; run it again when it has ended (`tailrace "
            "transaction list` shows it)"
        )

    def raise_count(self, name: str) -> Count:
        """Raise a counter; nobody else gets the same count.

        Raises:
            TailraceError: its coordinator does not answer for a minute, or refuses.
        """
        fenced = self._cluster.run(fence_producers(self._call(), [name])).result(name)
        return Count(fenced.producer_id, fenced.producer_epoch)

    def raise_count_after(self, name: str, before: Count) -> None:
        """Raise a counter whose newest count is this; once more, it changes nothing.

        Raises:
            FatalError: it has another count.
            TailraceError: its coordinator does not answer for a minute, or refuses.
        """
        # Of a counter that does not exist Kafka takes any; and if that was repeated, none.
        expected = Count(INT64_MAX, 0) if before == NO_COUNT else before
        raised = self._cluster.run(
            raise_epoch(
                self._call(), name, producer_id=expected.producer_id, epoch=expected.producer_epoch
            )
        )
        try:
            raised.result(name)
        except RemoteFatalError as error:
            if error.code not in _GONE:
                raise
            # It was raised already, and the coordinator has lost its memory of that meanwhile.
            found = self.count(name)
            if not found.follows(before):
                raise FatalError(
                    f"transactional id {name!r} is at {found}, and was at {before} just now: "
                    "another driver writes for the same query or job. Run one driver at a time"
                ) from error

    def count(self, name: str) -> Count:
        """The newest count; `NO_COUNT` if there is no such counter, or none any more.

        Raises:
            TailraceError: its coordinator does not answer for a minute, or refuses.
        """
        described = self._cluster.run(describe_transactions(self._call(), [name]))
        try:
            found = described.result(name)
        except NoSuchTransactionError:
            return NO_COUNT
        return Count(found.producer_id, found.producer_epoch)

    def fence(self, prefix: str) -> None:
        """Fence the producers whose transactional ids begin so, and abort what they have open.

        Those that have ended their transactions are left alone.

        Raises:
            FatalError: the brokers have no transactions that can be listed.
            TailraceError: a broker does not answer for a minute, or refuses.
        """
        try:
            found = self._listed(prefix)
        except UnsupportedBrokerError as error:
            raise FatalError(
                "delivery: exactly-once needs brokers with transactions that can be listed (Kafka "
                f"3.0 and later): {error}"
            ) from error
        # An identity without a transaction could open one any time, so it is fenced like an open
        # one.
        empty = [each.transactional_id for each in found if each.state == _EMPTY]
        to_fence = [each.transactional_id for each in found if each.state != _EMPTY]
        if empty:
            described = self._cluster.run(describe_transactions(self._call(), empty)).results()
            # Those that were fenced before are empty as well, until they are used again.
            to_fence += [
                name for name, each in described.items() if each.timeout_ms != FENCING_TIMEOUT_MS
            ]
        if to_fence:
            self._cluster.run(fence_producers(self._call(), to_fence)).results()

    def _listed(self, prefix: str) -> list[TransactionListing]:
        """Transactional ids that begin so and whose last transaction is open, or still to come."""
        # A pattern keeps the answer small (KIP-1152): a cluster may have millions of ids.
        states = (_OPEN, _EMPTY)
        try:
            return self._cluster.run(
                list_transactions(self._call(), states=states, pattern=f"{re.escape(prefix)}.*")
            )
        except UnsupportedBrokerError:  # before Kafka 4.1: it lists those of all its clients
            listed = self._cluster.run(list_transactions(self._call(), states=states))
            return [each for each in listed if each.transactional_id.startswith(prefix)]

    def close(self) -> None:
        self._cluster.close()

    def _call(self) -> Call:
        return self._cluster.call(limit_ms=LIMIT_MS, retries=INT32_MAX)


_kept: dict[frozenset[tuple[str, str]], ClusterTransactions] = {}
"""The connections of the last micro-batch, by their settings; a worker of the driver often lives
from one to the next."""

os.register_at_fork(after_in_child=_kept.clear)


def transactions_of(settings: Mapping[str, str]) -> ClusterTransactions:
    """The transactions of a cluster; the connections are kept for the next call."""
    key = frozenset(settings.items())
    found = _kept.pop(key, None)
    # One cluster at a time: a driver with many queries would otherwise keep connections to all of
    # them.
    while _kept:
        _kept.popitem()[1].close()
    _kept[key] = found or ClusterTransactions(settings)
    return _kept[key]
