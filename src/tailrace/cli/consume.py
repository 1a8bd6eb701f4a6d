"""`tailrace consume`: records of a topic of any Kafka cluster, as lines."""

import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import click

from tailrace.cli.on_cluster import Connection, on_cluster, parse_numbers, say
from tailrace.cli.record_format import VALUE_LINE, FormatError, Shower, parse_format
from tailrace.client.follower import Fetched, Follower
from tailrace.client.groups import NoSuchGroupError, describe_group
from tailrace.client.metadata import ClusterReader
from tailrace.client.offsets import (
    CommittedOffset,
    FoundOffset,
    OffsetAt,
    Place,
    commit_offsets,
    committed_offsets,
    find_offsets,
)
from tailrace.client.topics import find_partitions
from tailrace.errors import FatalError, RetriableError
from tailrace.model import IsolationLevel, TopicPartition
from tailrace.offline.show import ShownRecord, to_json

POLL_S: Final = 0.5
"""Longest wait before offsets of a group that were printed are looked at."""

PAGE_BYTES: Final = 1024 * 1024
"""Most bytes of records that are written at once."""

COMMIT_INTERVAL_S: Final = 5.0
"""Pause between commits of a group's offsets, as in Kafka's consumers."""


@click.command()
@click.argument("topic")
@click.option("-p", "--partitions", metavar="0,1,4-7", help="Only these partitions.")
@click.option(
    "-o", "--offset", "places", multiple=True, metavar="PLACE",
    help="beginning, end, an offset, -N for the last N of each partition, s@MS or e@MS for the "
    "first record to print, or the first not to print, from a time on. s@ and e@ go together.  "
    "[default: beginning]",
)  # fmt: skip
@click.option("-c", "--count", type=click.IntRange(min=1), help="Stop after so many records.")
@click.option(
    "-e", "--exit", "is_finite", is_flag=True, help="Stop at the present end of the logs."
)
@click.option(
    "-f", "--format", "form", metavar="FORMAT",
    help="As kcat's: %t topic, %p partition, %o offset, %T time in ms, %k key, %s value, %h "
    "headers, %K and %S sizes in bytes, %R the same in binary.  [default: %s\\n]",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="One JSON object on a line for each.")
@click.option(
    "--isolation", type=click.Choice(["read_uncommitted", "read_committed"]),
    default="read_uncommitted", show_default=True,
    help="read_committed: no aborted records, and nothing of open transactions.",
)  # fmt: skip
@click.option(
    "--group", metavar="GROUP",
    help="Begin at the committed offsets of GROUP, and commit what was printed.",
)  # fmt: skip
@on_cluster
def consume(
    topic: str,
    *,
    partitions: str | None,
    count: int | None,
    connection: Connection,
    group: str | None,
    isolation: str,
    **options: object,
) -> None:
    """Print records of TOPIC until Ctrl-C, or with --exit until the end.

    Markers of transactions are never printed. On a terminal control characters are escaped; in a
    pipe keys and values are as they were sent.

    With --group partitions without a committed offset begin at --offset. The command does not join
    the group: it reads all partitions, refuses a group that has members, and two of it at the same
    time read everything twice.
    """
    show = _shower(options["form"], is_json=bool(options["as_json"]))
    start, stop = _places(options["places"])
    numbers = None if partitions is None else parse_numbers(partitions, flag="--partitions")
    level = IsolationLevel[isolation.upper()]
    with connection.open() as cluster:
        chosen = find_partitions(cluster, topic, numbers)
        positions = _positions(cluster, chosen, start, level=level, group=group)
        limits = _limits(cluster, chosen, stop, level=level, is_finite=bool(options["is_finite"]))
        follower = Follower(cluster, positions, limits=limits, isolation=level)
        printer = _Printer(show, positions, count=count)
        committer = None if group is None else _Committer(cluster, group)
        try:
            with printer.ctrl_c:
                _follow(follower, printer, committer, is_finite=limits is not None)
        except KeyboardInterrupt:
            printer.flush()
        except BrokenPipeError:
            # Nobody reads on, as behind `head`. What is left in the buffer must not be tried again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        finally:
            if committer is not None:
                committer.commit(printer.flushed)


class _CtrlC:
    """Lets Ctrl-C wait while a step must be whole; a second one does not wait."""

    def __init__(self) -> None:
        self._is_held = self._has_come = False

    def __enter__(self) -> None:
        # A shell has it ignored in what it runs in the background; that stays so.
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._interrupt)

    def __exit__(self, *_: object) -> None:
        if signal.getsignal(signal.SIGINT) == self._interrupt:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def _interrupt(self, *_: object) -> None:
        if not self._is_held or self._has_come:
            raise KeyboardInterrupt
        self._has_come = True

    @contextmanager
    def held(self) -> Iterator[None]:
        """A step that is whole; it raises KeyboardInterrupt at its end if Ctrl-C came meanwhile."""
        self._is_held = True
        try:
            yield
        finally:
            self._is_held = False
        if self._has_come:
            raise KeyboardInterrupt


class _Printer:
    """Writes records to stdout, and knows which of them have left this process."""

    def __init__(
        self, show: Shower, positions: Mapping[TopicPartition, int], *, count: int | None
    ) -> None:
        self._show = show
        self._left = count
        self._written: dict[TopicPartition, int] = {}
        self.ctrl_c = _CtrlC()
        self.flushed = dict(positions)
        """The offset behind the last record that was printed, or of the first to come."""

    @property
    def has_enough(self) -> bool:
        """Whether as many records were printed as were wanted."""
        return self._left == 0

    def print(self, fetched: Fetched) -> None:
        """Write records, in large pieces."""
        partition, show = fetched.partition, self._show
        next_offset = fetched.next_offset
        lines: list[bytes] = []
        size = 0
        for record, _ in fetched.records():
            line = show(partition, record)
            lines.append(line)
            size += len(line)
            if size >= PAGE_BYTES:
                # A batch may hold far more than the broker has sent.
                sys.stdout.buffer.write(b"".join(lines))
                lines.clear()
                size = 0
            if self._left is not None:
                self._left -= 1
                if not self._left:
                    next_offset = record.offset + 1
                    break
        with self.ctrl_c.held():
            # With PYTHONUNBUFFERED the bytes leave at once.
            sys.stdout.buffer.write(b"".join(lines))
            self._written[partition] = next_offset

    def flush(self) -> None:
        """Have everything leave this process."""
        sys.stdout.buffer.flush()
        self.flushed.update(self._written)


class _Committer:
    """Commits what was printed, now and then."""

    def __init__(self, cluster: ClusterReader, group: str) -> None:
        self._cluster = cluster
        self._group = group
        self._committed: dict[TopicPartition, int] = {}
        self._due = time.monotonic() + COMMIT_INTERVAL_S

    def commit_if_due(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit if the last time is long enough ago."""
        if time.monotonic() >= self._due:
            self.commit(offsets)

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit these offsets, as far as they are new."""
        new = {
            each: CommittedOffset(offset=offset)
            for each, offset in offsets.items()
            if self._committed.get(each) != offset
        }
        commit_offsets(self._cluster, self._group, new)
        self._committed.update(offsets)
        self._due = time.monotonic() + COMMIT_INTERVAL_S


def _follow(
    follower: Follower, printer: _Printer, committer: _Committer | None, *, is_finite: bool
) -> None:
    told = ""
    while not follower.is_over and not printer.has_enough:
        try:
            for each in follower.poll(POLL_S):
                if not printer.has_enough:
                    printer.print(each)
            printer.flush()
            if committer is not None:
                committer.commit_if_due(printer.flushed)
        except RetriableError as error:
            if is_finite:
                raise
            if str(error) != told:
                told = str(error)
                say(f"{told}; trying again")
        else:
            told = ""


def _shower(form: object, *, is_json: bool) -> Shower:
    if is_json:
        if form is not None:
            raise click.UsageError("give --format or --json, not both")

        return lambda partition, record: (
            f"{to_json(ShownRecord(partition, record, is_control=False))}\n".encode()
        )

    try:
        return parse_format(
            str(VALUE_LINE if form is None else form), for_terminal=sys.stdout.isatty()
        )
    except FormatError as error:
        raise click.UsageError(f"--format: {error}") from error


def _places(given: object) -> tuple[OffsetAt, OffsetAt | None]:
    """The place to begin and the place to stop that --offset gives."""
    starts, stops = [], []
    assert isinstance(given, tuple)
    for text in given:
        kind, at, number = text.rpartition("@")
        is_number = number.isascii() and number.removeprefix("-").isdigit() and len(number) < 20
        if kind == "e" and is_number:
            stops.append(OffsetAt(Place.TIME, int(number)))
        elif kind == "s" and is_number:
            starts.append(OffsetAt(Place.TIME, int(number)))
        elif text in {"beginning", "earliest"}:
            starts.append(OffsetAt(Place.EARLIEST))
        elif text in {"end", "latest"}:
            starts.append(OffsetAt(Place.LATEST))
        elif is_number and not at:
            place = Place.FROM_LATEST if number.startswith("-") else Place.OFFSET
            starts.append(OffsetAt(place, int(number)))
        else:
            raise click.UsageError(
                f"--offset: {text!r} is no place; give beginning, end, N, -N, s@MS or e@MS"
            )
    if len(starts) > 1 or len(stops) > 1:
        raise click.UsageError("--offset: give one place to begin, and one e@MS at most")
    start = starts[0] if starts else OffsetAt(Place.EARLIEST)
    return start, stops[0] if stops else None


def _positions(
    cluster: ClusterReader,
    partitions: Iterable[TopicPartition],
    start: OffsetAt,
    *,
    level: IsolationLevel,
    group: str | None,
) -> dict[TopicPartition, int]:
    """The first offset to print of each partition."""
    committed = {} if group is None else _committed(cluster, group)
    found = find_offsets(cluster, [*partitions], at=start, isolation=level)
    for each, known in committed.items():
        if each in found:
            found[each] = FoundOffset(known.offset, found[each].log)
    outside = {
        each: f"{place.offset} is not in {each}, which has {place.log.start} to {place.log.end}"
        for each, place in found.items()
        if place.offset != place.within and (each in committed or start.place is Place.OFFSET)
    }
    if outside and len(outside) == len(found) and not committed:
        raise FatalError(f"--offset: {next(iter(outside.values()))}")
    for each, fault in outside.items():
        say(f"{fault}; beginning at {found[each].within}")
    return {each: place.within for each, place in found.items()}


def _committed(cluster: ClusterReader, group: str) -> dict[TopicPartition, CommittedOffset]:
    """The committed offsets of a group without members.

    Raises:
        FatalError: it has members, who would read the same and refuse to let this command commit.
    """
    try:
        count = len(describe_group(cluster, group).members)
    except NoSuchGroupError:
        return {}
    if count:
        members = "1 member" if count == 1 else f"{count} members"
        raise FatalError(
            f"--group: {group} has {members}, and this command does not join groups; stop them, or "
            "give a group of its own"
        )
    return committed_offsets(cluster, group)


def _limits(
    cluster: ClusterReader,
    partitions: Iterable[TopicPartition],
    stop: OffsetAt | None,
    *,
    level: IsolationLevel,
    is_finite: bool,
) -> dict[TopicPartition, int] | None:
    """The offset to stop at in each partition; None to go on for ever."""
    if stop is None and not is_finite:
        return None
    at = stop or OffsetAt(Place.LATEST)
    found = find_offsets(cluster, [*partitions], at=at, isolation=level)
    return {each: place.offset for each, place in found.items()}
