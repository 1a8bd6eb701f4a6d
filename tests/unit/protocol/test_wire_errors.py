"""The table of error codes, and which of our errors become which."""

import pytest

from tailrace.errors import (
    ConfigError,
    CorruptionError,
    InvalidRecordError,
    InvalidTimestampError,
    OffsetOutOfRangeError,
    RecordTooLargeError,
    StorageError,
    TailraceError,
    UnsupportedCodecError,
)
from tailrace.protocol.errors import ErrorCode, MalformedMessageError, code_for


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (CorruptionError("a rule"), 2),
        (OffsetOutOfRangeError(9, log_start_offset=0, log_end_offset=3), 1),
        (RecordTooLargeError(9, limit=3, setting="max.message.bytes"), 10),
        (RecordTooLargeError(9, limit=3, setting="segment.bytes"), 18),
        (InvalidRecordError("empty"), 87),
        (InvalidTimestampError("tomorrow"), 32),
        (UnsupportedCodecError("codec 7"), 76),
        (StorageError("full"), 56),
        (MalformedMessageError("short", position=0), 42),
        (ConfigError(["wrong"]), -1),
    ],
)
def test_our_errors_have_their_codes(error: TailraceError, code: int) -> None:
    """Each of our errors leaves with Kafka's number for it, and others as unknown."""
    assert code_for(error) == code


def test_every_code_has_a_sentence() -> None:
    """Codes that we answer with have our sentence, the others their name in words."""
    assert ErrorCode.NOT_ENOUGH_REPLICAS.message == (
        "fewer replicas are in sync than min.insync.replicas"
    )
    assert ErrorCode.ILLEGAL_GENERATION.message == "illegal generation"


def test_retriable_codes_are_known() -> None:
    """A client may send again what a changed leader refused, and not what is too large."""
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER.is_retriable
    assert not ErrorCode.MESSAGE_TOO_LARGE.is_retriable
