"""Damages the small files of a killed Kafka's directory: both brokers must read the same records.

    of a directory   recovery points, log starts, high watermarks, how far the cleaner came
    of a partition   leader epochs, the newest producer snapshot, partition.metadata

Each of them is missing, empty, cut, garbage, of a wrong count, or has numbers that are too large or
too small. One Kafka serves a log directory for each damage, since it takes a whole directory out of
service for some of them; each has a partition of every topic, with a copy of a log that Kafka had
written when it was killed: transactions, deleted records, an idempotent producer; and with one that
compaction has left with a gap between segments. We open each directory as a broker does that meets
the topics first, so what it knows of compaction is in the directory.

Where we differ on purpose, ours has to be what it is without the damage: `_DIFFERENCES` says why.
One that Kafka does not show any more ends in a failed check too.
"""

import contextlib
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient, OffsetSpec

from compat import clients, ours
from compat.bytewise import copy_directory, flip_byte, read_differences
from compat.clients import ReadBack
from compat.kafka import Kafka
from compat.kafka_to_us import wait_until_cleaned
from compat.report import Report
from compat.topics import TOPICS, create_topics
from tailrace.errors import FatalError, TailraceError
from tailrace.model import TopicPartition
from tailrace.records.batch import read_batches
from tailrace.runtime.files import DiskFiles
from tailrace.storage import names
from tailrace.storage.checkpoints import read_offset_checkpoint, write_offset_checkpoint

SOURCES = ("transactions", "compacted", "deleted", "idempotent")
GAPS = "gaps"
GARBAGE = b"\xff\x00garbage\n" * 9
FAR = 1_000_000
"""An offset beyond the end of every log."""

_TOPICS: Mapping[str, Mapping[str, str]] = {
    # So that Kafka compacts nothing meanwhile.
    topic: {**TOPICS[topic], "min.cleanable.dirty.ratio": "1.0"}
    for topic in SOURCES
}

_ADOPTED: Mapping[str, Mapping[str, str]] = {
    topic: {name: value for name, value in TOPICS[topic].items() if name != "cleanup.policy"}
    for topic in SOURCES
}
"""The settings that a broker knows of topics that another broker has created."""

SETTLED_COUNT = 8

Name = tuple[str, str]
"""Name of a damage: which file, and what is wrong with it."""

Damage = Callable[[Path], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """The part of a partition that a broker serves; `start` is its log start offset."""

    start: int
    everything: ReadBack
    committed: ReadBack


Reads = dict[str, Served | None]
"""By topic; None where the partition is out of service."""


def check(report: Report, kafka: Kafka, killed: Path, scratch: Path) -> None:
    """Have `kafka`, on a new directory, and us open damaged copies of the logs in `killed`."""
    theirs = {WHOLE: kafka.logs} | {
        name: scratch / "checkpoints-theirs" / f"{number:02d}"
        for number, name in enumerate(_DAMAGES)
    }
    kafka.settings["log.dirs"] = ",".join(map(str, theirs.values()))
    with kafka:
        for topic in SOURCES:
            # One after the other, since a partition goes to the directory that has the fewest.
            create_topics(
                kafka.bootstrap_servers, {topic: _TOPICS[topic]}, partition_count=len(theirs)
            )
            _wait_for_folders(theirs.values(), topic)
        with_gaps = _write_gaps(kafka, theirs.values())
    # With its checkpoints, which are overwritten.
    with_gaps = copy_directory(with_gaps.parent, scratch / "gaps") / with_gaps.name
    sources = {topic: killed / f"{topic}-0" for topic in SOURCES} | {"compacted": with_gaps}
    places = {name: _partitions_in(path) for name, path in theirs.items()}
    for name, path in theirs.items():
        _fill(path, places[name], sources)
        if name != WHOLE:
            file, kind = name
            _damage(path, file, places[name], kind)
    mine = {
        name: copy_directory(path, scratch / "checkpoints-ours" / path.name)
        for name, path in theirs.items()
    }
    stopping = {name for names_of_one in _STOPPING for name in names_of_one}
    kafka.settings["log.dirs"] = ",".join(
        str(path) for name, path in theirs.items() if name not in stopping
    )
    with kafka:
        _wait_until_out_of_service(kafka, [theirs[name] for name in _OUT_OF_SERVICE])
        read = _read_kafka(kafka.bootstrap_servers, places)
    for each in _STOPPING:
        kafka.settings["log.dirs"] = ",".join(map(str, [kafka.logs, *map(theirs.get, each)]))
        report.check(f"Kafka does not start with a directory whose {_listed(each)}", _start(kafka))
    found = {name: _read_ours(mine[name], places[name]) for name in theirs}
    report.check(
        "a killed Kafka's logs, copied to other topics, read the same to us as to Kafka",
        list(_differences(found[WHOLE], read[WHOLE])),
    )
    for name in _DAMAGES:
        _check_damage(report, name, mine=found[name], theirs=read[name], whole=found[WHOLE])


def _start(kafka: Kafka) -> list[str]:
    """The difference to report if a broker starts that must not start."""
    try:
        with kafka:
            return ["it starts"]
    except FatalError:
        return []


def _listed(damages: Sequence[Name]) -> str:
    kinds = ", ".join(kind for _, kind in damages)
    return f"{damages[0][0]} is unreadable ({kinds})"


def _check_damage(report: Report, name: Name, *, mine: Reads, theirs: Reads, whole: Reads) -> None:
    file, kind = name
    reason = _DIFFERENCES.get(name)
    if reason is None:
        report.check(
            f"a killed Kafka's directory whose {file} is {kind} reads the same to us as to Kafka",
            list(_differences(mine, theirs)),
        )
        return
    told = list(_differences(mine, whole))
    if not told and not list(_differences(mine, theirs)):
        told = ["Kafka has it as we have it, so there is nothing to explain"]
    report.check(
        f"a killed Kafka's directory whose {file} is {kind} is to us what it was",
        told,
        explained=reason,
    )


def _differences(first: Reads, second: Reads) -> Iterator[str]:
    for topic in SOURCES:
        one, other = first[topic], second[topic]
        if one is None or other is None:
            if one is not other:
                away = "first" if one is None else "second"
                yield f"{topic} is out of service for the {away} only"
            continue
        if one.start != other.start:
            yield f"{topic} starts at {one.start} for the first, at {other.start} for the second"
        for each in read_differences(one.everything, other.everything):
            yield f"{topic}, all: {each}"
        for each in read_differences(one.committed, other.committed):
            yield f"{topic}, committed: {each}"


def _wait_for_folders(paths: Collection[Path], topic: str, *, count: int | None = None) -> None:
    """Return when a topic has so many partitions, or as many as there are directories.

    Raises:
        FatalError: it has not, in a long time.
    """
    deadline = time.monotonic() + clients.WAIT_SECONDS
    while sum(len(list(path.glob(f"{topic}-*"))) for path in paths) < (count or len(paths)):
        if time.monotonic() > deadline:
            raise FatalError(f"Kafka has not made {topic} in {clients.WAIT_SECONDS} s")
        time.sleep(0.1)


def _partitions_in(path: Path) -> dict[str, int]:
    """The number of the partition that a directory has, by topic.

    Raises:
        FatalError: Kafka has not put one of each topic there.
    """
    parsed = [names.parse_partition_directory_name(each.name) for each in path.iterdir()]
    found = [each for each in parsed if each is not None and each.topic in SOURCES]
    numbers = dict(found)
    if len(found) != len(SOURCES) or len(numbers) != len(SOURCES):
        raise FatalError(f"Kafka has put {sorted(map(str, found))} into {path}")
    return numbers


def _write_gaps(kafka: Kafka, paths: Collection[Path]) -> Path:
    """The folder of a log in which compaction has left a gap between segments.

    Keys that are there once, and then one key many times, whose last record is in a later segment.

    Raises:
        FatalError: Kafka has not compacted it, or has left no gap.
    """
    servers = kafka.bootstrap_servers
    create_topics(servers, {GAPS: TOPICS["compacted"]})
    _wait_for_folders(paths, GAPS, count=1)
    clients.produce_keyed(servers, GAPS, [b"once %d" % each for each in range(120)])
    clients.produce_keyed(servers, GAPS, [b"often"] * 600)
    (folder,) = (each for path in paths for each in path.glob(f"{GAPS}-0"))
    wait_until_cleaned(folder.parent, (GAPS,))
    _check_gaps(folder)
    return folder


def _fill(path: Path, numbers: Mapping[str, int], sources: Mapping[str, Path]) -> None:
    """Put copies of the logs into the partitions, and the directory into the state of a kill."""
    (path / names.CLEAN_SHUTDOWN).unlink()
    files = DiskFiles()
    for topic, number in numbers.items():
        folder = path / f"{topic}-{number}"
        for each in (*folder.iterdir(), *sources[topic].iterdir()):
            if each.name == names.PARTITION_METADATA:
                continue
            if each.parent == folder:
                each.unlink()
            else:
                (folder / each.name).write_bytes(each.read_bytes())
    for name in _OF_DIRECTORIES:
        offsets = {
            TopicPartition(topic, number): _noted(sources[topic], name)
            for topic, number in numbers.items()
        }
        known = {partition: offset for partition, offset in offsets.items() if offset is not None}
        write_offset_checkpoint(files, str(path), name, offsets=known)


def _noted(folder: Path, name: str) -> int | None:
    """Return a checkpoint's offset for a log some time after its active segment was begun."""
    if name in {names.RECOVERY_POINTS, names.HIGH_WATERMARKS}:
        return max(int(each.stem) for each in _logs(folder))
    known = read_offset_checkpoint(DiskFiles(), str(folder.parent / name))
    return known.get(names.parse_partition_directory_name(folder.name) or TopicPartition("", 0))


def _check_gaps(folder: Path) -> None:
    """Check that offsets are missing between the segments of a log.

    Raises:
        FatalError: none are.
    """
    end = 0
    for log in sorted(_logs(folder)):
        if end < int(log.stem):
            return
        for _, batch in read_batches(memoryview(log.read_bytes())):
            end = batch.next_offset
    raise FatalError(f"{folder} has no gap between two segments")


def _logs(folder: Path) -> list[Path]:
    return list(folder.glob(f"*{names.LOG_SUFFIX}"))


def _damage(path: Path, file: str, numbers: Mapping[str, int], kind: str) -> None:
    change = _KINDS[file][kind]
    if file in {ALL_CHECKPOINTS, *_OF_DIRECTORIES}:
        for each in _OF_DIRECTORIES if file == ALL_CHECKPOINTS else (file,):
            change(path / each)
        return
    for topic, number in numbers.items():
        folder = path / f"{topic}-{number}"
        if file == SNAPSHOT:
            change(max(folder.glob(f"*{names.SNAPSHOT_SUFFIX}")))
        else:
            change(folder / file)


def _read_kafka(
    bootstrap_servers: str, places: Mapping[Name, Mapping[str, int]]
) -> dict[Name, Reads]:
    """Read from Kafka the partitions that it serves of each directory."""
    starts = _settled_starts(AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0}))
    everything, committed = (
        clients.read_partitions(bootstrap_servers, starts, is_committed=is_committed)
        for is_committed in (False, True)
    )
    return {
        name: {
            topic: Served(
                start=starts[topic, number],
                everything=everything[topic, number],
                committed=committed[topic, number],
            )
            if (topic, number) in starts
            else None
            for topic, number in numbers.items()
        }
        for name, numbers in places.items()
    }


def _wait_until_out_of_service(kafka: Kafka, paths: Collection[Path]) -> None:
    """Wait until Kafka has taken these directories offline; a check reports those it has not."""
    due = {f"Stopping serving logs in dir {path}" for path in paths}
    deadline = time.monotonic() + clients.WAIT_SECONDS
    while due and time.monotonic() < deadline:
        time.sleep(0.25)
        printed = kafka.printed()
        due = {words for words in due if not any(line.endswith(words) for line in printed)}


def _settled_starts(admin: AdminClient) -> dict[tuple[str, int], int]:
    """Log start offsets by topic and partition, when Kafka has said the same for some time.

    Leaders are elected, and directories taken out of service, after it has said that it is ready.
    """
    before: dict[tuple[str, int], int] = {}
    deadline = time.monotonic() + clients.WAIT_SECONDS
    settled = 0
    while settled < SETTLED_COUNT and time.monotonic() < deadline:
        time.sleep(0.25)
        starts = _starts(admin)
        settled = settled + 1 if starts == before else 0
        before = starts
    return before


def _starts(admin: AdminClient) -> dict[tuple[str, int], int]:
    led = {
        Place(topic, number): OffsetSpec.earliest()
        for topic, told in admin.list_topics().topics.items()
        for number, partition in told.partitions.items()
        if topic in SOURCES and partition.leader >= 0
    }
    starts = {}
    for each, future in admin.list_offsets(led).items() if led else ():
        with contextlib.suppress(KafkaException):
            starts[each.topic, each.partition] = future.result().offset
    return starts


def _read_ours(path: Path, numbers: Mapping[str, int]) -> Reads:
    """Read the partitions of a directory with our log; each is None if the directory is refused."""
    try:
        with ours.opened(path, topics=_ADOPTED) as logs:
            found = {
                topic: logs.get(TopicPartition(topic, number)) for topic, number in numbers.items()
            }
            return {
                topic: None
                if log is None
                else Served(
                    start=log.start_offset,
                    everything=ours.read_log(log, is_committed=False),
                    committed=ours.read_log(log, is_committed=True),
                )
                for topic, log in found.items()
            }
    except TailraceError:
        return dict.fromkeys(numbers)


def _missing(path: Path) -> None:
    path.unlink()


def _put(content: bytes) -> Damage:
    def put(path: Path) -> None:
        path.write_bytes(content)

    return put


def _cut(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def _miscount(path: Path) -> None:
    version, count, rest = path.read_text().split("\n", 2)
    path.write_text(f"{version}\n{int(count) + 1}\n{rest}")


def _set_last(change: Callable[[int], int]) -> Damage:
    """Change the last number of each entry."""

    def set_last(path: Path) -> None:
        version, count, *entries = path.read_text().splitlines()
        split = [entry.rpartition(" ") for entry in entries]
        changed = [f"{known} {change(int(number))}" for known, _, number in split]
        path.write_text("\n".join([version, count, *changed]) + "\n")

    return set_last


def _other_id(path: Path) -> None:
    path.write_text("version: 0\ntopic_id: EjRWeBI0QjSCNBI0VniavA")


_BYTES: Mapping[str, Damage] = {
    "missing": _missing,
    "empty": _put(b""),
    "cut": _cut,
    "garbage": _put(GARBAGE),
}
_ENTRIES: Mapping[str, Damage] = {
    **_BYTES,
    "of a wrong count": _miscount,
    "too large": _set_last(lambda number: number + FAR),
    "too small": _set_last(lambda _: 0),
}
WHOLE = ("none", "damaged")
ALL_CHECKPOINTS = "every checkpoint"
SNAPSHOT = "newest producer snapshot"
_OF_DIRECTORIES = (
    names.RECOVERY_POINTS,
    names.LOG_START_OFFSETS,
    names.HIGH_WATERMARKS,
    names.CLEANER_OFFSETS,
)
_KINDS: Mapping[str, Mapping[str, Damage]] = {
    **dict.fromkeys(_OF_DIRECTORIES, _ENTRIES),
    ALL_CHECKPOINTS: {"missing": _missing, "empty": _put(b"")},
    names.LEADER_EPOCHS: _ENTRIES,
    SNAPSHOT: {**_BYTES, "flipped": flip_byte},
    names.PARTITION_METADATA: {**_BYTES, "of another topic": _other_id},
}
_DAMAGES: Sequence[Name] = [(file, kind) for file, kinds in _KINDS.items() for kind in kinds]

_UNREADABLE = ("cut", "garbage", "of a wrong count")
_STOPPING: Sequence[Sequence[Name]] = [
    [(names.RECOVERY_POINTS, kind) for kind in _UNREADABLE],
    [(names.LOG_START_OFFSETS, kind) for kind in _UNREADABLE],
    [(names.PARTITION_METADATA, kind) for kind in ("empty", "cut", "garbage")],
]
"""With which Kafka does not start, by file; one start for each."""

_OUT_OF_SERVICE: Mapping[Name, str] = {
    (file, kind): f"Kafka takes the directory out of service; {reason}"
    for kind in _UNREADABLE
    for file, reason in (
        (names.HIGH_WATERMARKS, "one replica alone has its high watermark at its end"),
        (names.CLEANER_OFFSETS, "without it compaction begins anew"),
        (names.LEADER_EPOCHS, "the batches say which leader wrote them"),
    )
}

_DIFFERENCES: Mapping[Name, str] = {
    **dict.fromkeys(
        _STOPPING[0], "Kafka does not start; without recovery points we check everything"
    ),
    **dict.fromkeys(_STOPPING[1], "Kafka does not start; the leader epochs say where a log starts"),
    (names.LOG_START_OFFSETS, "too large"): (
        "Kafka removes a log that ends below its start; to us such a start is of another log"
    ),
    **_OUT_OF_SERVICE,
    **{
        (names.PARTITION_METADATA, kind): (
            "Kafka sets the folder aside and begins a new log; a broker of ours that does not know "
            "the topic adopts it"
        )
        for kind in ("missing", "of another topic")
    },
}
