"""`Printer`: writes records to stdout, and knows which of them have left this process."""

import os
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from tailrace.cli.record_format import Shower
from tailrace.model import TopicPartition
from tailrace.records.builder import Record

PAGE_BYTES: Final = 1024 * 1024
"""Most bytes of records that are written at once."""


class CtrlC:
    """Lets Ctrl-C wait while a step must be whole; a second one does not wait."""

    def __init__(self) -> None:
        self._is_held = self._has_come = False

    def __enter__(self) -> None:
        # A shell has it ignored in what it runs in the background; that stays so.
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._interrupt)

    def __exit__(self, *_: object) -> None:
        if signal.getsignal(signal.SIGINT) == self._interrupt:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def _interrupt(self, *_: object) -> None:
        if not self._is_held or self._has_come:
            raise KeyboardInterrupt
        self._has_come = True

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


def drop_output() -> None:
    """Let what is left in the buffer go nowhere: nobody reads on, as after `head`."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
