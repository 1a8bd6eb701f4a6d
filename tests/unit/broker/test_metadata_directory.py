"""The directory of the metadata log: one of log.dirs or one of its own, and never a second one."""

import pytest

from tailrace.broker.config import broker_config
from tailrace.broker.start import start_broker
from tailrace.cluster.bootstrap import FILE as BOOTSTRAP
from tailrace.cluster.metadata.proof import METADATA_FOLDER
from tailrace.errors import DirectoryError
from tailrace.offline.handover import plan_handover, server_properties
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from tailrace.storage import names
from tailrace.storage.manager import end_reason
from tailrace.storage.names import parse_partition_directory_name
from tailrace.testing import DiskFault, MemoryFiles, Outside, virtual_runtime
from tests.unit.broker.brokers import batch, connect, create_topic, produce, running

APART = {"log.dirs": "a,b", "metadata.log.dir": "m"}
CHECKPOINTS = (
    names.RECOVERY_POINTS,
    names.LOG_START_OFFSETS,
    names.HIGH_WATERMARKS,
    names.CLEANER_OFFSETS,
    names.CLEAN_SHUTDOWN,
)


async def fill(outside: Outside, settings: dict[str, str]) -> None:
    """Have a broker create a topic with a setting of its own, write to it, and stop."""
    async with running(outside, settings) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t", partitions=4, configs={"retention.ms": "12345"})
        assert (await produce(peer, "t", batch(b"x"))).error_code == ErrorCode.NONE


def filled(settings: dict[str, str]) -> MemoryFiles:
    """The disk that such a broker leaves."""
    with virtual_runtime() as outside:
        outside.run(fill(outside, settings))
        return outside.files.crash()


def content(files: MemoryFiles) -> dict[str, bytes]:
    """The files of all directories but their locks."""
    found = {}
    paths = [each for each in ("a", "b", "m") if files.exists(each)]
    while paths:
        path = paths.pop()
        if files.is_directory(path):
            paths += [f"{path}/{name}" for name in files.list(path)]
        elif not path.endswith(names.LOCK):
            found[path] = files.content(path)
    return found


async def look(outside: Outside, settings: dict[str, str]) -> None:
    """Check that a broker goes on with the topic, its setting and its records."""
    async with running(outside, settings) as broker:
        assert broker.controller.image.topics["t"].configs == {"retention.ms": "12345"}
        answer = await produce(connect(outside, broker), "t", batch(b"y"))
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 1)


def test_a_directory_of_its_own_has_the_metadata_log_and_nothing_else() -> None:
    """No partition is put there, no client sees it, and the next start goes on with its state."""
    disk = filled(APART)
    found = disk.list("m")
    assert {METADATA_FOLDER, names.META_PROPERTIES, BOOTSTRAP} <= set(found)
    assert not set(found) & set(CHECKPOINTS)
    partitions = [each for each in found if parse_partition_directory_name(each)]
    assert partitions == [METADATA_FOLDER]
    assert not disk.exists(f"a/{METADATA_FOLDER}")

    async def described(outside: Outside) -> None:
        async with running(outside, APART) as broker:
            answer = await connect(outside, broker).ask(
                ApiKey.DESCRIBE_LOG_DIRS, DescribeLogDirsRequest(topics=None),
                DescribeLogDirsResponse,
            )  # fmt: skip
            assert [each.log_dir for each in answer.results] == ["a", "b"]
            await outside.pass_time(1)
            registered = broker.controller.log.image.brokers[1].log_dirs
            known = [each.directory.directory_id for each in broker.logs.directories]
            assert list(registered) == known

    for step in (lambda outside: look(outside, APART), described):
        with virtual_runtime(files=disk) as outside:
            outside.run(step(outside))
            disk = outside.files.crash()


def test_old_snapshots_in_a_directory_of_its_own_are_deleted(outside: Outside) -> None:
    """Its schedule removes what left service; nothing else is periodic there."""

    async def scenario(outside: Outside) -> None:
        small = {"metadata.log.max.record.bytes.between.snapshots": "1"}
        async with running(outside, {**APART, **small, "metadata.max.retention.ms": "1"}) as broker:
            for name in ("one", "two", "three"):
                await create_topic(connect(outside, broker), name)
                await outside.pass_time(3700)
            snapshots = [
                each
                for each in outside.files.list(f"m/{METADATA_FOLDER}")
                if each.endswith(".checkpoint") or "deleted" in each
            ]
            assert len(snapshots) == 1
            assert set(broker.statistics().schedules["m"].jobs) == {"removal"}

    outside.run(scenario(outside))


def test_snapshots_are_written_after_a_moment_without_threads(outside: Outside) -> None:
    """A snapshot that the system refuses does not end all later ones."""

    async def scenario(outside: Outside) -> None:
        small = {"metadata.log.max.record.bytes.between.snapshots": "1"}
        async with running(outside, {**APART, **small}) as broker:

            def snapshots() -> list[str]:
                names = outside.files.list(f"m/{METADATA_FOLDER}")
                return [each for each in names if each.endswith(".checkpoint")]

            await create_topic(connect(outside, broker), "one")
            await outside.pass_time(58)
            outside.threads.refusal = RuntimeError("can't start new thread")
            await outside.pass_time(3)
            outside.threads.refusal = None
            assert not snapshots()
            await outside.pass_time(61)
            assert snapshots()

    outside.run(scenario(outside))


def test_handover_tells_a_directory_of_its_own_from_those_of_log_dirs() -> None:
    """By the registration; its missing mark of an orderly stop hinders nothing."""
    found = plan_handover(filled(APART), ["a", "b", "m"])
    assert found.is_ready, found.notes
    settings = server_properties(found)
    assert (settings["log.dirs"], settings["metadata.log.dir"]) == ("a,b", "m")


@pytest.mark.parametrize("given", ["b", "./b/", ""])
def test_the_metadata_log_may_be_in_any_of_log_dirs(given: str) -> None:
    """The first of them has it if none is named; a name may be spelled in another way."""
    disk = filled({"log.dirs": "a,b", "metadata.log.dir": given})
    home, other = ("b", "a") if given else ("a", "b")
    assert disk.exists(f"{home}/{METADATA_FOLDER}")
    assert not disk.exists(f"{other}/{METADATA_FOLDER}")
    assert disk.exists(f"{home}/{names.CLEAN_SHUTDOWN}")
    with virtual_runtime(files=disk) as outside:
        outside.run(look(outside, {"log.dirs": "a,b", "metadata.log.dir": given}))


@pytest.mark.parametrize(
    ("before", "after", "named", "has"),
    [
        ({"log.dirs": "a,b"}, {"log.dirs": "b,a"}, "b", "a"),
        ({"log.dirs": "a,b"}, {"log.dirs": "m,a,b"}, "m", "a"),
        ({"log.dirs": "a,b"}, APART, "m", "a"),
        ({"log.dirs": "a,b", "metadata.log.dir": "b"}, {"log.dirs": "a,b"}, "a", "b"),
    ],
    ids=["swapped", "one in front", "one apart", "not named any more"],
)
def test_a_state_in_another_directory_is_never_passed_over(
    before: dict[str, str], after: dict[str, str], named: str, has: str
) -> None:
    """A start with an empty state would lose settings, users and ids; it changes no file of it."""
    disk = filled(before)
    known = content(disk)
    with virtual_runtime(files=disk) as outside:
        advice = f"{named} has none; start with --override metadata.log.dir={has}"
        with pytest.raises(DirectoryError, match=advice):
            outside.run(start_broker(broker_config({**after, "listeners": "m:0"}), outside.runtime))
        kept = {path: each for path, each in content(outside.files).items() if path in known}
    assert kept == known


def test_two_states_are_refused() -> None:
    """Only the operator knows which of them is right."""
    disk = filled({"log.dirs": "a,b"})
    disk.make_directory(f"b/{METADATA_FOLDER}")
    with (
        virtual_runtime(files=disk) as outside,
        pytest.raises(DirectoryError, match=f"is in b/{METADATA_FOLDER}, and a has another"),
    ):
        outside.run(start_broker(broker_config({"log.dirs": "a,b"}), outside.runtime))


def test_a_directory_apart_that_is_not_named_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    """The topics are adopted, nothing is lost, and the advice in the line brings the state back."""
    disk = filled(APART)
    with virtual_runtime(files=disk) as outside:
        outside.run(adopt(outside))
        disk = outside.files.crash()
    (line,) = [each for each in caplog.messages if each.startswith("metadata_log_missing")]
    assert "partitions=4" in line
    assert f"move a/{METADATA_FOLDER} away" in line
    with (
        virtual_runtime(files=disk) as outside,
        pytest.raises(DirectoryError, match=f"is in a/{METADATA_FOLDER}, and m has another"),
    ):
        outside.run(start_broker(broker_config(APART), outside.runtime))
    disk.rename(f"a/{METADATA_FOLDER}", "older")
    with virtual_runtime(files=disk) as outside:
        outside.run(look(outside, APART))


async def adopt(outside: Outside) -> None:
    """Have a broker start on the directories for logs alone."""
    async with running(outside, {"log.dirs": "a,b"}) as broker:
        assert broker.controller.image.topics["t"].configs["retention.ms"] == "-1"


@pytest.mark.parametrize("operation", ["read", "list"])
def test_a_broker_does_not_start_without_its_metadata_directory(operation: str) -> None:
    """The state of the cluster is there and nowhere else."""
    disk = filled(APART)
    disk.faults.append(DiskFault(operation=operation, path_part="m/"))
    with (
        virtual_runtime(files=disk) as outside,
        pytest.raises(DirectoryError, match="cannot use m "),
    ):
        outside.run(start_broker(broker_config({**APART, "listeners": "m:0"}), outside.runtime))


def test_a_broker_does_not_start_without_any_directory_for_logs() -> None:
    """A metadata directory alone serves nobody; the reason is told, and the locks are released."""
    disk = filled(APART)
    for each in "ab":
        disk.faults.append(DiskFault(operation="remove", path_part=f"{each}/.kafka_cleanshutdown"))
    with virtual_runtime(files=disk) as outside:
        with pytest.raises(DirectoryError, match="cannot use b "):
            outside.run(start_broker(broker_config({**APART, "listeners": "m:0"}), outside.runtime))
        outside.files.faults.clear()
        outside.run(look(outside, APART))


async def test_a_broker_ends_with_its_last_directory_for_logs(outside: Outside) -> None:
    """It goes on with one of two, and not with none, although its state could still change."""
    async with running(outside, APART) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t", partitions=2)
        for each, has_ended in (("a", False), ("b", True)):
            outside.files.faults.append(DiskFault(operation="write", path_part=f"{each}/t-"))
            for number in range(2):
                await produce(peer, "t", batch(b"x"), partition=number)
            await outside.pass_time(1)
            assert broker.failed.is_set() is has_ended
        assert "cannot use b" in (end_reason(broker.logs) or "")
