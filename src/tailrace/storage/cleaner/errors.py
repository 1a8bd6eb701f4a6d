"""Errors that end a round of cleaning early."""

from tailrace.errors import RetriableError


class CleaningAbortedError(RetriableError):
    """The round was called off; the log is as it was, but for groups already exchanged."""


class SegmentOverflowError(RetriableError):
    """A segment has offsets that are too far from its base; it has to be split first."""

    def __init__(self, base_offset: int, *, offset: int) -> None:
        self.base_offset = base_offset
        self.offset = offset
        super().__init__(
            f"offset {offset} is 2147483648 or more behind the base of segment {base_offset}"
        )
