"""Opening the logs when a broker starts: several at a time, told as it goes."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar
from uuid import UUID

import pytest

from tailrace.broker.config import broker_config
from tailrace.broker.loading import Loading
from tailrace.broker.start import start_broker
from tailrace.cluster.changes import TopicChanges
from tailrace.cluster.config_changes import ConfigChange
from tailrace.cluster.controller import Controller
from tailrace.cluster.image import image_on_node
from tailrace.cluster.records import Node
from tailrace.cluster.topic_defaults import TopicDefaults
from tailrace.errors import DirectoryError
from tailrace.handlers.topics import configure_topic
from tailrace.model import TopicPartition
from tailrace.protocol.config_resources import ConfigOperation
from tailrace.replication.replicas import Replicas
from tailrace.storage.directories import open_log_directories
from tailrace.storage.directory_logs import DirectoryLogs
from tailrace.storage.manager import LogManager
from tailrace.testing import DiskFault, MemoryFiles, Outside, virtual_runtime
from tailrace.testing.outside import InlineThreads
from tests.unit.broker.brokers import batch, connect, create_topic, produce, running
from tests.unit.cluster import metadata_logs

T = TypeVar("T")

COUNT = 12


def filled_disk(directories: str) -> MemoryFiles:
    """Return the disk of a broker that had a topic of some partitions, each with a record."""

    async def scenario(outside: Outside) -> None:
        async with running(outside, {"log.dirs": directories}) as broker:
            peer = connect(outside, broker)
            await create_topic(peer, "t", partitions=COUNT)
            for number in range(COUNT):
                await produce(peer, "t", batch(b"x" * 100), partition=number)

    with virtual_runtime() as outside:
        outside.run(scenario(outside))
        return outside.files.crash()


@pytest.mark.parametrize(
    ("directories", "threads", "rounds"),
    [("a", 1, 12), ("a", 2, 6), ("a,b", 1, 6), ("a,b", 3, 2)],
)
def test_partitions_are_opened_side_by_side(directories: str, threads: int, rounds: int) -> None:
    """A start opens num.recovery.threads.per.data.dir partitions of each directory at a time."""

    async def scenario(outside: Outside) -> float:
        outside.threads.seconds_per_run = 1.0
        settings = {
            "log.dirs": directories,
            "num.recovery.threads.per.data.dir": str(threads),
        }
        async with running(outside, settings) as broker:
            assert len(list(broker.logs)) == COUNT
            assert all(log.end_offset == 1 for log in broker.logs)
            outside.threads.seconds_per_run = 0
            return outside.loop.time()

    with virtual_runtime(files=filled_disk(directories)) as outside:
        # One more second is the progress' own look at the disk.
        assert outside.run(scenario(outside)) == pytest.approx(rounds, abs=1)


def test_progress_is_told_once_a_second(caplog: pytest.LogCaptureFixture) -> None:
    """Partitions and bytes, done and in all; and nothing more once all are open."""

    async def scenario(outside: Outside) -> None:
        outside.threads.seconds_per_run = 1.0
        caplog.set_level("INFO")
        async with running(outside, {"log.dirs": "a"}):
            outside.threads.seconds_per_run = 0
            told_while_loading = len(caplog.messages)
            await outside.pass_time(5)
            after = caplog.messages[told_while_loading:]
            assert not [line for line in after if line.startswith("loading ")]

    disk = filled_disk("a")
    caplog.clear()
    size = len(disk.content("a/t-0/00000000000000000000.log"))
    with virtual_runtime(files=disk) as outside:
        outside.run(scenario(outside))
    told = [line for line in caplog.messages if line.startswith("loading ")]
    done = 2
    assert told[0] == (
        f"loading partitions_done={done} partitions={COUNT} "
        f"bytes_done={done * size} bytes={COUNT * size}"
    )
    assert len(told) == len(set(told)) == 5


def test_a_quick_start_tells_no_progress(caplog: pytest.LogCaptureFixture) -> None:
    """A quick start logs no progress and does not stat files for it."""

    async def scenario(outside: Outside) -> None:
        async with running(outside, {"log.dirs": "a"}):
            pass

    caplog.set_level("INFO")
    with virtual_runtime(files=filled_disk("a")) as outside:
        outside.run(scenario(outside))
    assert not [line for line in caplog.messages if line.startswith("loading ")]


def put_damage(disk: MemoryFiles, folder: str) -> str:
    """Damage that no start can mend: what a compaction has made is no batch. The file."""
    path = f"{folder}/00000000000000000000.log.swap"
    disk.open(path, create=True).close()
    disk.overwrite(path, b"garbage" * 20)
    return path


def test_a_damaged_folder_in_the_first_directory_stops_the_start() -> None:
    """The message names the file, every directory is released, and no orderly stop is marked."""

    async def scenario(outside: Outside) -> None:
        outside.threads.seconds_per_run = 1.0
        await start_broker(broker_config({"log.dirs": "a,b"}), outside.runtime)

    disk = filled_disk("a,b")
    path = put_damage(disk, "a/t-0")
    for _ in range(2):
        with (
            virtual_runtime(files=disk) as outside,
            pytest.raises(DirectoryError, match=f"{path}.*tailrace log repair"),
        ):
            outside.run(scenario(outside))
    assert not disk.exists("a/.kafka_cleanshutdown")


def test_a_damaged_folder_takes_its_directory_out_and_the_others_serve(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One file that cannot be repaired does not stop the other directories, as in Kafka."""

    async def scenario(outside: Outside) -> None:
        async with running(outside, {"log.dirs": "a,b"}) as broker:
            assert [each.path for each in broker.logs.online] == ["a"]
            peer = connect(outside, broker)
            codes = [
                (await produce(peer, "t", batch(b"x"), partition=number)).error_code
                for number in range(COUNT)
            ]
            assert codes == [0, 56] * (COUNT // 2)

    disk = filled_disk("a,b")
    path = put_damage(disk, "b/t-1")
    with virtual_runtime(files=disk) as outside:
        outside.run(scenario(outside))
    told = [each for each in caplog.messages if each.startswith("directory_failed path=b")]
    assert len(told) == 1
    assert path in told[0]


def test_one_wrong_number_in_small_files_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Although each small file has a wrong count, all logs are served and each file is logged."""

    async def scenario(outside: Outside) -> None:
        async with running(outside, {"log.dirs": "a,b"}) as broker:
            assert len(broker.logs.online) == 2
            assert [log.end_offset for log in broker.logs] == [1] * COUNT
            assert [log.epochs.entries for log in broker.logs] == [((0, 0),)] * COUNT

    disk = filled_disk("a,b")
    damaged = ["a/t-0/partition.metadata", "b/t-1/leader-epoch-checkpoint"]
    damaged += [f"a/{name}" for name in disk.list("a") if name.endswith("-checkpoint")]
    for path in damaged:
        disk.overwrite(path, b"0\n7\n")
    with virtual_runtime(files=disk) as outside:
        outside.run(scenario(outside))
    told = [line for line in caplog.messages if "replication" not in line]
    assert [path for path in damaged if not any(path in line for line in told)] == [
        "a/replication-offset-checkpoint"
    ]


class UnevenThreads(InlineThreads):
    """The first run takes 5 seconds, the second half of one, the third 4, and later ones 1."""

    def __init__(self, failing: frozenset[int]) -> None:
        super().__init__()
        self.failing = failing
        """Runs that end with an error."""
        self.begun: list[int] = []
        self.ended: list[int] = []

    async def run(self, function: Callable[[], T]) -> T:
        """See `InlineThreads`."""
        number = len(self.begun)
        self.begun.append(number)
        self.seconds_per_run = (5.0, 0.5, 4.0, 1.0)[min(number, 3)]

        def end() -> T:
            self.ended.append(number)
            if number in self.failing:
                raise DirectoryError(f"run {number}")
            return function()

        return await super().run(end)


@pytest.mark.parametrize(
    ("failing", "told", "begun_count"),
    [
        ({0}, "run 0", COUNT),
        ({1}, "run 1", 3),
        ({0, 1}, "run 0", 3),
        ({1, 2}, "run 1", 3),
        ({0, 1, 2}, "run 0", 3),
    ],
)
def test_a_start_that_fails_waits_for_every_partition_being_opened(
    failing: set[int], told: str, begun_count: int
) -> None:
    """Whichever of three fail; and none is begun after a failure."""

    async def scenario(outside: Outside) -> None:
        threads = UnevenThreads(frozenset(failing))
        runtime = replace(outside.runtime, threads=threads)
        settings = {"log.dirs": "a", "num.recovery.threads.per.data.dir": "3"}
        with pytest.raises(DirectoryError, match=told):
            await start_broker(broker_config(settings), runtime)
        assert {0, 1, 2} <= set(threads.ended)
        # One more is the look at the sizes of files, for progress.
        assert len(threads.begun) <= begun_count + 1

    async def serves(outside: Outside) -> None:
        async with running(outside, {"log.dirs": "a"}) as broker:
            assert len(list(broker.logs)) == COUNT

    disk = filled_disk("a")
    for scene in (scenario, serves):
        # Nothing holds the directory after the first: the second serves.
        with virtual_runtime(files=disk) as outside:
            outside.run(scene(outside))


class Start:
    """The parts of a start that opens the logs of two topics, `one` and `two`."""

    def __init__(self, outside: Outside) -> None:
        opened = open_log_directories(
            outside.files, ["a"], node_id=1, chance=outside.runtime.chance
        )
        homes = [
            DirectoryLogs.from_checkpoints(
                outside.files, home, clock=outside.clock, chance=outside.runtime.chance
            )
            for home in opened.usable
        ]
        self.logs = LogManager(homes)
        defaults = TopicDefaults(partition_count=1, replication_factor=1, given={})
        log = metadata_logs.Node(outside.files, "a").open()
        node = Node(node_id=1, directories={"a": UUID(int=7)})
        self.controller = Controller(log, node, chance=outside.runtime.chance, defaults=defaults)
        self.controller.image = image_on_node(log.image, 1)
        self.replicas = Replicas(self.logs, outside.threads)
        self._changes = TopicChanges(InlineThreads())  # which take no time
        self.logs.find_partitions()
        self._loading = Loading(self.logs, self.replicas, outside.threads, thread_count=1)

    def load(self) -> asyncio.Task[None]:
        """Begin to open every log."""
        return asyncio.ensure_future(self._loading.open_all(self.controller))

    async def configure(self, topic: str, value: str) -> None:
        """Change `flush.ms` of a topic, as a request would."""
        change = ConfigChange(name="flush.ms", operation=ConfigOperation.SET, value=value)
        planned = self.controller.plan_configs(self.controller.image.topics[topic], [change])
        await configure_topic(self._changes, self.controller, self.replicas, topic=planned)

    def flush_ms(self, topic: str) -> int | None:
        """Return the setting of a topic's log, or None if the topic is not served."""
        partition = self.replicas.get(TopicPartition(topic, 0))
        return None if partition is None else partition.log.config.flush_ms


def two_topics() -> MemoryFiles:
    """A disk with the topics `one` and `two`."""

    async def scenario(outside: Outside) -> None:
        async with running(outside, {"log.dirs": "a"}) as broker:
            peer = connect(outside, broker)
            for name in ("one", "two"):
                await create_topic(peer, name, configs={"flush.ms": "1000"})

    with virtual_runtime() as outside:
        outside.run(scenario(outside))
        return outside.files.crash()


@pytest.mark.parametrize("after_s", [0.0, 0.5, 1.5, 2.5])
def test_a_log_that_is_being_opened_gets_a_change_of_its_topic(after_s: float) -> None:
    """Before it is opened, while it is, and after; the other topic keeps what it has."""

    async def scenario(outside: Outside) -> None:
        start = Start(outside)
        outside.threads.seconds_per_run = 1.0
        loading = start.load()
        await outside.pass_time(after_s)
        await start.configure("two", "5")
        await loading
        assert (start.flush_ms("one"), start.flush_ms("two")) == (1000, 5)
        start.logs.close()

    with virtual_runtime(files=two_topics()) as outside:
        outside.run(scenario(outside))


def test_a_change_outlasts_a_log_that_could_not_be_opened() -> None:
    """A change does not wait for that log; the next start opens it with the new settings."""
    disk = two_topics()

    async def refused(outside: Outside) -> None:
        start = Start(outside)
        outside.threads.seconds_per_run = 1.0
        loading = start.load()
        await outside.pass_time(0.5)
        await start.configure("one", "5")
        fault = DiskFault(operation="resize", path_part="one-0")
        outside.files.faults.append(fault)
        await loading
        assert start.flush_ms("one") is None
        assert start.replicas.is_offline(TopicPartition("one", 0))
        outside.files.faults.clear()
        await start.configure("one", "6")
        assert start.flush_ms("one") is None
        start.logs.abandon()

    async def opened(outside: Outside) -> None:
        start = Start(outside)
        await start.load()
        assert start.flush_ms("one") == 6
        start.logs.close()

    with virtual_runtime(files=disk) as outside:
        outside.run(refused(outside))
    with virtual_runtime(files=disk) as outside:
        outside.run(opened(outside))


def test_a_change_when_no_log_is_being_opened_breaks_nothing() -> None:
    """A change is harmless while no log is being opened, and for a topic that is not served."""

    async def scenario(outside: Outside) -> None:
        start = Start(outside)
        await start.configure("one", "5")
        assert (start.flush_ms("one"), start.flush_ms("two")) == (None, None)
        await start.load()
        assert (start.flush_ms("one"), start.flush_ms("two")) == (5, 1000)
        await start.configure("two", "7")
        assert (start.flush_ms("one"), start.flush_ms("two")) == (5, 7)
        start.logs.close()

    with virtual_runtime(files=two_topics()) as outside:
        outside.run(scenario(outside))
