"""Any rounds of a job, with crashes between them, read back as a list in memory has them."""

import re
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.spark.folder import DiskFolder
from tailrace.spark.jobs.manifest import Entry, Manifest, open_manifest, plan_folds
from tailrace.testing import MemoryFiles, ProcessKilledError
from tests.examples import examples

FORM = "test/1"

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 300), st.integers(0, 3)),
        st.tuples(st.just("settle"), st.integers(0, 3), st.integers(0, 3)),
        st.tuples(st.just("kill"), st.integers(0, 60), st.integers(0, 3)),
        st.tuples(st.just("power"), st.integers(0, 60), st.integers(0, 3)),
        st.tuples(st.just("reopen"), st.just(0), st.just(0)),
    ),
    min_size=1,
    max_size=8,
)


@dataclass(slots=True)
class Model:
    """A manifest on a disk, and what it has to say."""

    files: MemoryFiles = field(default_factory=MemoryFiles)
    rounds: list[list[Entry]] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    manifest: Manifest | None = None

    def do(self, name: str, number: int, size: int) -> None:
        """One step of a script."""
        match name:
            case "add":
                for _ in range(number):
                    self.add([{"n": len(self.rounds), "part": part} for part in range(size)])
            case "settle":
                self.add([], {f"key-{number}": size})
            case "reopen":
                self.close()
            case "kill" | "power":
                self.crash(number, keeps_unsynced=name == "kill")

    def add(self, entries: list[Entry], settings: dict[str, Any] | None = None) -> None:
        """One round."""
        self.opened().add(entries, settings=settings)
        self.rounds.append(entries)
        self.settings |= settings or {}

    def crash(self, operations: int, *, keeps_unsynced: bool) -> None:
        """Add rounds until the process dies; the one that it was at is there, or is not."""
        self.files.stop_at = len(self.files.operations) + operations
        try:
            while True:
                self.add([{"n": len(self.rounds), "part": 0}])
        except ProcessKilledError:
            self.files = self.files.crash(keep_unsynced=keeps_unsynced)
            self.manifest = None
        count = Manifest.open(DiskFolder("/lake", self.files), form=FORM).rounds
        assert len(self.rounds) <= count <= len(self.rounds) + 1
        if count > len(self.rounds):
            self.rounds.append([{"n": len(self.rounds), "part": 0}])

    def opened(self) -> Manifest:
        """The manifest, to add to."""
        if self.manifest is None:
            folder = DiskFolder("/lake", self.files)
            self.manifest = open_manifest(
                folder, form=FORM, files_of=lambda _: (), owned=re.compile("never")
            )
        return self.manifest

    def close(self) -> None:
        """End the run."""
        if self.manifest is not None:
            self.manifest.folder.unlock()
            self.manifest = None

    def check(self) -> None:
        """Read it all again, in few files."""
        found = Manifest.open(DiskFolder("/lake", self.files), form=FORM)
        assert found.rounds == len(self.rounds)
        assert found.settings == self.settings
        for number in {0, len(self.rounds) // 2, len(self.rounds)}:
            expected = [entry for entries in self.rounds[number:] for entry in entries]
            assert found.entries_since(number) == expected
        self.opened()
        names = DiskFolder("/lake", self.files).names("_manifest")
        count = len([name for name in names if name.endswith(".json")])
        assert count <= 1 + files_max(len(self.rounds))


def files_max(rounds: int) -> int:
    """The most files that so many rounds have, while no fold is too large."""
    return 15 * len(f"{rounds:x}")


@settings(max_examples=examples(100))
@given(steps=STEPS)
def test_a_manifest_has_the_rounds_of_its_oracle(steps: list[tuple[str, int, int]]) -> None:
    """After each step a reader has all entries in their order, by round, and no others."""
    model = Model()
    for step in steps:
        model.do(*step)
        model.check()


@settings(max_examples=examples(300))
@given(
    sizes=st.lists(st.integers(0, 40), min_size=1, max_size=700),
    scale=st.sampled_from([1, 3]),
    entries_max=st.sampled_from([1, 50, 400, 5000, 1 << 20]),
)
def test_folds_are_aligned_bounded_and_stay(sizes: list[int], scale: int, entries_max: int) -> None:
    """A fold has no more entries than allowed, and later it is as it was or in a larger one."""
    ends = list(accumulate(sizes * scale))
    plan = plan_folds(ends, entries_max=entries_max)
    limits = [limit for _, limit in plan]
    assert [first for first, _ in plan] == [0, *limits][: len(plan)]
    assert limits[-1:] == [len(ends) - 1][: len(plan)]
    for first, limit in plan:
        size = limit - first
        assert size in {1, 16, 256, 4096}
        assert first % size == 0
        assert size == 1 or ends[limit - 1] - (ends[first - 1] if first else 0) <= entries_max
    if ends[-1] <= entries_max:
        assert len(plan) <= files_max(len(ends))
    for earlier in range(1, len(ends), 37):
        for first, limit in plan_folds(ends[:earlier], entries_max=entries_max):
            assert any(start <= first and limit <= end for start, end in plan)
