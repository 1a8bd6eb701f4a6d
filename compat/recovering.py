"""The same damaged directory given to both: same end offset, same bytes behind the recovery.

    cut        the last batch of the active segment lacks its last bytes
    flipped    one byte of a batch in the middle of the active segment is another
    padded     zeros behind the last batch, as a machine leaves that lost power
    first      one byte in the first segment: what lies behind goes too

Kafka's clean-shutdown mark and the recovery points are gone, as after a machine was lost.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from compat import clients, ours
from compat.bytewise import copy_directory, differences, flip_batch, snapshot_differences
from compat.kafka import Kafka
from compat.report import Report
from compat.topics import TOPICS
from tailrace.storage import names

TOPIC = "torn"


def check(report: Report, kafka: Kafka, scratch: Path) -> None:
    """Damage a copy of what `kafka` has written in each way, and have both recover it."""
    for name, damage in _DAMAGES.items():
        theirs = kafka.moved_to(copy_directory(kafka.directory, scratch / f"torn-{name}"))
        ours.make_unclean(theirs.logs)
        damage(theirs.logs / f"{TOPIC}-0")
        mine = copy_directory(theirs.logs, scratch / f"torn-{name}-ours")
        with theirs:
            read = clients.read_back(theirs.bootstrap_servers, TOPIC, is_committed=False)
        with ours.opened(mine) as logs:
            end = ours.log_of(logs, TOPIC).end_offset
        told = [] if end == read.end else [f"{end} for us, {read.end} for Kafka"]
        report.check(f"a directory that is {name} ends where Kafka has it end", told)
        for what, suffixes in _KINDS.items():
            found = differences(theirs.logs, mine, suffixes=suffixes, topics=TOPICS)
            report.check(f"a directory that is {name} has {what} recovered as Kafka has", found)
        report.check(
            f"a directory that is {name} has producer snapshots recovered as Kafka has",
            snapshot_differences(theirs.logs, mine, topics=TOPICS),
        )


_KINDS: Mapping[str, tuple[str, ...]] = {
    "logs": (names.LOG_SUFFIX,),
    "offset and time indexes": (names.OFFSET_INDEX_SUFFIX, names.TIME_INDEX_SUFFIX),
    "transaction indexes": (names.TRANSACTION_INDEX_SUFFIX,),
}


def _segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.log"))


def _cut(folder: Path) -> None:
    active = _segments(folder)[-1]
    active.write_bytes(active.read_bytes()[:-7])


def _flip_active(folder: Path) -> None:
    flip_batch(_segments(folder)[-1])


def _flip_first(folder: Path) -> None:
    flip_batch(_segments(folder)[0])


def _pad(folder: Path) -> None:
    active = _segments(folder)[-1]
    active.write_bytes(active.read_bytes() + bytes(5000))


_DAMAGES: Mapping[str, Callable[[Path], None]] = {
    "cut": _cut,
    "flipped": _flip_active,
    "padded": _pad,
    "flipped in its first segment": _flip_first,
}
