"""Bytes that are not a message are refused with one error, and before anything is allocated."""

import tracemalloc
from typing import Any

import pytest

from tailrace.errors import FatalError
from tailrace.protocol import codec
from tailrace.protocol.errors import (
    MalformedMessageError,
    TooManyPartsError,
    UnencodableMessageError,
)
from tailrace.protocol.fields import Message
from tailrace.protocol.messages.delete_topics import DeleteTopicsRequest
from tailrace.protocol.messages.fetch import FetchRequest
from tailrace.protocol.messages.init_producer_id import InitProducerIdRequest
from tailrace.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tailrace.protocol.messages.produce import ProduceRequest
from tests.unit.protocol.strategies import (
    EVERY_MESSAGE,
    WIRE_MESSAGES,
    fields_of,
    full_message,
    in_version,
    name_of,
    versions_of,
)

LARGEST_UVARINT = b"\xff\xff\xff\xff\x0f"


def encoded(message: Any, version: int) -> bytes:
    """The message's bytes."""
    out = bytearray()
    codec.encode(message, version, out)
    return bytes(out)


@pytest.mark.parametrize("message", EVERY_MESSAGE, ids=name_of)
def test_every_truncation_is_refused(message: type[Message]) -> None:
    """A message that ends anywhere before its end is malformed, and nothing else is raised."""
    for version in versions_of(message):
        whole = encoded(full_message(message, version), version)
        # All cuts of small messages, and a spread over the large ones, which repeat themselves.
        for size in range(0, len(whole), 1 + len(whole) // 150):
            with in_version(version), pytest.raises(MalformedMessageError):
                codec.decode(message, version, memoryview(whole)[:size])


@pytest.mark.parametrize(
    ("message", "version", "data"),
    [
        (MetadataRequest, 4, b"\x7f\xff\xff\xff" + bytes(64)),
        (MetadataRequest, 12, LARGEST_UVARINT + bytes(64)),
        (ProduceRequest, 3, b"\xff\xff" + bytes(6) + b"\x7f\xff\xff\xff" + bytes(64)),
        (ProduceRequest, 13, b"\x00" + bytes(6) + LARGEST_UVARINT + bytes(64)),
        (FetchRequest, 4, bytes(17) + b"\x7f\xff\xff\xff" + bytes(64)),
        (DeleteTopicsRequest, 1, b"\x7f\xff\xff\xff" + bytes(64)),
        (DeleteTopicsRequest, 5, LARGEST_UVARINT + bytes(64)),
        (InitProducerIdRequest, 0, b"\x7f\xff" + bytes(64)),
        (InitProducerIdRequest, 2, LARGEST_UVARINT + bytes(64)),
    ],
)
def test_lying_lengths_cost_no_memory(message: type[Message], version: int, data: bytes) -> None:
    """A length or count beyond what remains is refused before it is allocated for."""
    view = memoryview(data)
    with pytest.raises(MalformedMessageError):
        codec.decode(message, version, view)
    tracemalloc.start()
    with pytest.raises(MalformedMessageError, match="claims"):
        codec.decode(message, version, view)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 64 * 1024


def test_a_count_is_weighed_by_its_smallest_entry() -> None:
    """Ten topics of at least 19 bytes do not fit 60 bytes, whatever each of them says."""
    with pytest.raises(MalformedMessageError, match="claims 10 entries, 60 bytes remain") as caught:
        codec.decode(MetadataRequest, 10, memoryview(b"\x0b" + bytes(60)))
    assert caught.value.position == 1


def elements_of(message: Any, version: int) -> int:
    """Elements of all arrays of a message together; those of tagged fields are not limited."""
    count = 0
    kind: type = type(message)
    for field in fields_of(kind, version):
        value = getattr(message, field.name)
        values = value if field.is_array else (value,)
        if field.tag is not None:
            continue
        count += len(value) if field.is_array else 0
        if isinstance(field.type, type):
            count += sum(elements_of(each, version) for each in values)
    return count


REQUESTS = [each for each in WIRE_MESSAGES if each.__name__.endswith("Request")]


@pytest.mark.parametrize("message", REQUESTS, ids=name_of)
def test_every_element_of_a_request_is_counted(message: type[Message]) -> None:
    """A limit of one element less than a request has refuses it, wherever they are."""
    for version in versions_of(message):
        sent = full_message(message, version)
        view, count = memoryview(encoded(sent, version)), elements_of(sent, version)
        with in_version(version):
            assert codec.decode(message, version, view, parts_max=count)[0] == sent
            if count:
                with pytest.raises(TooManyPartsError):
                    codec.decode(message, version, view, parts_max=count - 1)


def test_null_is_refused_where_it_has_no_meaning() -> None:
    """A null array in v0 of Metadata is malformed; from v1 on it means all topics."""
    null = memoryview(b"\xff\xff\xff\xff")
    with pytest.raises(MalformedMessageError, match=r"MetadataRequest v0\.topics is null"):
        codec.decode(MetadataRequest, 0, null)
    assert codec.decode(MetadataRequest, 1, null)[0].topics is None


def test_a_string_is_utf8() -> None:
    """Bytes that are not text are malformed where text is due."""
    with pytest.raises(MalformedMessageError, match="not UTF-8"):
        codec.decode(MetadataRequest, 0, memoryview(b"\x00\x00\x00\x01\x00\x02\xff\xfe"))


def test_a_compact_string_is_no_longer_than_a_plain_one() -> None:
    """A string of 32767 bytes is the longest of every version, as in Kafka."""
    longest = encoded(InitProducerIdRequest(transactional_id="x" * 32_767), 2)
    message, _ = codec.decode(InitProducerIdRequest, 2, memoryview(longest))
    assert message.transactional_id == "x" * 32_767
    with pytest.raises(MalformedMessageError, match="claims 32768 bytes, a string has at most"):
        codec.decode(InitProducerIdRequest, 2, memoryview(b"\x81\x80\x02" + b"x" * 40_000))


def test_a_varint_has_an_end() -> None:
    """A length of more than five bytes is malformed."""
    with pytest.raises(MalformedMessageError, match="varint"):
        codec.decode(MetadataRequest, 9, memoryview(b"\xff" * 20))


def test_unknown_tagged_fields_are_skipped() -> None:
    """A newer peer's tags change nothing, before and after the ones that are known."""
    request = FetchRequest(cluster_id="c", rack_id="r")
    whole = encoded(request, 12)
    assert whole.endswith(b"\x01\x00\x02\x02c"), "one tag: 0, two bytes, compact string c"
    tags = b"\x03" + b"\x00\x02\x02c" + b"\x05\x03abc" + b"\xac\x02\x00"
    data = memoryview(whole[:-5] + tags)
    assert codec.decode(FetchRequest, 12, data) == (request, len(data))


@pytest.mark.parametrize("tags", [b"\x01\x00\x03\x02c\x00", b"\x01\x00\x01\x02c", b"\x01\x07\x7f"])
def test_a_tagged_field_has_the_size_it_claims(tags: bytes) -> None:
    """A known tag that is shorter or longer than its size is malformed, as is one past the end."""
    whole = encoded(FetchRequest(cluster_id="c"), 12)
    with pytest.raises(MalformedMessageError, match="claims"):
        codec.decode(FetchRequest, 12, memoryview(whole[:-5] + tags))


def test_the_refusal_says_where() -> None:
    """A refusal is fatal, a ValueError, and has the rule and the position as fields."""
    with pytest.raises(MalformedMessageError) as caught:
        codec.decode(InitProducerIdRequest, 0, memoryview(b"xxxx\x00\x09ab"), position=4)
    assert isinstance(caught.value, FatalError)
    assert isinstance(caught.value, ValueError)
    assert caught.value.position == 6
    assert caught.value.rule == (
        "InitProducerIdRequest v0.transactional_id claims 9 bytes, 2 remain"
    )


@pytest.mark.parametrize(
    ("message", "version"),
    [
        (InitProducerIdRequest(transaction_timeout_ms=2**31), 0),
        (InitProducerIdRequest(transactional_id="x" * 32_768), 0),
        (InitProducerIdRequest(transactional_id="x" * 32_768), 2),
        (MetadataRequest(topics=(MetadataRequestTopic(name=None),)), 9),
        (MetadataRequest(topics=None), 0),
        (InitProducerIdRequest(transactional_id="\ud800"), 0),
    ],
)
def test_values_that_do_not_fit_are_named(message: Message, version: int) -> None:
    """A value of ours that a version cannot carry is an error of ours, with the message's name."""
    name = type(message).__name__
    with pytest.raises(UnencodableMessageError, match=f"{name} v{version}"):
        codec.encode(message, version, bytearray())
    with pytest.raises(UnencodableMessageError, match=f"{name} v{version}"):
        codec.gather(message, version, bytearray())
