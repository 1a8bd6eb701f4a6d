"""Every error of the rooms below the handlers has a code on the wire that somebody chose."""

import importlib
import pkgutil
from collections.abc import Iterator

import pytest

import tailrace.cluster
import tailrace.errors
import tailrace.records
import tailrace.replication
import tailrace.storage
from tailrace.cluster.control.state import RefusedError
from tailrace.cluster.metadata.observer import DivergedError, LeaderContradictionError
from tailrace.cluster.metadata.proof import LostMetadataError
from tailrace.errors import (
    ConfigError,
    CorruptionError,
    FatalError,
    ListenError,
    MissingExtraError,
    RetriableError,
    TailraceError,
)
from tailrace.handlers import services
from tailrace.protocol.errors import ErrorCode
from tailrace.records.batch import UnsupportedMagicError
from tailrace.replication.follower_log import (
    EarlyBatchError,
    MisplacedAnswerError,
    UnfoundedCutError,
)
from tailrace.storage.cleaner.rewrite import CleaningAbortedError, SegmentOverflowError

ROOMS = (tailrace.storage, tailrace.records, tailrace.cluster, tailrace.replication)
NOT_MET = {
    TailraceError, RetriableError, FatalError,
    # Before a broker serves, and inside of the cleaner.
    ListenError, LostMetadataError, CleaningAbortedError, SegmentOverflowError,
    # In the tools alone.
    MissingExtraError,
    # `plan_append` answers it as InvalidRecordError.
    UnsupportedMagicError,
    # Followers and observers ask again, or end.
    EarlyBatchError, MisplacedAnswerError, UnfoundedCutError, LeaderContradictionError,
    DivergedError,
    # Has the code with it, and no handler meets it: it is the scripted controller's.
    RefusedError,
}  # fmt: skip
UNKNOWN_ON_PURPOSE = {
    "UnexpectedAppendOffsetError", "UnreadableRecordsError", "MetadataFaultError"
}  # fmt: skip


def errors() -> Iterator[type[TailraceError]]:
    """Every error class that is declared in a room below, and in `errors`."""
    modules = [tailrace.errors]
    for room in ROOMS:
        names = pkgutil.walk_packages(room.__path__, f"{room.__name__}.")
        modules += [importlib.import_module(found.name) for found in names]
    for module in modules:
        for value in vars(module).values():
            is_error = isinstance(value, type) and issubclass(value, TailraceError)
            if is_error and value.__module__ == module.__name__ and value not in NOT_MET:
                yield value


@pytest.mark.parametrize("kind", sorted(errors(), key=str))
def test_an_error_has_a_code(kind: type[TailraceError]) -> None:
    """An error has a code other than UNKNOWN_SERVER_ERROR, except where that is Kafka's."""
    code = services.error_code(kind.__new__(kind))
    assert (code is ErrorCode.UNKNOWN_SERVER_ERROR) is (kind.__name__ in UNKNOWN_ON_PURPOSE)


def test_an_error_of_the_system_is_the_devices() -> None:
    """An OSError is answered with KAFKA_STORAGE_ERROR, whatever its number."""
    assert services.error_code(OSError(5, "io")) is ErrorCode.KAFKA_STORAGE_ERROR


def test_errors_of_every_package_are_found() -> None:
    """The test above covers errors of every package."""
    assert {ConfigError, CorruptionError} < set(errors())
    assert len(set(errors())) > 15
