"""`tailrace produce`: lines of stdin or of files, as records of any Kafka cluster."""

import logging
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

import click

from tailrace.cli import completion
from tailrace.cli.on_cluster import Connection, faults_in_flags, on_cluster, say
from tailrace.cli.record_text import (
    JSON_GROWTH,
    FormatError,
    InputRecord,
    json_record,
    plain_record,
    read_lines,
    typed,
    unescape,
)
from tailrace.client.topics import find_or_create_topic, find_partitions
from tailrace.errors import FatalError, TailraceError

if TYPE_CHECKING:
    from tailrace.client.producer import Receipt
    from tailrace.client.producer.config import ProducerConfig

# A broker that refuses one record often refuses all, for the same reason.
FAILURES_SHOWN_MAX: Final = 10
"""Most records whose errors are printed one by one."""

PROGRESS_INTERVAL_S: Final = 0.2

_EXIT_UNDELIVERED: Final = 1


@click.command()
@click.argument("topic", shell_complete=completion.topics)
@click.argument("files", nargs=-1, metavar="[FILE]...", type=click.Path(path_type=Path))
# Flags and rules are kcat's. kafka-console-producer fails at a line without the separator.
@click.option(
    "-K", "--key-separator", metavar="TEXT",
    help=r"Separator between key and value, such as : or \t; a line without it has no key.",
)  # fmt: skip
@click.option(
    "-D", "--delimiter", default=r"\n", show_default=True, metavar="TEXT",
    help=r"Separator between records, such as \0 or \x1e.",
)  # fmt: skip
@click.option(
    "--json", "as_json", is_flag=True,
    help="Each line is a JSON object with key, value, headers and timestamp, as consume --json "
    "prints it.",
)  # fmt: skip
@click.option(
    "--keep-partitions", is_flag=True,
    help="Send each record to the partition in its JSON object; needs --json.",
)  # fmt: skip
@click.option(
    "-H", "--header", "headers", multiple=True, metavar="NAME=VALUE",
    help="Add this header to every record; repeatable.",
)  # fmt: skip
@click.option(
    "-p", "--partition", type=click.IntRange(min=0),
    help="Send all records to this partition. Default: chosen by the hash of the key; records "
    "without a key are spread over all partitions.",
)  # fmt: skip
# none, as in kcat and kafka-console-producer.
@click.option(
    "-z", "--compression", type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    default="none", show_default=True, help="Compression codec of the batches.",
)  # fmt: skip
# all is the default of kafka-console-producer too (-1).
@click.option(
    "--acks", type=click.Choice(["all", "1", "0"]), default="all", show_default=True,
    help="all: wait for all in-sync replicas, and write each record once and in order. 1: wait "
    "for the leader. 0: do not wait.",
)  # fmt: skip
@on_cluster
def produce(
    topic: str,
    files: tuple[Path, ...],
    *,
    connection: Connection,
    headers: tuple[str, ...],
    partition: int | None,
    compression: str,
    acks: str,
    **options: object,
) -> None:
    """Send each line of stdin, or of files, as a record of TOPIC.

    Without FILE, or for -, stdin is read. An empty line is a record with an empty value. Producer
    settings such as linger.ms are given by --option.

    Exit code 0: all records were delivered. 1: an error; stderr says which records were not.
    """
    try:
        delimiter = unescape(str(options["delimiter"]))
        separator = unescape(str(options["key_separator"] or ""))
    except FormatError as error:
        raise click.UsageError(str(error)) from error
    if not delimiter:
        raise click.UsageError("--delimiter must not be empty")
    if options["as_json"] and separator:
        raise click.UsageError("give --key-separator or --json, not both")
    if options["keep_partitions"] and (not options["as_json"] or partition is not None):
        raise click.UsageError(
            "--keep-partitions needs --json, and cannot be combined with --partition"
        )
    more = _headers(headers)
    settings, config = _settings(connection, compression=compression, acks=acks)
    with connection.open(config) as cluster:
        # Ask now: the first record would wait for max.block.ms before it fails.
        find_or_create_topic(cluster, topic)
        if partition is not None:
            find_partitions(cluster, topic, (partition,))
    with faults_in_flags():
        from tailrace.client.producer import Producer

        # Why records wait is in the producer's log, which has no other reader here.
        logging.basicConfig(level=logging.WARNING, format="tailrace: %(message)s")

        producer = Producer(settings)
    with producer:
        deliveries = _Deliveries()
        records = _records(
            files,
            delimiter=delimiter,
            separator=separator,
            is_json=bool(options["as_json"]),
            keeps_partitions=bool(options["keep_partitions"]),
            # It also bounds the memory for a line that does not end.
            size_max=config.max_request_size,
        )
        try:
            for each in records:
                receipt = producer.send(
                    topic,
                    each.value,
                    each.key,
                    headers=(*each.headers, *more) or None,
                    timestamp=each.timestamp,
                    partition=partition if each.partition is None else each.partition,
                )
                deliveries.add(receipt)
            deliveries.wait()
        except KeyboardInterrupt:
            # Ctrl-C does not wait for delivery.timeout.ms; what was not sent is reported.
            producer.close(0)
            deliveries.wait()
            deliveries.tell()
            raise
        # What was sent before a line that is no record is delivered, and counted.
        except TailraceError as error:
            say(str(error))
            deliveries.wait()
            deliveries.tell()
            sys.exit(_EXIT_UNDELIVERED)
    deliveries.tell()
    if deliveries.failed:
        sys.exit(_EXIT_UNDELIVERED)


class _Deliveries:
    """The outcomes of records in their order, and what is printed of them."""

    def __init__(self) -> None:
        self.sent = 0
        self.failed = 0
        self._waiting: deque[tuple[int, Receipt]] = deque()
        # Not while lines are typed: the counter would be drawn over them.
        self._is_shown = sys.stderr.isatty() and not sys.stdin.isatty()
        self._next_shown = time.monotonic() + PROGRESS_INTERVAL_S
        self._width = 0

    def add(self, receipt: "Receipt") -> None:
        """Note a record that was just sent."""
        self.sent += 1
        self._waiting.append((self.sent, receipt))
        # In their order, so that memory is bounded by what is in flight and errors have line order.
        while self._waiting and self._waiting[0][1].done():
            self._settle()
        self._show()

    def wait(self) -> None:
        """Wait for all outcomes, which the producer's delivery.timeout.ms bounds."""
        while self._waiting:
            self._settle()
            self._show()

    def tell(self) -> None:
        """Say how it ended, if that is not as it should be or somebody is watching."""
        self._show(is_last=True)
        if self.failed > FAILURES_SHOWN_MAX:
            say(f"and {self.failed - FAILURES_SHOWN_MAX} more records")
        if self.failed:
            say(f"{self.failed} of {self.sent} records were not delivered")

    def _settle(self) -> None:
        number, receipt = self._waiting.popleft()
        error = receipt.exception()
        if error is not None:
            self.failed += 1
            if self.failed <= FAILURES_SHOWN_MAX:
                say(f"not delivered: record {number}: {error}")

    def _show(self, *, is_last: bool = False) -> None:
        now = time.monotonic()
        if not self._is_shown or (now < self._next_shown and not is_last):
            return
        self._next_shown = now + PROGRESS_INTERVAL_S
        delivered = self.sent - len(self._waiting) - self.failed
        text = f"{self.sent} records sent, {delivered} delivered"
        click.echo(f"\r{text.ljust(self._width)}", err=True, nl=is_last)
        self._width = len(text)


def _settings(
    connection: Connection, *, compression: str, acks: str
) -> "tuple[dict[str, str], ProducerConfig]":
    """The settings of the producer, as they are given and checked."""
    from tailrace.client.producer.config import parse_producer_config

    settings = {
        "bootstrap.servers": connection.bootstrap,
        "client.id": "tailrace-cli",
        "compression.type": compression,
        "acks": acks,
        # Last: --option can give any setting of the producer, also one that has a flag.
        **connection.settings,
    }
    with faults_in_flags():
        return settings, parse_producer_config(settings, {})


def _headers(given: Sequence[str]) -> tuple[tuple[str, bytes], ...]:
    """Headers by their words NAME=VALUE, whose value is what was typed, byte for byte."""
    pairs = []
    faults = []
    for each in given:
        name, equals, value = each.partition("=")
        if equals:
            pairs.append((name, typed(value)))
        else:
            faults.append(f"--header: {each!r} is not NAME=VALUE")
    if faults:
        raise click.UsageError("; ".join(faults))
    return tuple(pairs)


def _records(
    files: Sequence[Path],
    *,
    delimiter: bytes,
    separator: bytes,
    is_json: bool,
    keeps_partitions: bool,
    size_max: int,
) -> Iterator[InputRecord]:
    """The records of all inputs, one after the other; - is stdin."""
    number = 0
    if is_json:
        size_max = JSON_GROWTH * size_max
    for stream in _inputs(files):
        for line in read_lines(stream, delimiter, size_max=size_max):
            number += 1
            yield (
                json_record(line, number, keeps_partition=keeps_partitions)
                if is_json
                # An empty line is a record, as in kafka-console-producer; kcat skips it.
                else plain_record(line, separator)
            )


def _inputs(files: Sequence[Path]) -> Iterator[BinaryIO]:
    """Stdin, or the files in turn, each open while it is read.

    Raises:
        FatalError: a file cannot be opened.
    """
    for path in files or (Path("-"),):
        if str(path) == "-":
            yield sys.stdin.buffer
            continue
        try:
            stream = path.open("rb")
        except OSError as error:
            raise FatalError(f"cannot read {path}: {error.strerror}") from error
        with stream:
            yield stream
