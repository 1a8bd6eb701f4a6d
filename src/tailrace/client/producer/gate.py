"""`Gate`: which batches take plain records at the moment, and who may add one.

A lock whose price is two list operations, a tenth of a `with` on a `threading.Lock`: who can pop
the one element is inside, and pushes it back. So it is for sections of a microsecond that wait for
nothing. If the list is empty, another caller is inside: `send` then puts its record into a batch
under the producer's lock instead, and `wait` tries again.

    try:
        enter()
        ...                      # changes the open batch
    except IndexError:
        ...                      # somebody else was inside
    except BaseException:        # Ctrl-C may come behind any call, the one of `enter` included
        gate.mend(topic)
        raise
    else:
        leave(None)              # out of the `try`: a Ctrl-C behind it finds the gate left

Invariant: what is in `open` is not closed, and its columns only change inside of the gate.
"""

import time
from itertools import count
from math import inf
from typing import TYPE_CHECKING, Final

from tailrace.client.producer.errors import ReentrantCallError

if TYPE_CHECKING:
    from tailrace.client.producer.batch import ProducerBatch

PATIENCE_S: Final = 1.0
_TURNS: Final = 1000
"""How often to look before the time is taken, and at least once more in it: a process that was
stopped meanwhile has lost time, but no turns."""


class Gate:
    """The open batches by topic, and their lock."""

    __slots__ = ("_element", "enter", "leave", "open")

    def __init__(self) -> None:
        self.open: dict[str, ProducerBatch] = {}
        """The batch that takes a topic's records without a partition of their own."""
        self._element: list[None] = [None]
        self.enter = self._element.pop
        """Raises IndexError if somebody is inside."""
        self.leave = self._element.append

    def wait(self) -> None:
        """Be inside, after whoever is; `leave` must follow, whatever happens.

        Raises:
            ReentrantCallError: nobody has left for `PATIENCE_S`. Sections take microseconds, so a
                signal handler or a finalizer has interrupted one on this very thread.
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

    def shut(self, topic: str) -> None:
        """Have plain records of the topic take the long way, until a batch is opened for them.

        The batch that took them goes on to take what comes the long way.
        """
        self.wait()
        self.open.pop(topic, None)
        self.leave(None)

    def mend(self, topic: str) -> None:
        """Undo what an interrupted caller has half done to a topic's batch, and leave."""
        try:
            batch = self.open.get(topic)
            if batch is not None:
                batch.mend()
        finally:
            self.leave(None)

    def reset(self) -> None:
        """Nobody is inside and nothing is open: in a process that was just forked."""
        self.open.clear()
        self._element[:] = [None]
