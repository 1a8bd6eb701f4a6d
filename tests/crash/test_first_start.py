"""A kill or a power loss at every file operation of the start that makes the metadata log.

The directory is new, or has bare folders of partitions; or it has a metadata log that is damaged,
which is cut, so that topics are made of their folders.
"""

from collections.abc import Collection

import pytest

from tailrace.cluster.metadata.proof import METADATA_FOLDER
from tailrace.storage.names import META_PROPERTIES
from tailrace.testing import MemoryFiles, Outside, virtual_runtime
from tests.crash.workloads import crash_all_ways
from tests.steps import Steps
from tests.unit.broker.brokers import batch, connect, create_topic, produce, running

ROOTS = ("data", "more")
SETTINGS = {"log.dirs": ",".join(ROOTS), "log.index.size.max.bytes": "1000"}
CONFIGS = {"retention.ms": "5000"}
DAMAGED = "damaged log"
COPIED = "copied folders"
"""Partition folders in directories without `meta.properties`."""


def directory(kind: str) -> MemoryFiles:
    """The directories in front of the first start."""
    files = MemoryFiles()
    if kind == "new":
        return files

    async def work(outside: Outside) -> None:
        async with running(outside, SETTINGS) as broker:
            peer = connect(outside, broker)
            for name, count in (("planes", 3), ("ships", 2)):
                await create_topic(peer, name, partitions=count, configs=CONFIGS)
                await produce(peer, name, batch(b"v"))

    with virtual_runtime(files=files) as outside:
        outside.run(work(outside))
    if kind == DAMAGED:
        path = f"data/{METADATA_FOLDER}/{0:020}.log"
        damaged = bytearray(files.content(path))
        damaged[damaged.index(b"planes")] ^= 1
        files.overwrite(path, bytes(damaged))
        return files.crash(keep_unsynced=True)
    files.remove_tree(f"data/{METADATA_FOLDER}")
    for root in ROOTS:
        files.remove(f"{root}/bootstrap.checkpoint")
        if kind == COPIED:
            files.remove(f"{root}/{META_PROPERTIES}")
    for root in ROOTS:
        files.sync_directory(root)
    return files.crash(keep_unsynced=True)


async def start(outside: Outside, found: list[object]) -> None:
    """Start and stop; `found` gets the state, without what differs from start to start."""
    async with running(outside, SETTINGS) as broker:
        await outside.pass_time(1)  # A new log gets its state with the broker's registration.
        image, log = broker.controller.image, broker.controller.log
        found.append(
            (
                dict(image.topics),
                dict(image.group_configs),
                log.image.features,
                log.image.configs,
                log.image.next_producer_id,
            )
        )


def state_after(files: MemoryFiles) -> object:
    """The state that a start reaches; no folder was set aside by it."""
    found: list[object] = []
    with virtual_runtime(files=files) as outside:
        outside.run(start(outside, found))
    names = [name for root in ROOTS for name in files.list(root)]
    assert not [name for name in names if name.endswith("-stray") or "-delete" in name]
    return found[0]


def crashes(kind: str, stop_at: Collection[int]) -> tuple[range, list[MemoryFiles]]:
    """The operations of the first start and its stop, and the disks that crashes leave."""
    with virtual_runtime(files=directory(kind)) as outside:
        files = outside.files
        begin = len(files.operations)
        found: dict[object, MemoryFiles] = {}

        def look(_operation: str, _path: str) -> None:
            number = len(files.operations) - 1
            if number in stop_at:
                for _, disk in crash_all_ways(files, seed=number):
                    found.setdefault(hash(disk.state()), disk)

        files.on_call = look
        outside.run(start(outside, []))
        return range(begin, len(files.operations)), [*found.values()]


@pytest.mark.parametrize("kind", ["new", "bare folders", COPIED, DAMAGED])
def test_a_crash_at_any_operation_of_the_first_start_is_made_good(kind: str, steps: Steps) -> None:
    """The next start ends as an undisturbed one: with all topics, their ids and settings."""
    wanted = state_after(directory(kind))
    operations, _ = crashes(kind, ())
    assert len(operations) > 50
    _, found = crashes(kind, set(steps(operations)))
    for disk in found:
        assert state_after(disk) == wanted
