"""Tests that every message in every version is decoded to what was encoded."""

from typing import Any

import pytest

from tailrace.protocol import codec
from tailrace.protocol.apis import Api
from tailrace.protocol.fields import Message
from tests.unit.protocol.strategies import (
    EVERY_MESSAGE,
    NAMES,
    encoded,
    in_version,
    samples,
)


@pytest.mark.parametrize(("message", "api"), EVERY_MESSAGE, ids=NAMES)
def test_every_message_survives_the_wire(message: type[Message], api: Api) -> None:
    """A message of each version decodes to itself, to the last byte, wherever it stands."""
    for version in api.versions:
        with in_version(version):
            sent: Any
            for sent in samples(message, version):
                out = encoded(sent, version, head=b"head")
                received, position = codec.decode(message, version, memoryview(out), position=4)
                assert received == sent
                assert position == len(out)


@pytest.mark.parametrize(("message", "api"), EVERY_MESSAGE, ids=NAMES)
def test_a_default_message_needs_no_argument(message: type[Message], api: Api) -> None:
    """Every field has a default that each of its versions can carry."""
    for version in api.versions:
        with in_version(version):
            out = encoded(message(), version)
            assert codec.decode(message, version, memoryview(out)) == (message(), len(out))
