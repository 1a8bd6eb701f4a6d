"""`tailrace consume`: records of a topic of any Kafka cluster, as lines."""

import sys
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import click

from tailrace.cli import completion
from tailrace.cli.arguments import decompresses, drop_output
from tailrace.cli.decoding import (
    EXIT_UNDECODED,
    chosen_decoding,
    decoded,
    undecoded_sentence,
)
from tailrace.cli.on_cluster import Connection, on_cluster, parse_numbers, say
from tailrace.cli.printer import POLL_S, Committer, Printer, Retries
from tailrace.cli.record_text import VALUE_LINE, FormatError, Shower, parse_format
from tailrace.cli.span import Span, parse_places
from tailrace.client.admin.group_offsets import alter_group_offsets, list_group_offsets
from tailrace.client.admin.groups import NoSuchGroupError, describe_groups
from tailrace.client.admin.offsets import CommittedOffset
from tailrace.client.reader import ClusterReader
from tailrace.client.tailer import Tailer
from tailrace.client.topics import find_partitions
from tailrace.errors import FatalError, counted
from tailrace.model import IsolationLevel, TopicPartition
from tailrace.offline.show import ShownRecord, to_json
from tailrace.records.builder import Record

if TYPE_CHECKING:
    from tailrace.schemas.shown import ShownDecoder


@click.command()
@click.argument("topic", shell_complete=completion.topics)
@click.option("-p", "--partitions", metavar="0,1,4-7", help="Read only these partitions.")
# The beginning, as in kcat: a topic at rest shows its records. kafka-console-consumer begins at the
# end.
@click.option(
    "-o", "--offset", "places", multiple=True, metavar="PLACE",
    help="Where to begin in each partition: beginning, end, an offset, -N for N before the end, or "
    "s@MS for the first record at or after a time in ms since 1970. e@MS ends before such a time; "
    "give both for a time range.  [default: beginning]",
)  # fmt: skip
@click.option(
    "-c", "--count", type=click.IntRange(min=1), help="Stop after this number of records."
)
@decompresses
@click.option(
    "-e",
    "--exit",
    "is_finite",
    is_flag=True,
    help="Exit at the end of each partition, as it was when the command began.",
)
@click.option(
    "-f", "--format", "form", metavar="FORMAT",
    help="As in kcat: %t topic, %p partition, %o offset, %T timestamp in ms, %k key, %s value, %h "
    "headers, %K and %S key and value size in bytes, %R value size as a binary int32.  "
    "[default: %s\\n]",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print JSON Lines: one object per record.")
# The default of kafka-console-consumer as well.
@click.option(
    "--isolation", type=click.Choice(["read_uncommitted", "read_committed"]),
    default="read_uncommitted", show_default=True,
    help="read_committed: leave out aborted records, and stop at the last stable offset.",
)  # fmt: skip
@click.option(
    "--group", metavar="GROUP",
    help="Join this consumer group: begin at its committed offsets, and commit what was printed.",
)  # fmt: skip
@decoded
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

    Transaction markers are never printed. On a terminal control characters are escaped; to a pipe
    keys and values are written byte for byte.

    With --group the command joins the consumer group and reads the partitions that it is assigned.
    Partitions without a committed offset begin at --offset. --exit ends it at the end of the
    assigned partitions. With --group and --partitions it reads these partitions without joining,
    and refuses a group that has members.
    """
    # As after `>&-`: nothing could be printed, and with --group it would be committed.
    if sys.stdout is None:
        raise FatalError("stdout is closed, so no record can be printed; send them to /dev/null")
    decoding = chosen_decoding()
    decoder = None if decoding is None else decoding.decoder()
    show = _shower(options["form"], is_json=bool(options["as_json"]), decoder=decoder)
    # Parsed before the connection, so that a typing error is reported at once.
    numbers = None if partitions is None else parse_numbers(partitions, flag="--partitions")
    start, stop = parse_places(options["places"])
    span = Span(
        start=start,
        stop=stop,
        is_finite=bool(options["is_finite"]),
        isolation=IsolationLevel[isolation.upper()],
    )
    # The consumer is imported here only: it takes longer to load than all of this command.
    if group is not None and numbers is None:
        from tailrace.cli.consume_member import read_as_member

        # Without positions: partitions come with the first rebalance.
        printer = Printer(show, {}, count=count)
        read_as_member(connection, topic, group=group, printer=printer, span=span)
        tell_undecoded(decoder)
        return
    with connection.open() as cluster:
        # Before the group is asked, so that a wrong topic is the first error.
        chosen = find_partitions(cluster, topic, numbers)
        committed = {} if group is None else _committed(cluster, group)
        positions = span.begins(cluster, chosen, committed)
        limits = span.limits(cluster, chosen)
        tailer = Tailer(cluster, positions, limits=limits, isolation=span.isolation)
        printer = Printer(show, positions, count=count)
        committer = None if group is None else Committer(partial(_commit, cluster, group))
        try:
            with printer.ctrl_c:
                _follow(tailer, printer, committer, limits=limits)
        except KeyboardInterrupt:
            printer.flush()
            raise
        except BrokenPipeError:
            # The reader has enough, as `head` has; that is no error.
            drop_output()
        finally:
            # After an error too: the next run would print again what has left this process.
            if committer is not None:
                committer.commit(printer.flushed)
    tell_undecoded(decoder)


def tell_undecoded(decoder: "ShownDecoder | None") -> None:
    """End with exit code 1 if something was printed as it is stored."""
    # At the end, and after everything that could be decoded: one record of another producer must
    # not hide the others.
    if decoder is not None and decoder.fault_count:
        say(undecoded_sentence(decoder.fault_count))
        sys.exit(EXIT_UNDECODED)


def _commit(cluster: ClusterReader, group: str, offsets: Mapping[TopicPartition, int]) -> bool:
    new = {each: CommittedOffset(offset=offset) for each, offset in offsets.items()}
    cluster.do(alter_group_offsets, group, new).results()
    return True


def _follow(
    tailer: Tailer,
    printer: Printer,
    committer: Committer | None,
    *,
    limits: Mapping[TopicPartition, int] | None,
) -> None:
    retries = Retries()
    while not tailer.is_over and not printer.has_enough:
        with retries.attempt(is_finite=limits is not None):
            for each in tailer.poll(POLL_S):
                # What was fetched beyond --count is neither printed nor committed.
                if not printer.has_enough:
                    records = (record for record, _ in each.records())
                    printer.print(each.partition, records, next_offset=each.limit_offset)
            printer.flush()
            for place, limit in (limits or {}).items():
                if place not in tailer.positions and not printer.has_enough:
                    # Compaction may have removed the last records before the limit.
                    printer.begin(place, max(limit, printer.flushed[place]))
            if committer is not None:
                committer.commit_if_due(printer.flushed)


def _shower(form: object, *, is_json: bool, decoder: "ShownDecoder | None") -> Shower:
    if is_json:
        if form is not None:
            raise click.UsageError("give --format or --json, not both")

        def show(partition: TopicPartition, record: Record) -> bytes:
            shown = ShownRecord(partition, record, is_control=False)
            return f"{to_json(shown, decoder=decoder)}\n".encode()

        return show

    try:
        return parse_format(
            str(VALUE_LINE if form is None else form),
            for_terminal=sys.stdout.isatty(),
            decoder=decoder,
        )
    except FormatError as error:
        raise click.UsageError(f"--format: {error}") from error


def _committed(cluster: ClusterReader, group: str) -> dict[TopicPartition, CommittedOffset]:
    """The committed offsets of a group without members.

    Raises:
        FatalError: it has members, who would read the same and refuse to let this command commit.
    """
    try:
        count = len(cluster.do(describe_groups, [group]).result(group).members)
    except NoSuchGroupError:
        # The first commit creates the group.
        return {}
    if count:
        raise FatalError(
            f"--group: {group} has {counted(count, 'member')}, and with --partitions this "
            "command does not join the group; stop its consumers, or leave out --partitions to "
            "join it"
        )
    return cluster.do(list_group_offsets, group).results()
