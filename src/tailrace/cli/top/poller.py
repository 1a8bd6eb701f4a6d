"""`Poller`: takes snapshots on a thread of its own, so that no broker holds up the screen.

Invariant: the thread computes for a quarter of the time at most. Where answers are large, which is
work for the brokers too, snapshots are taken less often than the interval says.
"""

import threading
import time
from typing import Final

from tailrace.cli.top.snapshot import Watch
from tailrace.cli.top.tables import History, Overview
from tailrace.client.errors import ClosedAdminError
from tailrace.errors import TailraceError

REST: Final = 3
"""Pause after a snapshot, in times of the CPU time that it took, unless the interval is longer."""


class Poller:
    """The newest overview of a cluster, and why there is no newer one."""

    def __init__(self, watch: Watch, *, interval_s: float) -> None:
        self.found: Overview | None = None
        """Replaced as a whole, and never changed."""
        self.trouble = ""
        """Why the last attempt has failed; empty: it has not."""
        self.bug: Exception | None = None
        """The error of ours that has ended the thread."""
        self._watch = watch
        self._history: History | None = None
        self._interval_s = interval_s
        self._is_paused = self._is_over = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run_noting, name="top", daemon=True)

    def start(self) -> None:
        """Begin to take snapshots."""
        self._thread.start()

    def pace(self, *, interval_s: float, is_paused: bool) -> None:
        """Take snapshots so often from now on, or none."""
        with self._changed:
            self._interval_s, self._is_paused = interval_s, is_paused
            self._changed.notify()

    def stop(self) -> None:
        """Begin no other snapshot; one that is under way is left to the end of the process."""
        with self._changed:
            self._is_over = True
            self._changed.notify()

    def take(self, *, metrics_s: float = 0) -> Overview:
        """A new overview, from one more snapshot; see `Watch.take`.

        Raises:
            TailraceError: no broker answers.
        """
        snapshot = self._watch.take(metrics_s=metrics_s)
        if self._history is None:
            self._history = History(snapshot)
        else:
            self._history.add(snapshot)
        self.found = Overview(self._history)
        return self.found

    def _run_noting(self) -> None:
        try:
            self._run()
        except Exception as error:  # noqa: BLE001 - raised again by who has the terminal
            self.bug = error

    def _run(self) -> None:
        while True:
            cpu_s = time.thread_time()
            try:
                self.take()
                self.trouble = ""
            except ClosedAdminError:
                return
            except TailraceError as error:
                self.trouble = str(error)
            # Not the time in which a silent broker was waited for.
            rest_s = REST * (time.thread_time() - cpu_s)
            with self._changed:
                ended = self._watch.clock()
                while not self._is_over:
                    left_s = ended + max(self._interval_s, rest_s) - self._watch.clock()
                    if not self._is_paused and left_s <= 0:
                        break
                    self._changed.wait(None if self._is_paused else left_s)
                if self._is_over:
                    return
