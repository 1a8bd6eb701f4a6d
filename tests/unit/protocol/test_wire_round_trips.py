"""What is encoded comes back from the decoder, for every message in every version."""

from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.protocol import codec
from tailrace.protocol.fields import Message
from tests.unit.protocol.strategies import EVERY_MESSAGE, NAMES, QUICK, full_message, messages


@pytest.mark.parametrize(("message", "version"), EVERY_MESSAGE, ids=NAMES)
def test_every_message_survives_the_wire(message: type[Message], version: int) -> None:
    """A message decodes to itself, to the last byte, wherever it stands in the view."""

    @QUICK
    @given(data=st.data())
    def holds(data: st.DataObject) -> None:
        sent = data.draw(messages(message, version))
        out = bytearray(b"head")
        codec.encode(sent, version, out)  # type: ignore[arg-type]
        received, position = codec.decode(message, version, memoryview(out), position=4)
        assert received == sent
        assert position == len(out)

    holds()


@pytest.mark.parametrize(("message", "version"), EVERY_MESSAGE, ids=NAMES)
def test_buffers_join_to_the_same_bytes(message: type[Message], version: int) -> None:
    """Both shapes of an encoder write the same bytes."""
    sent = full_message(message, version)
    out = bytearray(b"head")
    codec.encode(sent, version, out)  # type: ignore[arg-type]
    buffers = codec.gather(sent, version, bytearray(b"head"))  # type: ignore[arg-type]
    assert b"".join(cast("list[bytes]", buffers)) == out


@pytest.mark.parametrize(("message", "version"), EVERY_MESSAGE, ids=NAMES)
def test_a_default_message_needs_no_argument(message: type[Message], version: int) -> None:
    """Every field has a default that each of its versions can carry."""
    out = bytearray()
    codec.encode(message(), version, out)
    assert codec.decode(message, version, memoryview(out)) == (message(), len(out))
