"""Every error that Tailrace raises on purpose, by who must act.

    TailraceError
    ├── RetriableError     try again: the same call may go through later
    ├── FatalError         the caller must change something: the request, a setting, the machine
    └── CorruptionError    bytes are not what they were when they were written

What is *not* here: numbers of the wire protocol. Rooms below `handlers` and `client` raise these
classes; the error code is attached at the edge, in `tailrace.protocol.errors`.

Invariant: errors carry fields, so that a caller never has to parse a message.
"""

from collections.abc import Sequence
from typing import Final

from tailrace.values import dataclass

__all__ = [
    "ConfigError",
    "CorruptionError",
    "DirectoryError",
    "FatalError",
    "InvalidRecordError",
    "InvalidTimestampError",
    "ListenError",
    "MissingExtraError",
    "OffsetOutOfRangeError",
    "OffsetsDeletedError",
    "RecordError",
    "RecordTooLargeError",
    "RetriableError",
    "StorageError",
    "TailraceError",
    "UnsupportedCodecError",
]

UNEXPECTED_JSON: Final = (ValueError, KeyError, TypeError, AttributeError, RecursionError)
"""Errors that mean that a file is not JSON of the expected shape."""


class TailraceError(Exception):
    """Root of all errors; never raised itself."""


class RetriableError(TailraceError):
    """The same call may succeed later, unchanged."""


class FatalError(TailraceError):
    """The same call will fail again: the request, a setting or the machine must change."""


class CorruptionError(TailraceError):
    """Bytes differ from those that were written; the error has their place.

    Raised instead of returning data (promise 3 in docs/ARCHITECTURE.md).
    """

    def __init__(
        self,
        rule: str,
        *,
        path: str | None = None,
        position: int | None = None,
        offset: int | None = None,
    ) -> None:
        self.rule = rule
        """The fault, as a sentence with its values."""
        self.path = path
        """The file, where the bytes came from one."""
        self.position = position
        """Bytes from the start of the file or buffer to the damaged entry."""
        self.offset = offset
        """Offset of the damaged batch, where its header could be read."""
        super().__init__(rule)

    def __str__(self) -> str:
        places = [
            self.path or "",
            "" if self.position is None else f"position {self.position}",
            "" if self.offset is None else f"offset {self.offset}",
        ]
        place = ", ".join(part for part in places if part)
        return f"{place}: {self.rule}" if place else self.rule

    def located(self, *, path: str, position: int | None = None) -> "CorruptionError":
        """The same finding, of the same class, with the file it was found in."""
        found = type(self)(
            self.rule,
            path=path,
            position=self.position if position is None else position,
            offset=self.offset,
        )
        return found.with_traceback(self.__traceback__)


class ConfigError(FatalError, ValueError):
    """One or more settings cannot be used; `faults` has a sentence for each."""

    def __init__(self, faults: list[str]) -> None:
        self.faults = faults
        super().__init__("; ".join(faults))


class MissingExtraError(FatalError, ImportError):
    """Packages are not installed that come with an extra of this one."""

    def __init__(self, needed_by: str, packages: Sequence[str], *, extra: str) -> None:
        self.packages = tuple(packages)
        self.extra = extra
        super().__init__(
            f"{needed_by} needs {' and '.join(packages)}: pip install 'tailrace[{extra}]'"
        )


class DirectoryError(FatalError, OSError):
    """A log directory cannot be used: locked, foreign, unreadable."""


class StorageError(FatalError, OSError):
    """The device refused: full, read-only, failing. The directory counts as offline."""


class ListenError(FatalError, OSError):
    """The address to listen on is taken or not ours."""


class OffsetOutOfRangeError(FatalError, LookupError):
    """The offset asked for is below the log start offset or beyond the log end offset."""

    def __init__(
        self, offset: int, *, log_start_offset: int, log_end_offset: int, log: str = "the log"
    ) -> None:
        self.offset = offset
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        super().__init__(
            f"offset {offset} is not in {log}, which has {log_start_offset} to {log_end_offset}"
        )


class OffsetsDeletedError(OffsetOutOfRangeError):
    """The log had the offset when it was opened; retention or DeleteRecords has taken it since."""

    def __init__(self, offset: int, *, log_start_offset: int, log_end_offset: int) -> None:
        super().__init__(offset, log_start_offset=log_start_offset, log_end_offset=log_end_offset)
        sentence = (
            f"retention or DeleteRecords deleted offset {offset} while the log was being read; it "
            f"begins at offset {log_start_offset} now: go on from there"
        )
        self.args = (sentence,)


class RecordTooLargeError(FatalError, ValueError):
    """A batch is larger than `max.message.bytes`, or than a segment may be."""

    def __init__(self, size: int, *, limit: int, setting: str) -> None:
        self.size = size
        self.limit = limit
        self.setting = setting
        super().__init__(f"the batch has {size} bytes; {setting} allows {limit}")


@dataclass(frozen=True, slots=True)
class RecordError:
    """The error of one record of a refused batch."""

    index: int
    """Place of the record in its batch."""
    message: str


class InvalidRecordError(FatalError, ValueError):
    """A well-formed batch that the log may not take, for example one without any record."""

    def __init__(self, rule: str, *, record_errors: tuple[RecordError, ...] = ()) -> None:
        self.record_errors = record_errors
        """The records at fault, in their order; empty where the batch as a whole is."""
        super().__init__(rule)


class InvalidTimestampError(FatalError, ValueError):
    """A record timestamp outside of what the topic allows."""

    def __init__(self, rule: str, *, record_errors: tuple[RecordError, ...] = ()) -> None:
        self.record_errors = record_errors
        """The records at fault, in their order, also those with another fault."""
        super().__init__(rule)


class UnsupportedCodecError(FatalError, ValueError):
    """A compression codec that this format or this machine does not know."""


def counted(count: int, noun: str) -> str:
    """`noun` in the number of `count`, with an s for the plural: "1 record", "2 records"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def kind_of(value: object) -> str:
    """The type of what a caller gave, with its article: "an int"."""
    name = type(value).__qualname__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"
