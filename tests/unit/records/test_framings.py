"""Framings of compressed batches, held against the answers of Apache Kafka 4.3.1 in a table."""

import pytest

from tailrace.errors import CorruptionError, TailraceError
from tailrace.model import Codec, LeaderEpoch, Offset
from tailrace.protocol.errors import ErrorCode, code_for
from tailrace.records.batch import Batch
from tailrace.records.builder import records_of
from tailrace.records.codecs import decompress
from tailrace.records.legacy import read_all_batches
from tailrace.storage.appends import plan_append
from tailrace.storage.config import log_config
from tests.unit.records.framings import (
    DEPARTURES,
    Payload,
    answers_of_kafka,
    batch_of,
    legacy_payloads,
    payloads,
)

PAYLOADS = list(payloads())
ANSWERS = answers_of_kafka()
READ_ALONE = ("linked blocks", "linked flag alone", "dictionary id")
"""Framings of lz4 that logs may have, and that neither Kafka nor our broker takes any more."""

PLAIN = bytes(Batch(memoryview(batch_of(PAYLOADS[0]))).records_view())


def answer_to(batch: bytes) -> int:
    """The error code that a producer of the batch gets."""
    try:
        plan_append(
            memoryview(bytearray(batch)),
            config=log_config({}),
            next_offset=Offset(0),
            leader_epoch=LeaderEpoch(0),
            now_ms=1_700_000_000_000,
        )
    except TailraceError as error:
        return code_for(error)
    return ErrorCode.NONE


def test_the_table_has_every_payload() -> None:
    """The answers of Kafka are those to the payloads that are tested."""
    assert list(ANSWERS) == [str(each) for each in PAYLOADS]
    assert DEPARTURES.keys() < ANSWERS.keys()


@pytest.mark.parametrize("payload", PAYLOADS, ids=str)
def test_a_producer_gets_kafkas_answer(payload: Payload) -> None:
    """The broker takes what Kafka takes, and refuses the rest with its code."""
    found = answer_to(batch_of(payload))
    assert (found == ANSWERS[str(payload)]) == (str(payload) not in DEPARTURES)


@pytest.mark.parametrize("payload", [each for each in PAYLOADS if not ANSWERS[str(each)]], ids=str)
def test_what_kafka_takes_is_read_whole(payload: Payload) -> None:
    """Its records are those of the plain framing, whatever follows them."""
    assert decompress(payload.codec, memoryview(payload.data)) == PLAIN


@pytest.mark.parametrize("name", READ_ALONE)
def test_what_logs_may_have_is_read(name: str) -> None:
    """Frames that earlier versions took stay readable, though Kafka's consumer refuses them."""
    (payload,) = (each for each in PAYLOADS if each.codec is Codec.LZ4 and each.name == name)
    assert decompress(payload.codec, memoryview(payload.data)) == PLAIN
    assert answer_to(batch_of(payload)) == ErrorCode.UNKNOWN_SERVER_ERROR


def test_linked_blocks_are_refused_with_advice() -> None:
    """A producer reads what to change."""
    (payload,) = (each for each in PAYLOADS if each.name == "linked blocks")
    with pytest.raises(TailraceError, match="have the producer write independent blocks"):
        plan_append(
            memoryview(bytearray(batch_of(payload))),
            config=log_config({}),
            next_offset=Offset(0),
            leader_epoch=LeaderEpoch(0),
            now_ms=1_700_000_000_000,
        )


@pytest.mark.parametrize("magic", [0, 1])
def test_records_that_a_wrapper_cuts_are_left_out(magic: int) -> None:
    """The records before are read and the rest is no error, as in Kafka's consumer."""
    for name, entry in legacy_payloads(magic):
        if not name.startswith("inside: ") or not name.endswith(" after"):
            continue
        if "size -5" in name or "100 zeros" in name or "12 zeros" in name:
            with pytest.raises(CorruptionError):
                list(read_all_batches(memoryview(entry)))
        else:
            ((_, batch),) = read_all_batches(memoryview(entry))
            assert len(list(records_of(batch))) == 3, name
