"""Sizes and headers: what is around a message, in both directions."""

from struct import pack, unpack
from typing import cast
from uuid import UUID

import pytest

from tailrace.protocol import codec, frames
from tailrace.protocol.apis import APIS, Api, ApiKey
from tailrace.protocol.errors import ErrorCode, MalformedMessageError, UnencodableMessageError
from tailrace.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from tailrace.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from tailrace.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tailrace.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tests.unit.protocol.strategies import in_version


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.key.title)
@pytest.mark.parametrize("client_id", [None, "", "größer"])
def test_a_request_frame_is_read_back(api: Api, client_id: str | None) -> None:
    """Size, header and body of every request in each version come back as they were given."""
    body = api.request()
    for version in api.versions:
        with in_version(version):
            frame = frames.encode_request(
                api, body, version=version, correlation_id=-7, client_id=client_id
            )
            assert unpack(">i", frame[:4])[0] == len(frame) - 4
            view = memoryview(frame)[4:]
            header, position = frames.read_request_header(view, apis=APIS)
            assert header == frames.RequestHeader(api.key, version, -7, client_id)
            assert codec.decode(api.request, version, view, position=position) == (body, len(view))


@pytest.mark.parametrize("api", APIS.values())
def test_a_served_request_is_decoded_by_its_header(api: Api) -> None:
    """The header of a request that a broker serves says what the body is."""
    frame = frames.encode_request(
        api, api.request(), version=api.last_version, correlation_id=1, client_id=None
    )
    view = memoryview(frame)[4:]
    header, position = frames.read_request_header(view)
    assert header.api is api
    assert frames.decode_request(header, view, position) == api.request()


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.key.title)
def test_a_response_frame_is_read_back(api: Api) -> None:
    """Size, header and body of every response in each version come back as they were given."""
    body = api.response()
    for version in api.versions:
        with in_version(version):
            frame = frames.encode_response(api, body, version=version, correlation_id=9)
            assert unpack(">i", frame[:4])[0] == len(frame) - 4
            view = memoryview(frame)[4:]
            assert frames.read_correlation_id(view) == 9
            assert frames.decode_response(api, version, view) == body


def test_requests_and_responses_turn_flexible_together() -> None:
    """The header follows one version number, so both classes of an API must agree on it."""
    for api in APIS.values():
        assert api.request.flexible_since == api.response.flexible_since, api.key


def test_kafka_has_every_version_that_is_spoken() -> None:
    """A row of the table has no version that the messages of the API do not declare."""
    for api in APIS.values():
        for message in (api.request, api.response):
            declared = range(message.first_version, message.last_version + 1)
            assert {*api.versions} <= {*declared}, api.key


def test_produce_is_advertised_from_zero() -> None:
    """Old librdkafka needs to see Produce from version 0, which is refused (KAFKA-18659)."""
    first = {api.key: api.advertised_first_version for api in APIS.values()}
    assert first[ApiKey.PRODUCE] == 0
    assert not APIS[ApiKey.PRODUCE].is_served(2)
    assert first[ApiKey.FETCH] == 4


@pytest.mark.parametrize(("key", "version"), [(18, 5), (999, 0), (-1, 3), (0, 2), (29, 0)])
def test_a_request_that_is_not_served_has_a_header(key: int, version: int) -> None:
    """An unknown key or version is no reason to hang up: the header says whom to answer."""
    view = memoryview(pack(">hhih", key, version, 77, 2) + b"me" + b"\xff" * 9)
    header, _ = frames.read_request_header(view)
    assert header == frames.RequestHeader(key, version, 77, "me")
    assert header.api is None


@pytest.mark.parametrize("version", [3, 4])
def test_an_unknown_api_versions_version_is_answered_in_v0(version: int) -> None:
    """The client reads error 35 and the list from a v0 body, whatever it asked for (KIP-511)."""
    api = APIS[ApiKey.API_VERSIONS]
    answer = ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=(ApiVersion(api_key=18, min_version=0, max_version=4),),
    )
    frame = frames.encode_response(api, answer, version=0, correlation_id=1)
    assert frame.hex() == "00000010" + "00000001" + "0023" + "00000001" + "001200000004"
    assert frames.decode_response(api, version, memoryview(frame)[4:]) == answer


def test_every_cut_of_a_request_header_is_refused() -> None:
    """A header that ends early is malformed, in the tags as well."""
    api = APIS[ApiKey.METADATA]
    frame = frames.encode_request(
        api, MetadataRequest(), version=9, correlation_id=1, client_id="client"
    )
    _, position = frames.read_request_header(memoryview(frame)[4:])
    for size in range(position):
        with pytest.raises(MalformedMessageError):
            frames.read_request_header(memoryview(frame)[4 : 4 + size])


def test_every_cut_of_a_response_is_refused() -> None:
    """A response frame that ends early is malformed, from the correlation id on."""
    api = APIS[ApiKey.METADATA]
    frame = frames.encode_response(api, MetadataResponse(), version=9, correlation_id=1)
    for size in range(len(frame) - 4):
        with pytest.raises(MalformedMessageError):
            frames.decode_response(api, 9, memoryview(frame)[4 : 4 + size])


def test_a_client_id_is_utf8() -> None:
    """A client id that is not text is malformed."""
    with pytest.raises(MalformedMessageError, match="client id is not UTF-8"):
        frames.read_request_header(memoryview(pack(">hhih", 3, 0, 1, 2) + b"\xff\xff"))


def test_bytes_after_a_request_are_passed_over() -> None:
    """A request with a tail is read all the same, because librdkafka sends such."""
    api = APIS[ApiKey.API_VERSIONS]
    body = ApiVersionsRequest(client_software_name="client")
    frame = frames.encode_request(api, body, version=3, correlation_id=1, client_id=None)
    view = memoryview(frame + b"\x01\x00\x00")[4:]
    header, position = frames.read_request_header(view)
    assert frames.decode_request(header, view, position) == body


def test_bytes_after_a_response_are_refused() -> None:
    """A response with a tail means that the peers disagree about the version."""
    api = APIS[ApiKey.API_VERSIONS]
    frame = frames.encode_response(api, ApiVersionsResponse(), version=3, correlation_id=1)
    with pytest.raises(MalformedMessageError, match="1 bytes follow"):
        frames.decode_response(api, 3, memoryview(frame + b"\x00")[4:])


@pytest.mark.parametrize("size", [-1, frames.FRAME_BYTES_MAX + 1])
def test_a_size_out_of_bounds_is_refused(size: int) -> None:
    """No buffer is made for a size that is negative or above the limit."""
    with pytest.raises(MalformedMessageError, match=str(size)):
        frames.check_size(size, limit=frames.FRAME_BYTES_MAX)
    frames.check_size(frames.FRAME_BYTES_MAX, limit=frames.FRAME_BYTES_MAX)


def test_a_header_that_does_not_fit_is_named() -> None:
    """A client id of more than 32767 bytes cannot travel, and the error says so."""
    with pytest.raises(UnencodableMessageError, match="request header"):
        frames.encode_request(
            APIS[ApiKey.METADATA],
            MetadataRequest(),
            version=1,
            correlation_id=1,
            client_id="x" * 40_000,
        )


def test_produced_records_are_views_of_the_frame() -> None:
    """The broker reads records without copying them."""
    records = b"a batch, not copied"
    api = APIS[ApiKey.PRODUCE]
    partition = PartitionProduceData(index=1, records=records)
    body = ProduceRequest(topic_data=(TopicProduceData(name="t", partition_data=(partition,)),))
    frame = bytearray(frames.encode_request(api, body, version=9, correlation_id=1, client_id="c"))
    view = memoryview(frame)[4:]
    header, position = frames.read_request_header(view)
    request = frames.decode_request(header, view, position)
    assert isinstance(request, ProduceRequest)
    found = request.topic_data[0].partition_data[0].records
    frame[frame.index(b"batch")] = ord("B")
    assert found == b"a Batch, not copied"


@pytest.mark.parametrize("version", [4, 12, 18])
def test_fetched_records_leave_as_the_same_objects(version: int) -> None:
    """The answer is headers of ours and the very memory that the log gave."""
    slices = [memoryview(b"first"), memoryview(b""), memoryview(b"third")]
    partitions = tuple(
        PartitionData(partition_index=index, records=records)
        for index, records in enumerate(slices)
    )
    topic = "t" if version < 13 else ""
    topic_id = UUID(int=0 if version < 13 else 5)
    body = FetchResponse(
        responses=(FetchableTopicResponse(topic=topic, topic_id=topic_id, partitions=partitions),)
    )
    api = APIS[ApiKey.FETCH]
    buffers = frames.response_buffers(api, body, version=version, correlation_id=3)
    assert buffers[1] is slices[0]
    assert buffers[3] is slices[2]
    frame = b"".join(cast("list[bytes]", buffers))
    assert unpack(">i", frame[:4])[0] == len(frame) - 4
    received = frames.decode_response(api, version, memoryview(frame)[4:])
    assert received == body
    assert isinstance(received, FetchResponse)
    found = received.responses[0].partitions[0].records
    assert isinstance(found, memoryview)
    assert found.obj is frame
