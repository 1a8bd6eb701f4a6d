"""Damages one transactional log in many ways: both must find the same end, aborts and files.

Kafka has written the log. Each way of damage has a topic of its own, which Kafka has made so that
its metadata knows it, and whose folder gets a copy of the log; so one start of Kafka recovers all.

    after a lost machine  no mark of a clean stop, no recovery points: everything is checked
    after a clean stop    what is trusted is only what is there and can be

After a clean stop Kafka trusts more than we do: offset and time indexes of any bytes, an empty one
in the place of a lost time index (`LogSegment.sanityCheck`), and that no transaction is open where
all snapshots are gone (`UnifiedLog.rebuildProducerState` takes such a log for one from before there
were any). There ours is held against a copy of the log without any damage.

Invariant: the segments that a damage touches are found in the log, not assumed; one that is not
there ends the proof.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from compat import clients, ours
from compat.bytewise import (
    copy_directory,
    differences,
    epoch_differences,
    flip_batch,
    flip_byte,
    folder_differences,
    read_differences,
    snapshot_differences,
)
from compat.clients import ReadBack
from compat.kafka import Kafka
from compat.report import Report
from compat.topics import TOPICS, create_topics
from tailrace.runtime.files import DiskFiles
from tailrace.storage import names
from tailrace.storage.checkpoints import read_epoch_checkpoint

_LAST_OFFSET_AT = 18
"""In an entry of a transaction index: after version, producer id and first offset."""

SOURCE = "transactions"
GARBAGE = b"\xff" * 111
"""Entries below the base offset, with a length that no index can have."""

POSSIBLE_GARBAGE = b"\x7f\x03garbage" * 12
"""Garbage with a possible length, whose first and last entry do not contradict each other."""


def check(report: Report, kafka: Kafka, scratch: Path) -> None:
    """Damage copies of the transactional log of `kafka`, and have both sides open them."""
    prepared = kafka.moved_to(copy_directory(kafka.directory, scratch / "damaged"))
    with prepared:
        create_topics(prepared.bootstrap_servers, _settings({**_FILES, **_MORE, **_TAILS}))
    _check_state(report, prepared, scratch / "lost", damages={**_FILES, **_MORE, **_TAILS})
    _check_state(report, prepared, scratch / "clean", damages={**_FILES, **_MORE})


def _check_state(
    report: Report, prepared: Kafka, scratch: Path, *, damages: Mapping[str, Callable[[Path], None]]
) -> None:
    is_clean = _TAILS.keys().isdisjoint(damages)
    state = "after a clean stop" if is_clean else "after a lost machine"
    topics = _settings(damages)
    theirs = prepared.moved_to(copy_directory(prepared.directory, scratch / "theirs"))
    for name, damage in damages.items():
        folder = theirs.logs / f"{_topic(name)}-0"
        _copy_log(theirs.logs / f"{SOURCE}-0", folder)
        damage(folder)
    if not is_clean:
        ours.make_unclean(theirs.logs)
    mine = copy_directory(theirs.logs, scratch / "ours")
    with theirs:
        reads = clients.read_topics(theirs.bootstrap_servers, topics)
    with ours.opened(mine, topics=topics) as logs:
        found = {
            (topic, is_committed): ours.read_log(
                ours.log_of(logs, topic), is_committed=is_committed
            )
            for topic, is_committed in reads
        }
    for name in damages:
        topic = _topic(name)
        if is_clean and name in _UNNOTICED:
            report.check(
                f"a transactional log with {name} {state} is to us what it was",
                list(_mending_differences(topic, found, mine)),
                explained="and Kafka does not notice",
            )
            continue
        report.check(
            f"a transactional log with {name} {state} reads the same to us as to Kafka",
            list(_read_differences(topic, found, reads)),
        )
        report.check(
            f"a transactional log with {name} {state} has its files left as Kafka leaves them",
            list(_file_differences(topic, theirs.logs, mine)),
        )


def _read_differences(
    topic: str,
    mine: Mapping[tuple[str, bool], ReadBack],
    theirs: Mapping[tuple[str, bool], ReadBack],
) -> Iterator[str]:
    for is_committed in (False, True):
        for each in read_differences(mine[topic, is_committed], theirs[topic, is_committed]):
            yield f"{'committed' if is_committed else 'all'}: {each}"


def _mending_differences(
    topic: str, found: Mapping[tuple[str, bool], ReadBack], mine: Path
) -> Iterator[str]:
    """Differences of our recovered log from the log without damage."""
    whole = _topic(WHOLE)
    for is_committed in (False, True):
        yield from read_differences(found[topic, is_committed], found[whole, is_committed])
    yield from folder_differences(mine / f"{whole}-0", mine / f"{topic}-0", suffixes=_SUFFIXES)
    epochs, due = (
        read_epoch_checkpoint(DiskFiles(), str(mine / f"{each}-0" / names.LEADER_EPOCHS))
        for each in (topic, whole)
    )
    if epochs != due:
        yield f"{topic}: the leader epochs are {epochs}, and were {due}"


def _file_differences(topic: str, theirs: Path, mine: Path) -> Iterator[str]:
    yield from differences(theirs, mine, suffixes=_SUFFIXES, topics=[topic])
    yield from snapshot_differences(theirs, mine, topics=[topic])
    yield from epoch_differences(mine, theirs, topics=[topic])


_SUFFIXES = (
    names.LOG_SUFFIX,
    names.OFFSET_INDEX_SUFFIX,
    names.TIME_INDEX_SUFFIX,
    names.TRANSACTION_INDEX_SUFFIX,
)


def _topic(name: str) -> str:
    return "damaged-" + name.replace(" ", "-")


def _settings(damages: Mapping[str, object]) -> dict[str, Mapping[str, str]]:
    return {_topic(name): TOPICS[SOURCE] for name in damages}


def _copy_log(source: Path, target: Path) -> None:
    """Replace the empty log of one partition by the log of another."""
    for each in target.iterdir():
        if each.name != names.PARTITION_METADATA:
            each.unlink()
    for each in source.iterdir():
        if each.name != names.PARTITION_METADATA:
            (target / each.name).write_bytes(each.read_bytes())


def _newest(folder: Path, suffix: str) -> Path:
    return max(folder.glob(f"*{suffix}"))


def _middle(folder: Path, suffix: str) -> Path:
    """The file in the middle; not the active segment's, nor one that an open one could hide."""
    found = sorted(each for each in folder.glob(f"*{suffix}") if each.stat().st_size)
    return found[len(found) // 2]


def _negate_last(path: Path) -> None:
    """Have the first entry of a transaction index end below 0.

    Kafka does not start with one whose version is wrong, so garbage has no place here.
    """
    data = bytearray(path.read_bytes())
    data[_LAST_OFFSET_AT] ^= 0x80
    path.write_bytes(data)


def _put(content: bytes) -> Callable[[Path], None]:
    def put(path: Path) -> None:
        path.write_bytes(content)

    return put


def _cut_active(folder: Path) -> None:
    active = _newest(folder, names.LOG_SUFFIX)
    active.write_bytes(active.read_bytes()[:-7])


def _pad_active(folder: Path) -> None:
    active = _newest(folder, names.LOG_SUFFIX)
    active.write_bytes(active.read_bytes() + bytes(5000))


def _remove_snapshots(folder: Path) -> None:
    for each in folder.glob(f"*{names.SNAPSHOT_SUFFIX}"):
        each.unlink()


def _on(
    choose: Callable[[Path, str], Path], suffix: str, change: Callable[[Path], None]
) -> Callable[[Path], None]:
    return lambda folder: change(choose(folder, suffix))


_TAILS: Mapping[str, Callable[[Path], None]] = {
    "its end cut": _cut_active,
    "its active segment flipped": _on(_newest, names.LOG_SUFFIX, flip_batch),
    "a middle segment flipped": _on(_middle, names.LOG_SUFFIX, flip_batch),
    "zeros behind its end": _pad_active,
}
WHOLE = "no damage"
_FILES: Mapping[str, Callable[[Path], None]] = {
    WHOLE: lambda _: None,
    "a transaction index missing": _on(_middle, names.TRANSACTION_INDEX_SUFFIX, Path.unlink),
    "an abort that ends before it": _on(_middle, names.TRANSACTION_INDEX_SUFFIX, _negate_last),
    "an empty transaction index": _on(_middle, names.TRANSACTION_INDEX_SUFFIX, _put(b"")),
    "its newest snapshot missing": _on(_newest, names.SNAPSHOT_SUFFIX, Path.unlink),
    "its newest snapshot flipped": _on(_newest, names.SNAPSHOT_SUFFIX, flip_byte),
    "garbage as its newest snapshot": _on(_newest, names.SNAPSHOT_SUFFIX, _put(GARBAGE)),
    "a middle snapshot missing": _on(_middle, names.SNAPSHOT_SUFFIX, Path.unlink),
    "an offset index missing": _on(_middle, names.OFFSET_INDEX_SUFFIX, Path.unlink),
    "the active offset index missing": _on(_newest, names.OFFSET_INDEX_SUFFIX, Path.unlink),
    "no leader epochs": lambda folder: (folder / names.LEADER_EPOCHS).unlink(),
}
_MORE: Mapping[str, Callable[[Path], None]] = {
    "all snapshots missing": _remove_snapshots,
    "a time index missing": _on(_middle, names.TIME_INDEX_SUFFIX, Path.unlink),
    "the active time index missing": _on(_newest, names.TIME_INDEX_SUFFIX, Path.unlink),
    "garbage as an offset index": _on(_middle, names.OFFSET_INDEX_SUFFIX, _put(GARBAGE)),
    "garbage as a time index": _on(_middle, names.TIME_INDEX_SUFFIX, _put(GARBAGE)),
}
"""Further damage after a clean stop; Kafka does not notice it."""
# Kafka goes on without the epochs of records that it has.
_UNNOTICED = {*_MORE, "no leader epochs"}
