"""The records at fault travel back to the producer (KIP-467)."""

import pytest

from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.produce import PartitionProduceResponse, ProduceResponse
from tailrace.records.builder import BatchBuilder
from tailrace.testing import Outside, virtual_runtime
from tests.unit.broker.brokers import (
    BY_NAME_PRODUCE,
    batch,
    connect,
    create_topic,
    produce_request,
    running,
)

NOW = 1_700_000_000_000


def answer_to(records: bytes, *, version: int = BY_NAME_PRODUCE) -> PartitionProduceResponse:
    """Return the answer to a producer of a compacted topic."""
    found: list[PartitionProduceResponse] = []

    async def scenario(outside: Outside) -> None:
        async with running(outside) as broker:
            peer = connect(outside, broker)
            await create_topic(peer, "t", configs={"cleanup.policy": "compact"})
            response = await peer.ask(
                ApiKey.PRODUCE, produce_request("t", records), ProduceResponse, version=version
            )
            found.extend(response.responses[0].partition_responses)

    with virtual_runtime() as outside:
        outside.run(scenario(outside))
    return found[0]


def without_keys() -> bytes:
    """Three records, of which the second has a key."""
    builder = BatchBuilder()
    for key in (None, b"k", None):
        builder.append(key, b"v", timestamp=NOW)
    return builder.build()


@pytest.mark.parametrize("version", [8, BY_NAME_PRODUCE])
def test_each_record_at_fault_is_named(version: int) -> None:
    """Each one has its place in the batch and a sentence, beside the error of the partition."""
    answer = answer_to(without_keys(), version=version)
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert answer.base_offset == -1
    assert [
        (each.batch_index, each.batch_index_error_message) for each in answer.record_errors
    ] == [(0, "no key, and the topic is compacted"), (2, "no key, and the topic is compacted")]


def test_records_are_named_for_timestamps_too() -> None:
    """The error of the partition is INVALID_TIMESTAMP then."""
    answer = answer_to(batch(b"a", b"b", timestamp=4_000_000_000_000))
    assert answer.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [each.batch_index for each in answer.record_errors] == [0, 1]


def test_versions_without_record_errors_get_the_code() -> None:
    """Before v8 there is no room for more."""
    answer = answer_to(without_keys(), version=7)
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert (answer.record_errors, answer.error_message) == ((), None)


def test_a_batch_that_is_wrong_as_a_whole_names_no_record() -> None:
    """Its error has a message, and the list is empty."""
    answer = answer_to(without_keys() * 2)
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert answer.record_errors == ()
    assert answer.error_message is not None
