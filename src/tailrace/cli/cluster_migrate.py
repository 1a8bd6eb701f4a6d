"""`tailrace cluster migrate`: shows the plan and the progress of a move, and takes Ctrl-C.

The move itself is `client.migration`.
"""

import sys
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, assert_never

import click

from tailrace.cli.arguments import aligned
from tailrace.cli.on_cluster import Connection, change, confirm, emit, say
from tailrace.cli.printer import CtrlC
from tailrace.client.migration.moving import (
    BatchBegun,
    BatchMoved,
    Emptied,
    Ending,
    Event,
    Progress,
    Stopping,
    Unregistered,
    Waiting,
    cancel_migration,
    migrate,
)
from tailrace.client.migration.plan import Move, Order, Plan, named, plan_migration, sized
from tailrace.client.migration.survey import Survey, survey_cluster
from tailrace.errors import TailraceError, counted

FORMAT: Final = "tailrace.migration/1"

LINE_S: Final = 60.0
"""Between two lines of progress where stderr is no terminal."""
_CLEAR: Final = "\r\x1b[K"
"""Begins the line of a terminal again."""
_EXIT_HINDERED: Final = 1


def migrate_running(
    connection: Connection,
    order: Order,
    *,
    retires: bool,
    is_dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Move everything from the brokers of an order to others; returns when that is done.

    Raises:
        TailraceError: no broker answers, one refuses, or nothing has moved for long.
        KeyboardInterrupt: Ctrl-C.
    """
    with connection.open() as cluster, CtrlC() as ctrl_c:
        survey = cluster.do(survey_cluster, source=order.source, target=order.target)
        plan = plan_migration(survey, order)
        if as_json:
            _emit_plan(order, plan)
        else:
            for line in _plan_lines(survey, order, plan):
                click.echo(line)
        for fault in plan.faults:
            say(fault)
        if plan.faults:
            sys.exit(_EXIT_HINDERED)
        if is_dry_run:
            return
        if plan.all:
            confirm(f"Move {_counted(plan.all)}?", yes=yes)
        show = _Show(as_json=as_json)
        ending = None
        try:
            with ctrl_c.held():
                ending = cluster.do(
                    migrate,
                    order,
                    report=show.take,
                    is_stopping=lambda: ctrl_c.has_come,
                    retires=retires,
                )
        except KeyboardInterrupt:
            show.clear()
            # It may have come in the last moment.
            if ending is not Ending.DONE:
                _say_how_to_continue(is_whole=ending is Ending.STOPPED)
                raise
        except TailraceError:
            show.clear()
            _say_how_to_continue(is_whole=False)
            raise
    if as_json:
        emit(FORMAT, "done", {"partitions": show.moved})
    else:
        click.echo(f"done: {_have(order.source)} no partitions")


def cancel_running(connection: Connection, order: Order, *, as_json: bool) -> None:
    """Put back what an order is moving.

    Raises:
        TailraceError: no broker answers, or one refuses.
    """
    with connection.open() as cluster:
        moves = change(cluster, cancel_migration, order)
    if as_json:
        emit(FORMAT, "cancelled", {"partitions": [[*each.partition] for each in moves]})
    elif moves:
        names = named([each.partition for each in moves])
        click.echo(f"put back {_counted(moves)} and removed the throttle: {names}")
    else:
        click.echo("nothing is being moved; the throttle is removed, if there was one")


def _say_how_to_continue(*, is_whole: bool) -> None:
    if is_whole:
        say("no partition is on its way, and there is no throttle; the same command continues")
    else:
        say(
            "partitions that are being moved continue, throttled as they are; the same command "
            "continues, and removes the throttle at its end; --cancel puts them back"
        )


class _Show:
    """Prints what happens: results on stdout, progress and waits on stderr."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._is_drawn = sys.stderr.isatty() and not as_json
        self._due = time.monotonic() + LINE_S
        self.moved = 0
        """Partitions that have moved."""

    def clear(self) -> None:
        """End the line that is drawn again and again."""
        if self._is_drawn:
            click.echo(_CLEAR, nl=False, err=True)

    def take(self, event: Event) -> None:
        """Print an event."""
        if isinstance(event, BatchMoved):
            self.moved += len(event.moves)
        if self._as_json:
            _emit_event(event)
        elif isinstance(event, Progress):
            self._draw(event)
        else:
            self.clear()
            self._print(event)

    def _draw(self, event: Progress) -> None:
        if self._is_drawn:
            click.echo(f"{_CLEAR}{_progress(event)}", nl=False, err=True)
        elif time.monotonic() >= self._due:
            # In the log of a script each drawing would be a line.
            self._due = time.monotonic() + LINE_S
            say(_progress(event))

    def _print(
        self, event: BatchBegun | BatchMoved | Waiting | Stopping | Emptied | Unregistered
    ) -> None:
        match event:
            case BatchBegun():
                names = named([each.partition for each in event.moves])
                verb = "continuing with" if event.is_continued else "moving"
                click.echo(f"{verb} {_counted(event.moves)}: {names}")
            case BatchMoved():
                count = counted(len(event.moves), "partition")
                click.echo(f"moved {count} in {_duration(event.seconds)}, in sync and led")
            case Waiting():
                say(f"waiting: {event.reason}")
            case Stopping():
                say(
                    f"stopping when {counted(event.partitions, 'partition')} have moved; "
                    "Ctrl-C again leaves them to the controllers"
                )
            case Emptied():
                click.echo(
                    f"{_have([each.id for each in event.brokers])} no partitions any more: name "
                    "others in bootstrap.servers of clients, then stop them (SIGTERM, or "
                    "kafka-server-stop.sh). A broker is unregistered when it has stopped"
                )
            case Unregistered():
                click.echo(f"unregistered broker {event.broker}")
            case _:
                assert_never(event)


def _plan_lines(survey: Survey, order: Order, plan: Plan) -> Iterator[str]:
    if not plan.all:
        yield f"nothing to move: {_have(order.source)} no partitions"
    else:
        yield f"{_counted(plan.all)}, from {_ids(order.source)} to {_ids(order.target)}"
        if plan.current:
            yield f"{counted(len(plan.current), 'partition')} of these are on their way already"
        yield from (f"  {line}" for line in aligned([*_topic_rows(plan.all)], right=(1, 2, 3)))
        rows = [*_broker_rows(survey, order, plan.all)]
        yield from (f"  {line}" for line in aligned(rows, right=(0, 2, 3, 4, 5)))
    for note in plan.notes:
        yield f"note: {note}"


def _topic_rows(moves: Collection[Move]) -> Iterator[tuple[str, ...]]:
    yield "topic", "partitions", "replicas", "to copy"
    partitions, copies, sizes = Counter[str](), Counter[str](), Counter[str]()
    for each in moves:
        topic = each.partition.topic
        partitions[topic] += 1
        copies[topic] += len(each.added)
        sizes[topic] += each.copied_bytes
    for topic in sorted(partitions):
        yield topic, str(partitions[topic]), str(copies[topic]), sized(sizes[topic])


def _broker_rows(survey: Survey, order: Order, moves: Iterable[Move]) -> Iterator[tuple[str, ...]]:
    yield "to", "rack", "replicas", "leaders", "to copy", "room"
    copies, leads, sizes = Counter[int](), Counter[int](), Counter[int]()
    for move in moves:
        leads[move.target[0]] += 1
        for each in move.added:
            copies[each] += 1
            sizes[each] += move.size
    for each in order.target:
        room, known = survey.room.get(each), survey.brokers.get(each)
        yield (
            str(each),
            (known and known.rack) or "-",
            str(copies[each]),
            str(leads[each]),
            sized(sizes[each]),
            "-" if room is None else sized(room),
        )


def _emit_plan(order: Order, plan: Plan) -> None:
    fields = {
        "from": list(order.source),
        "to": list(order.target),
        "partitions": len(plan.all),
        "bytes": sum(each.copied_bytes for each in plan.all),
        "faults": list(plan.faults),
        "notes": list(plan.notes),
    }
    emit(FORMAT, "plan", fields)
    for each in plan.all:
        topic, partition = each.partition
        fields = {
            "topic": topic,
            "partition": partition,
            "replicas": list(each.replicas),
            "target": list(each.target),
            "bytes": each.copied_bytes,
            "under_way": each in plan.current,
        }
        emit(FORMAT, "move", fields)


def _emit_event(event: Event) -> None:
    kind, fields = _event_fields(event)
    emit(FORMAT, kind, fields)


def _event_fields(event: Event) -> tuple[str, Mapping[str, object]]:
    match event:
        case BatchBegun():
            names = [[*each.partition] for each in event.moves]
            return "batch", {"partitions": names, "continued": event.is_continued}
        case BatchMoved():
            names = [[*each.partition] for each in event.moves]
            return "moved", {"partitions": names, "seconds": round(event.seconds, 3)}
        case Progress():
            return "progress", {
                "partitions": event.partitions,
                "partitions_total": event.partitions_total,
                "bytes": event.bytes,
                "bytes_total": event.bytes_total,
                "rate": round(event.rate),
                "left_s": None if event.left_s is None else round(event.left_s),
            }
        case Waiting():
            return "waiting", {"reason": event.reason}
        case Stopping():
            return "stopping", {"partitions": event.partitions}
        case Emptied():
            return "emptied", {"brokers": [each.id for each in event.brokers]}
        case Unregistered():
            return "unregistered", {"broker": event.broker}
    assert_never(event)


def _progress(event: Progress) -> str:
    left = "" if event.left_s is None else f", {_duration(event.left_s)} left"
    return (
        f"{event.partitions} of {counted(event.partitions_total, 'partition')}, "
        f"{sized(event.bytes)} of {sized(event.bytes_total)}, {sized(event.rate)}/s{left}"
    )


def _counted(moves: Collection[Move]) -> str:
    size = sum(each.copied_bytes for each in moves)
    return f"{counted(len(moves), 'partition')}, {sized(size)} to copy"


def _ids(numbers: Sequence[int]) -> str:
    listed = ", ".join(map(str, numbers))
    return f"broker {listed}" if len(numbers) == 1 else f"brokers {listed}"


def _have(numbers: Sequence[int]) -> str:
    return f"{_ids(numbers)} {'has' if len(numbers) == 1 else 'have'}"


def _duration(seconds: float) -> str:
    """A time for people: `8 s`, `12 min`, `3 h 20 min`."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    hours = f"{minutes // 60} h " if minutes >= 60 else ""
    return f"{hours}{minutes % 60} min"
