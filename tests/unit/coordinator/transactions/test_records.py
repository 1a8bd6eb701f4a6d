"""Records of `__transaction_state`, byte by byte as Apache Kafka 4.3 writes them."""

import re
from pathlib import Path

import pytest

from tailrace.coordinator.machine import CoordinatorRecord
from tailrace.coordinator.transactions.records import (
    TransactionCodec,
    stored_transaction,
    transaction_record,
    transaction_tombstone,
)
from tailrace.coordinator.transactions.state import Transaction, TransactionStatus
from tailrace.errors import CorruptionError
from tailrace.protocol.records import TransactionLogKey, TransactionLogValue
from tests.unit.coordinator.transactions.stage import NOW, A, B, C, Stage, play, stored

KEY = bytes.fromhex("0000 0001 74")
EMPTY = bytes.fromhex(
    "0001 0000000000000007 0003 0000ea60 00 00"
    "0000018bcfe56800 ffffffffffffffff 02 00080000000000000007 02020002"
)
ONGOING = bytes.fromhex(
    "0001 0000000000000007 0003 0000ea60 01"
    "03 08666c6967687473 03 00000000 00000001 00"
    "07 706c616e6573 02 00000000 00"
    "0000018bcfe56800 0000018bcfe56800 02 00080000000000000007 02020002"
)
VERSION_0 = bytes.fromhex(
    "0000 0000000000000007 0003 0000ea60 01"
    "00000001 0007 666c6967687473 00000001 00000000"
    "0000018bcfe56800 0000018bcfe56800"
)


def decoded(value: bytes | None, key: bytes = KEY) -> Transaction | None:
    """The state of a record; None: a tombstone, or a record that is passed over."""
    record = TransactionCodec().decode(key, value)
    if record is None or record.value is None:
        return None
    assert isinstance(record.key, TransactionLogKey)
    assert isinstance(record.value, TransactionLogValue)
    return stored_transaction(record.key.transactional_id, record.value)


@pytest.mark.parametrize(
    ("transaction", "value"),
    [
        (stored(), EMPTY),
        (stored(TransactionStatus.ONGOING, partitions=(B, A, C)), ONGOING),
    ],
)
def test_a_state_is_written_as_apache_kafka_writes_it(
    transaction: Transaction, value: bytes
) -> None:
    """Version 1: no partitions are null in Empty, and producer ids and version are tags."""
    assert TransactionCodec().encode(transaction_record(transaction)) == (KEY, value)
    assert decoded(value) == transaction


def test_the_examples_of_the_page_are_these_records() -> None:
    """docs/formats/transaction-records.md has a key and two values."""
    page = Path(__file__).parents[4] / "docs" / "formats" / "transaction-records.md"
    found = re.findall(
        r"^((?: *[0-9a-f]+\s+)+)(key|value): ([\w ]+)$", page.read_text(), re.MULTILINE
    )
    assert [(what, bytes.fromhex(data)) for data, what, _ in found] == [
        ("key", KEY),
        ("value", EMPTY),
        ("value", ONGOING),
    ]


def test_the_partitions_of_a_complete_transaction_are_an_empty_array() -> None:
    """They are null in Empty alone; the start of the transaction is kept."""
    record = transaction_record(stored(TransactionStatus.COMPLETE_COMMIT))
    assert isinstance(record.value, TransactionLogValue)
    assert record.value.transaction_partitions == ()
    assert record.value.transaction_start_timestamp_ms == NOW


def test_a_used_up_producer_id_has_its_follower_in_a_tag() -> None:
    """A new leader completes the transaction with it."""
    transaction = stored(TransactionStatus.PREPARE_COMMIT, epoch=32_767, next_producer_id=1000)
    _, value = TransactionCodec().encode(transaction_record(transaction))
    assert value is not None
    assert bytes.fromhex("01 08 00000000000003e8") in value
    assert decoded(value) == transaction


def test_records_of_version_0_are_read() -> None:
    """Brokers before transaction version 1 have written them; the tags have their defaults."""
    assert decoded(VERSION_0) == stored(
        TransactionStatus.ONGOING, partitions=(A,), client_version=0, previous_producer_id=-1
    )


def test_a_tombstone_has_no_value() -> None:
    """An expired id is gone."""
    assert TransactionCodec().encode(transaction_tombstone("t")) == (KEY, None)
    found = TransactionCodec().decode(KEY, None)
    assert found == CoordinatorRecord(TransactionLogKey(transactional_id="t"), None)


def test_an_unknown_type_of_key_is_passed_over() -> None:
    """A newer Kafka has written it, and it is the state of no transactional id."""
    assert TransactionCodec().decode(b"\0\x01" + KEY[2:], EMPTY) is None


def test_a_value_of_an_unknown_version_is_refused() -> None:
    """Without the newest state of an id an epoch would go back, so the partition is not loaded."""
    with pytest.raises(CorruptionError, match="version 2 is not known: a newer Kafka"):
        decoded(b"\0\x02" + EMPTY[2:])


@pytest.mark.parametrize("value", [EMPTY[:-1], EMPTY[:3], b"\0", EMPTY[:16] + b"\6" + EMPTY[17:]])
def test_a_damaged_record_is_refused(value: bytes) -> None:
    """It is cut, or has a status that is never stored; no state is made of it."""
    with pytest.raises(CorruptionError):
        decoded(value)


def test_the_newest_record_of_an_id_counts_and_a_tombstone_removes_it() -> None:
    """Loading replays the log in its order; the newest record of `u` is in it twice."""

    async def scenario(stage: Stage) -> None:
        assert sorted(each.transactional_id for each in stage.machine()) == ["t", "u"]
        assert stage.transaction("t").producer_epoch == 5
        assert stage.transaction("u").status is TransactionStatus.COMPLETE_ABORT

    play(
        scenario,
        stored(epoch=4),
        stored(TransactionStatus.ONGOING, transactional_id="u"),
        stored(epoch=5),
        stored(TransactionStatus.COMPLETE_ABORT, transactional_id="u"),
        stored(TransactionStatus.COMPLETE_ABORT, transactional_id="u"),
    )
