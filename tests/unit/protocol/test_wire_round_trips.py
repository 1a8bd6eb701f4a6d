"""A decoder returns the message that was encoded, for every message in every version."""

from typing import Any, cast

import pytest

from tailrace.protocol import codec
from tailrace.protocol.fields import Message
from tests.unit.protocol.strategies import (
    EVERY_MESSAGE,
    full_message,
    in_version,
    name_of,
    samples,
    versions_of,
)


@pytest.mark.parametrize("message", EVERY_MESSAGE, ids=name_of)
def test_every_message_survives_the_wire(message: type[Message]) -> None:
    """A message of each version decodes to itself, to the last byte, wherever it stands."""
    for version in versions_of(message):
        with in_version(version):
            sent: Any
            for sent in samples(message, version):
                out = bytearray(b"head")
                codec.encode(sent, version, out)
                received, position = codec.decode(message, version, memoryview(out), position=4)
                assert received == sent
                assert position == len(out)


@pytest.mark.parametrize("message", EVERY_MESSAGE, ids=name_of)
def test_buffers_join_to_the_same_bytes(message: type[Message]) -> None:
    """Both shapes of an encoder write the same bytes in each version."""
    for version in versions_of(message):
        with in_version(version):
            sent: Any = full_message(message, version)
            out = bytearray(b"head")
            codec.encode(sent, version, out)
            buffers = codec.gather(sent, version, bytearray(b"head"))
            assert b"".join(cast("list[bytes]", buffers)) == out


@pytest.mark.parametrize("message", EVERY_MESSAGE, ids=name_of)
def test_a_default_message_needs_no_argument(message: type[Message]) -> None:
    """Every field has a default that each of its versions can carry."""
    for version in versions_of(message):
        with in_version(version):
            out = bytearray()
            codec.encode(message(), version, out)
            assert codec.decode(message, version, memoryview(out)) == (message(), len(out))
