"""A stream reader as Spark steers it, over real directories and with a clock of its own."""

import json
import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tailrace.model import TopicPartition
from tailrace.spark.options import parse_options
from tailrace.spark.pyspark_versions import ReadAllAvailable
from tailrace.spark.streaming import TailraceStreamReader

if TYPE_CHECKING:
    from collections.abc import Callable

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)

Offset = dict[str, Any]


class Clock:
    """Seconds that go by only when somebody pauses; `meanwhile` happens in the next pause."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pauses: list[float] = []
        self.meanwhile: Callable[[], object] | None = None

    def __call__(self) -> float:
        """The time."""
        return self.now

    def pause(self, seconds: float) -> None:
        """Let time go by."""
        self.now += seconds
        self.pauses.append(seconds)
        if self.meanwhile is not None:
            self.meanwhile()
            self.meanwhile = None


class Query:
    """Drives a reader as Spark's engine does: offsets go through JSON, batches follow each other.

    `written` are the ends of batches that are in the checkpoint.
    """

    def __init__(self, path: Path, **options: str) -> None:
        self.path = path
        self.written: list[Offset] = []
        self.restart(**options)

    def restart(self, **options: str) -> None:
        """A new process, which has the checkpoint and nothing else."""
        self.clock = Clock()
        named = {"path": str(self.path), "startingOffsets": "earliest"} | options
        if "subscribePattern" not in named:
            named.setdefault("subscribe", "t")
        self.reader, self.unused_reader = (
            TailraceStreamReader(
                parse_options(named, is_stream=True),
                columns=["partition", "offset"],
                clock=self.clock,
                pause=self.clock.pause,
            )
            for _ in range(2)
        )

    @property
    def start(self) -> Offset:
        """The start of the next batch."""
        return self.written[-1] if self.written else self.reader.initialOffset()

    def poll(self, *, is_limited: bool = True) -> bool:
        """Ask for the end of a batch and write it down; whether there is one."""
        limit = self.reader.getDefaultReadLimit() if is_limited else ReadAllAvailable()
        end = json.loads(json.dumps(self.reader.latestOffset(self.start, limit)))
        if end == self.start:
            return False
        self.written.append(end)
        return True

    def read(self, *, batch: int = -1) -> list[tuple[int, int]]:
        """Partition and offset of the records of a batch in the checkpoint, sorted."""
        before = self.written[:batch]
        start = before[-1] if before else self.reader.initialOffset()
        tasks = self.reader.partitions(start, self.written[batch])
        worker = pickle.loads(pickle.dumps(self.unused_reader))
        return sorted(
            (row["partition"], row["offset"])
            for task in tasks
            for arrow in worker.read(task)
            for row in arrow.to_pylist()
        )

    def run(self, *, is_limited: bool = True) -> list[tuple[int, int]]:
        """The records of the next batch; none if there is nothing for one."""
        return self.read() if self.poll(is_limited=is_limited) else []


def span(first: int, limit: int, *, partition: int = 0) -> list[tuple[int, int]]:
    """Rows of one partition."""
    return [(partition, offset) for offset in range(first, limit)]
