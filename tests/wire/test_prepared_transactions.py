"""Transactions that one process prepares and another one ends, on a broker and real sockets."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from tailrace import Admin, Producer
from tailrace.client import ClusterReader, RemoteFatalError, fetch_batches
from tailrace.client.prepared_transaction import PreparedTransaction
from tailrace.client.producer.errors import (
    ProducerFencedError,
    TransactionAbortableError,
    TransactionStateError,
)
from tailrace.client.transaction_outcome import ForgottenTransactionError, find_outcome
from tailrace.model import IsolationLevel, TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.records.builder import records_of
from tailrace.testing.broker import TestBroker

pytestmark = pytest.mark.wire

F0 = TopicPartition("flights", 0)


@pytest.fixture
def broker() -> Iterator[TestBroker]:
    """A broker with a topic of one partition."""
    with TestBroker() as broker:
        broker.create_topic("flights", partitions=1)
        yield broker


def prepare(broker: TestBroker, name: str, value: bytes) -> PreparedTransaction:
    """Write a record in a transaction that outlives its producer."""
    with Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id=name) as producer:
        producer.begin_transaction()
        producer.send("flights", value, partition=0)
        prepared = producer.prepare_transaction()
    assert prepared is not None
    return prepared


def committed(broker: TestBroker) -> list[bytes | None]:
    """The values that readers of committed records see."""
    with closing(ClusterReader(broker.bootstrap_servers)) as cluster:
        start, end = cluster.log_range(F0, isolation=IsolationLevel.READ_COMMITTED)
        found = fetch_batches(
            cluster,
            F0,
            start_offset=start,
            limit_offset=end,
            isolation=IsolationLevel.READ_COMMITTED,
        )
        return [each.value for batch in found if not batch.is_control for each in records_of(batch)]


def test_a_prepared_transaction_outlives_its_producer_and_ends_once(broker: TestBroker) -> None:
    """A commit may be repeated, and cannot become an abort; each record counts by its own end."""
    kept, dropped = prepare(broker, "a", b"kept"), prepare(broker, "b", b"dropped")
    assert committed(broker) == []
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.end_transactions([kept], commit=True).results()
        admin.end_transactions([dropped], commit=False).results()
        admin.end_transactions([kept], commit=True).results()
        (error,) = admin.end_transactions([kept], commit=False).errors.values()
        assert isinstance(error, RemoteFatalError)
        assert error.code == ErrorCode.INVALID_TXN_STATE
    assert committed(broker) == [b"kept"]


def test_the_log_tells_the_outcome_when_the_coordinator_has_forgotten_it(
    broker: TestBroker,
) -> None:
    """An end is refused once the transactional id is used again, whatever it was before."""
    kept, dropped = prepare(broker, "a", b"kept"), prepare(broker, "b", b"dropped")
    with (
        Admin(bootstrap_servers=broker.bootstrap_servers) as admin,
        closing(ClusterReader(broker.bootstrap_servers)) as cluster,
    ):

        def outcome(offset: int, transaction: PreparedTransaction) -> bool | None:
            return find_outcome(cluster, F0, offset=offset, producer_id=transaction.producer_id)

        assert outcome(0, kept) is None
        admin.end_transactions([kept], commit=True).results()
        admin.fence_producers(["a", "b"]).results()
        refused = admin.end_transactions([kept, dropped], commit=True).errors
        assert {each.code for each in refused.values()} <= {  # type: ignore[attr-defined]
            ErrorCode.INVALID_PRODUCER_EPOCH,
            ErrorCode.PRODUCER_FENCED,
        }
        assert set(refused) == {kept, dropped}
        assert outcome(0, kept) is True
        assert outcome(1, dropped) is False
        admin.delete_records({F0: 1}).results()
        with pytest.raises(ForgottenTransactionError, match="does not have offset 0"):
            outcome(0, kept)
        with pytest.raises(ForgottenTransactionError, match="another record at offset 1"):
            outcome(1, kept)


def test_nothing_is_prepared_of_nothing(broker: TestBroker) -> None:
    """An empty transaction has no end, and after it the producer can only be closed."""
    with Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="a") as producer:
        with pytest.raises(TransactionStateError):
            producer.prepare_transaction()
        producer.begin_transaction()
        assert producer.prepare_transaction() is None
        with pytest.raises(TransactionStateError, match="done with its transaction"):
            producer.send("flights", b"late").result()
        with pytest.raises(TransactionStateError, match="done with its transaction"):
            producer.commit_transaction()


def test_a_fenced_producer_prepares_nothing(broker: TestBroker) -> None:
    """Its records are aborted by the one that came after it."""
    settings = {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "a"}
    with Producer(settings) as producer:
        producer.begin_transaction()
        producer.send("flights", b"first")
        producer.flush()
        with Producer(settings) as other:
            other.init_transactions()
        receipt = producer.send("flights", b"second")
        with pytest.raises(TransactionAbortableError):
            producer.prepare_transaction()
        with pytest.raises(ProducerFencedError):
            receipt.result()
    assert committed(broker) == []
