"""`Gate`: the open batches of each topic, and a cheap lock around what changes them.

The lock costs two list operations, a tenth of a `with` on a `threading.Lock`: a caller that can pop
the single element holds the lock, and appends the element to release it. It is meant for sections
of a microsecond that do not block. If the list is empty, another caller holds the lock: `send` then
appends its record under the producer's lock instead, and `wait` retries.

    try:
        enter()
        ...                      # changes the open batch
    except IndexError:
        ...                      # another caller holds the lock
    except BaseException:        # Ctrl-C may be raised after any call, `enter` included
        leave(None)
        raise
    else:
        leave(None)              # not in the `try`: after it, Ctrl-C must not release it again

A batch is sealed inside of it. So a caller that holds it adds a record and what belongs to it, its
callback, to the same open batch. `append` of a batch needs no lock: nothing else of
the interpreter runs meanwhile, and it refuses records for a sealed batch.

Invariant: batches in `open` and `places` are not closed while the gate is held.
"""

import time
from itertools import count
from math import inf
from typing import TYPE_CHECKING, Final

from tailrace.client.producer.errors import ReentrantCallError

if TYPE_CHECKING:
    from tailrace.client.producer.queue.open_batch import OpenBatch

PATIENCE_S: Final = 1.0
_TURNS: Final = 1000
"""Attempts before the clock is read, and at least as many after that: time alone would not do,
since a process that was stopped for a while has lost time, but no attempts."""


class Gate:
    """The open batches by topic, and their lock."""

    __slots__ = ("_element", "enter", "leave", "open", "places")

    def __init__(self) -> None:
        self.open: dict[str, OpenBatch] = {}
        """By topic, the open batch of the sticky partition."""
        self.places: dict[str, list[OpenBatch | None]] = {}
        """By topic, the open batch of each partition, or None for those without one."""
        self._element: list[None] = [None]
        self.enter = self._element.pop
        """Takes the lock; raises IndexError if another caller holds it."""
        self.leave = self._element.append
        """Releases the lock; called with None."""

    def wait(self) -> None:
        """Wait for the lock and take it; the caller must call `leave`, also after an exception.

        Raises:
            ReentrantCallError: the lock was held for `PATIENCE_S`. Sections take microseconds, so
                a signal handler or finalizer on this thread must have interrupted the holder.
        """
        deadline = inf
        for turn in count():
            try:
                self.enter()
            except IndexError:
                if turn == _TURNS:
                    deadline = time.monotonic() + PATIENCE_S
                elif turn > 2 * _TURNS and time.monotonic() > deadline:
                    raise ReentrantCallError(
                        "a producer was called by a signal handler or a finalizer that has "
                        "interrupted a call of the same producer; let it set a flag instead"
                    ) from None
                time.sleep(0)
            except BaseException:
                self.leave(None)
                raise
            else:
                return

    def show(self, batch: "OpenBatch", partition_count: int) -> None:
        """Let records for the partition of an open batch get into it on the fast path."""
        topic, partition = batch.partition
        places = self.places.get(topic)
        if places is None:
            places = self.places[topic] = [None] * partition_count
        if partition < len(places):
            places[partition] = batch

    def hide(self, batch: "OpenBatch") -> None:
        """Let no record get into a batch on the fast path; inside of the gate."""
        topic, partition = batch.partition
        places = self.places.get(topic, ())
        if partition < len(places) and places[partition] is batch:
            self.places[topic][partition] = None

    def forget_places(self, topic: str) -> None:
        """Turn the fast path off for records of a topic with a key or a partition of their own.

        For a topic that has other partitions now: keys belong to others of them.
        """
        self.places.pop(topic, None)

    def shut(self, topic: str) -> None:
        """Turn the fast path off for a topic, until a new batch is opened for its records.

        The present batch stays open for records that come on the slow path.
        """
        self.wait()
        self.open.pop(topic, None)
        self.places.pop(topic, None)
        self.leave(None)

    def reset(self) -> None:
        """Clear the open batches and release the lock, in a process that was just forked."""
        self.open.clear()
        self.places.clear()
        self._element[:] = [None]
