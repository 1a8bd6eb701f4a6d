"""The parts of `tailrace consume` that both of its ways of reading use: print, retry, commit.

`Printer` knows which records have left this process, since only these may be committed.
"""

import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, Self

from tailrace.cli.on_cluster import say
from tailrace.cli.record_text import Shower
from tailrace.errors import RetriableError
from tailrace.model import TopicPartition
from tailrace.records.builder import Record

PAGE_BYTES: Final = 1024 * 1024
"""Most bytes of records that are written at once."""

POLL_S: Final = 0.5
"""Longest time that Ctrl-C waits, and until the next look whether a commit is due."""

COMMIT_INTERVAL_S: Final = 5.0
"""Pause between commits of a group's offsets, as in Kafka's consumers."""


class CtrlC:
    """Lets Ctrl-C wait while a step must be whole; a second one does not wait."""

    def __init__(self) -> None:
        self._is_held = self._has_come = False

    def __enter__(self) -> Self:
        # A shell has it ignored in what it runs in the background; that stays so.
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(self, *_: object) -> None:
        if signal.getsignal(signal.SIGINT) == self._interrupt:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def _interrupt(self, *_: object) -> None:
        if not self._is_held or self._has_come:
            raise KeyboardInterrupt
        self._has_come = True

    @property
    def has_come(self) -> bool:
        """Whether a step is to end early, for Ctrl-C waits for it."""
        return self._has_come

    @contextmanager
    def held(self) -> Iterator[None]:
        """A step that is whole; it raises KeyboardInterrupt at its end if Ctrl-C came meanwhile."""
        self._is_held = True
        try:
            yield
        finally:
            self._is_held = False
        if self._has_come:
            raise KeyboardInterrupt


class Printer:
    """Writes records to stdout, and knows which of them have left this process."""

    def __init__(
        self, show: Shower, positions: Mapping[TopicPartition, int], *, count: int | None
    ) -> None:
        self._show = show
        self._left = count
        self._written: dict[TopicPartition, int] = {}
        self.ctrl_c = CtrlC()
        self.flushed = dict(positions)
        """The offset after the last record that was printed, or of the first to come."""

    @property
    def has_enough(self) -> bool:
        """Whether as many records were printed as were wanted."""
        return self._left == 0

    def print(
        self, partition: TopicPartition, records: Iterable[Record], *, next_offset: int
    ) -> None:
        """Write records, in large pieces; `next_offset` is after all of them."""
        show = self._show
        lines: list[bytes] = []
        size = 0
        for record in records:
            line = show(partition, record)
            lines.append(line)
            size += len(line)
            if size >= PAGE_BYTES:
                # A batch may hold far more than the broker has sent.
                sys.stdout.buffer.write(b"".join(lines))
                lines.clear()
                size = 0
            if self._left is not None:
                self._left -= 1
                if not self._left:
                    next_offset = record.offset + 1
                    break
        with self.ctrl_c.held():
            # With PYTHONUNBUFFERED the bytes leave at once.
            sys.stdout.buffer.write(b"".join(lines))
            self._written[partition] = next_offset

    def begin(self, partition: TopicPartition, offset: int) -> None:
        """Records of a partition come from this offset on."""
        self.flushed[partition] = offset

    def forget(self, partition: TopicPartition) -> None:
        """Others print the records of a partition from now on."""
        self._written.pop(partition, None)
        self.flushed.pop(partition, None)

    def flush(self) -> None:
        """Have everything leave this process."""
        sys.stdout.buffer.flush()
        self.flushed.update(self._written)


class Committer:
    """Commits what was printed, now and then."""

    def __init__(self, commit: Callable[[dict[TopicPartition, int]], bool]) -> None:
        # It returns whether it has committed; if not, the same offsets are due again next time.
        self._commit = commit
        self._committed: dict[TopicPartition, int] = {}
        self._due = time.monotonic() + COMMIT_INTERVAL_S

    def commit_if_due(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit if the last time is long enough ago."""
        if time.monotonic() >= self._due:
            self.commit(offsets)

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit these offsets, as far as they are new.

        Raises: what the function that commits raises; the offsets are tried again at the next time.
        """
        new = {each: end for each, end in offsets.items() if self._committed.get(each) != end}
        # Set before the attempt: after an error it is not repeated at each poll.
        self._due = time.monotonic() + COMMIT_INTERVAL_S
        if new and self._commit(new):
            self._committed.update(new)

    def forget(self, partition: TopicPartition) -> None:
        """Another member commits for this partition from now on."""
        self._committed.pop(partition, None)


class Retries:
    """Lets a command that runs until Ctrl-C outlive errors that pass, and reports each once."""

    def __init__(self) -> None:
        self._last = ""

    @contextmanager
    def attempt(self, *, is_finite: bool) -> Iterator[None]:
        """One turn of the loop.

        Raises:
            RetriableError: the command is to end at the end of the log (`is_finite`), so a script
                waits for it.
        """
        try:
            yield
        except RetriableError as error:
            if is_finite:
                raise
            # A broker that is down fails twice a second; its one sentence is enough.
            if str(error) != self._last:
                self._last = str(error)
                say(f"{self._last}; trying again")
        else:
            self._last = ""
