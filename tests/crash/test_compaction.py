"""A crash at every operation of a compaction, while the log goes on between its steps."""

import contextlib
import random
from collections.abc import Callable, Iterator

from tailrace.storage.config import DAY_MS
from tailrace.testing import MemoryFiles, ProcessKilledError
from tests.steps import Steps
from tests.unit.storage.builders import NOW
from tests.unit.storage.cleaner.houses import House, keyed, latest

EXPECTED = {b"a": b"38", b"b": b"39"}
"""The last records of the keys that are compacted."""


def filled() -> House:
    """A log of forty records of two keys, all on the device."""
    house = House()
    log = house.open()
    keyed(log, "ab" * 20)
    log.sync()
    house.home.checkpoint()
    return house


def compact(house: House) -> None:
    """A round; between an exchange and its sync the log rolls, and the old files are deleted."""
    job = house.cleaner.next_job()
    assert job is not None
    for group in job.map_keys():
        job.exchange(job.rewrite(group))
        keyed(job.log, "xyz" * 3)
        house.home.checkpoint()
        house.home.removals.remove_due(NOW + DAY_MS)
        job.settle()
    job.note_cleaned()
    job.finish()


def crashed(files: MemoryFiles) -> Iterator[MemoryFiles]:
    """The disk after a kill, after a loss of power, and after some that leave a part."""
    yield files.crash(keep_unsynced=True)
    yield files.crash()
    for seed in range(3):
        yield files.crash(chance=random.Random(seed))


def keys_after_crashes(
    make: Callable[[], House], work: Callable[[House], object], steps: Steps
) -> Iterator[tuple[int, dict[bytes | None, bytes | None]]]:
    """The last value of each key after crashes at operations of `work`, with their numbers."""
    house = make()
    start = len(house.files.operations)
    work(house)
    total = len(house.files.operations) - start
    for stop in steps(range(total + 1)):
        house = make()
        house.files.stop_at = len(house.files.operations) + stop
        with contextlib.suppress(ProcessKilledError):
            work(house)
        for disk in crashed(house.files):
            yield stop, latest(House(disk).open())


def test_a_crash_at_any_operation_of_a_round_loses_no_key(steps: Steps) -> None:
    """No crash loses a key, not even between the exchange of the segments and its sync."""
    for stop, found in keys_after_crashes(filled, compact, steps):
        assert EXPECTED.items() <= found.items(), f"stopped at operation {stop}"


def test_a_crash_between_two_groups_of_a_round_loses_no_key(steps: Steps) -> None:
    """A record that a group leaves out has a newer one on the device, which a later group keeps."""

    def replaced() -> House:
        house = House()
        log = house.open()
        keyed(log, "abcdefgh")
        log.sync()
        house.home.checkpoint()
        keyed(log, "ijklmnopqrstuvwxyz" + "abcdefgh" + "ABCDEFGHIJ")
        return house

    def work(house: House) -> None:
        job = house.cleaner.next_job()
        assert job is not None
        groups = job.map_keys()
        assert len(groups) > 2
        for group in groups:
            job.exchange(job.rewrite(group))
            job.settle()
        job.note_cleaned()
        job.finish()

    for stop, found in keys_after_crashes(replaced, work, steps):
        missing = {key.encode() for key in "abcdefgh"} - found.keys()
        assert not missing, f"stopped at operation {stop}"
