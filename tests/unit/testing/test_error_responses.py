"""Refusals of every API in every version, made from the message classes."""

import dataclasses
from collections.abc import Iterator
from typing import Any, Final
from uuid import UUID

import pytest

from tailrace.protocol.apis import APIS, Api, ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import wire_fields
from tailrace.protocol.frames import decode_response, encode_response
from tailrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tailrace.protocol.messages.metadata import MetadataRequest
from tailrace.protocol.messages.offset_fetch import OffsetFetchRequest
from tailrace.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tailrace.testing.error_responses import FROM_ANSWER, error_response, has_place

CODE = ErrorCode.NOT_LEADER_OR_FOLLOWER

VALUES: Final = {
    "string": "named", "int8": 2, "int16": 3, "int32": 7, "int64": 9, "uuid": UUID(int=5),
    "bool": True, "bytes": b"", "records": b"",
}  # fmt: skip


def sample(kind: type[Any], version: int) -> Any:
    """A message whose arrays have one element each."""
    values = {}
    for field in wire_fields(kind):
        if field.is_in(version):
            one = (
                sample(field.type, version)
                if isinstance(field.type, type)
                else VALUES.get(field.type)
            )
            values[field.name] = (one,) if field.is_array else one
    return kind(**values)


def codes(message: object) -> Iterator[int]:
    """All error codes of a response, which are 0 where there is none."""
    assert dataclasses.is_dataclass(message)
    for field in dataclasses.fields(message):
        value = getattr(message, field.name)
        if field.name.endswith("error_code"):
            yield value
        elif isinstance(value, tuple):
            for each in value:
                yield from codes(each) if dataclasses.is_dataclass(each) else ()


@pytest.mark.parametrize(
    "api", [each for key, each in APIS.items() if key not in FROM_ANSWER], ids=lambda api: api.key
)
def test_every_api_can_be_refused_in_every_version(api: Api) -> None:
    """A client that reads the refusal finds the error in it."""
    for version in api.versions:
        request = sample(api.request, version)
        refusal = error_response(api, request, version=version, code=CODE)
        assert refusal is not None, version
        frame = encode_response(api, refusal, version=version, correlation_id=1)
        read = decode_response(api, version, memoryview(frame)[4:])
        assert CODE in set(codes(read)), version


def test_a_refused_produce_names_each_partition() -> None:
    """Each partition of the request has the error, and no offset."""
    topics = tuple(
        TopicProduceData(
            name=name,
            partition_data=tuple(PartitionProduceData(index=each, records=b"") for each in (4, 6)),
        )
        for name in ("a", "b")
    )
    refusal: Any = error_response(
        APIS[ApiKey.PRODUCE], ProduceRequest(acks=-1, topic_data=topics), version=9, code=CODE
    )
    assert [
        (topic.name, each.index, each.error_code, each.base_offset)
        for topic in refusal.responses
        for each in topic.partition_responses
    ] == [(name, index, CODE, -1) for name in ("a", "b") for index in (4, 6)]


@pytest.mark.parametrize(
    ("code", "outermost", "partition"),
    [
        (CODE, [0], [CODE]),
        (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, [ErrorCode.FETCH_SESSION_ID_NOT_FOUND], []),
    ],
)
def test_a_refused_fetch_has_errors_of_partitions_in_partitions(
    code: ErrorCode, outermost: list[int], partition: list[int]
) -> None:
    """Only the errors of fetch sessions are in the outermost field."""
    topic = FetchTopic(topic_id=UUID(int=5), partitions=(FetchPartition(partition=3),))
    refusal: Any = error_response(
        APIS[ApiKey.FETCH], FetchRequest(topics=(topic,)), version=17, code=code
    )
    assert [refusal.error_code] == outermost
    assert [each.error_code for topic in refusal.responses for each in topic.partitions] == (
        partition
    )


def test_a_request_that_names_nothing_has_no_place_for_an_error() -> None:
    """Such requests are left alone: Metadata for the brokers alone, and OffsetFetch v1 for none."""
    api = APIS[ApiKey.OFFSET_FETCH]
    assert error_response(api, OffsetFetchRequest(topics=()), version=1, code=CODE) is None
    assert not has_place(MetadataRequest(topics=()), 9)
    assert has_place(MetadataRequest(topics=()), 0)
    assert has_place(MetadataRequest(topics=None), 9)
