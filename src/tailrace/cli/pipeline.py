"""`tailrace pipeline`: whole logs through Spark, on this machine or on a cluster."""

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from tailrace.cli.arguments import BOOTSTRAP, advising, assigned, log_directory, split_directories
from tailrace.cli.flags import errors_in_flags
from tailrace.errors import DirectoryError, counted
from tailrace.runtime.extras import check_extra

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.spark.jobs.archive import ArchiveSettings, ArchiveSummary

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])

_EXIT_FINDINGS = 1
_EXIT_UNVERIFIED = 2

# The source refuses the first without the second: nothing is left out without a report of it.
_SKIPS = "--option onCorruption=skip --option corruptionReport=DIR"


def _options(*options: Callable[[FunctionT], FunctionT]) -> Callable[[FunctionT], FunctionT]:
    """Options that several commands have, as one decorator."""

    def add(command: FunctionT) -> FunctionT:
        # Decorators apply from the bottom up; help shows the options in the order of the list.
        for option in reversed(options):
            command = option(command)
        return command

    return add


_reads = _options(
    click.option(
        *BOOTSTRAP, metavar="HOST:PORT",
        help="Read from this cluster: its bootstrap servers, separated by commas.",
    ),
    click.option("--data", metavar="DIR", help="Or read from log directories. Several: A,B."),
    click.option(
        "--topic", metavar="T", multiple=True, help="A topic to read; repeatable.",
        # Spark's option `subscribe` has topics with commas between.
        callback=lambda _context, _parameter, topics: ",".join(topics) or None,
    ),
    click.option(
        "--option", "options", multiple=True, callback=assigned, metavar="NAME=VALUE",
        help="An option of the Spark source, such as startingOffsets=earliest; repeatable.",
    ),
)  # fmt: skip


def _on_spark(command: FunctionT) -> FunctionT:
    """The option of all commands here; before they begin, the packages are looked for."""

    @wraps(command)
    def checked(*arguments: object, **options: object) -> object:
        # First, so that a missing package is reported before arguments are checked.
        check_extra("spark", "tailrace pipeline")
        return command(*arguments, **options)

    # A session needs a master, and all cores of this machine need no cluster.
    master = click.option(
        "--master",
        default="local[*]",
        show_default=True,
        help="The Spark master, such as local[4] or spark://HOST:PORT.",
    )
    return cast("FunctionT", master(checked))


@click.group()
def pipeline() -> None:
    """Run Spark jobs over whole topics, on this machine or on a Spark cluster.

    Needs the extra: pip install "tailrace[spark]".
    """


@pipeline.command()
@_reads
@click.option("--to", "target", metavar="DIR", required=True, help="The archive: a path or URI.")
@click.option(
    "--by", type=click.Choice(["date", "hour"]), default="date", show_default=True,
    help="Partition the files by date or hour of the record timestamps (UTC).",
)  # fmt: skip
@click.option(
    "--codec", type=click.Choice(["zstd", "snappy", "gzip", "lz4", "none"]), default="zstd",
    show_default=True, help="Compression of the Parquet files.",
)  # fmt: skip
@click.option(
    "--schema", metavar="DDL|JSON|infer",
    help="Parse values as JSON objects with this schema; their fields become columns. infer: "
    "derive it from the data.",
)  # fmt: skip
@click.option(
    "--format", "table_format", type=click.Choice(["parquet", "delta", "iceberg"]),
    default="parquet", show_default=True, help="Plain Parquet files, or a Delta or Iceberg table.",
)  # fmt: skip
@click.option(
    "--table-option", "table_options", multiple=True, callback=assigned,
    metavar="NAME=VALUE",
    help="An option of the Delta table's storage or of the Iceberg catalog; repeatable.",
)  # fmt: skip
@click.option("--follow", is_flag=True, help="Keep archiving new records until Ctrl-C.")
@click.option(
    "--verify", is_flag=True, help="Compare the archive with the logs, and write nothing."
)
@_on_spark
@advising(_SKIPS)
@errors_in_flags()
def archive(
    *, target: str, follow: bool, verify: bool, master: str, options: dict[str, str],
    bootstrap: str | None, data: str | None, topic: str | None,
    **given: Any,  # noqa: ANN401 - those of `_archive_settings`
) -> None:  # fmt: skip
    """Archive topics to Parquet files without loss.

    Each run continues where the last one ended. With --format delta or iceberg the files form a
    table; this needs the extra tailrace[delta] or tailrace[iceberg]. An Iceberg table uses its own
    catalog inside the archive, or the catalog given by --table-option; its name in that catalog is
    --table-option table=NAMESPACE.NAME.

    With --verify nothing is written: records that are missing, duplicated or changed are printed.
    Without --bootstrap and --data the archive is compared with its manifest only.

    If retention has deleted records before they were archived, a warning says so on stderr, and
    the summary has the number of offsets.

    Exit code 0: archived, or verified without findings. 1: an error, or findings.
    """
    from tailrace.spark.jobs.archive import check_archive, check_arguments
    from tailrace.spark.jobs.verify_archive import check_verification

    settings = _archive_settings(**given)
    options = _source_options(bootstrap=bootstrap, data=data, topic=topic) | options
    if follow and verify:
        raise click.UsageError("give --follow or --verify, not both")
    # A broker that does not answer takes some seconds; without this line the command seems to hang.
    _say_broker(options)
    if verify:
        parsed = check_arguments(options, target, settings) if options else None
        check_verification(parsed, target, table_options=settings.table_options)
    else:
        check_archive(check_arguments(options, target, settings), target, settings)
    # All arguments are checked before: Spark takes seconds to start.
    spark = _start_spark(master)
    if verify:
        _verify(spark, options or None, target, table_options=settings.table_options)
    elif follow:
        _follow(spark, options, target, settings=settings)
    else:
        _archive(spark, options, target, settings=settings)


@pipeline.command()
@click.option("--data", metavar="DIR", required=True, help="Log directories. Several: A,B.")
@click.option(
    "--compare", "replica", metavar="DIR", help="Compare with the replicas in this directory."
)
@click.option(
    "--html",
    "page",
    type=click.Path(dir_okay=False, writable=True),
    help="Write the report to this HTML file.",
)
@_on_spark
def audit(*, data: str, replica: str | None, page: str | None, master: str) -> None:
    """Verify every byte of log directories on all cores.

    Checks what `tailrace log verify` checks. With --compare each partition is also compared with
    its replica in another directory: log start offset, log end offset and every batch. Partitions
    that only one directory has are skipped.

    Exit code 0: clean, and replicas are equal. 1: errors, warnings or differences; a lagging
    follower counts as a difference, and is reported with the number of records that it lacks.
    2: no damage was found, but some files could not be read.
    """
    from tailrace.spark.jobs.audit import audit as audit_directories
    from tailrace.spark.jobs.audit import check_directories, compare, replicas_told
    from tailrace.spark.jobs.pages import audit_page

    directories = split_directories(data)
    if replica is not None and len(directories) != 1:
        raise click.UsageError("--compare takes exactly one --data DIR")
    try:
        check_directories(directories if replica is None else (*directories, replica))
        spark = _start_spark(master)
        with _progress_bar("auditing") as step:
            report = audit_directories(spark, directories, progress=step)
        compared = [] if replica is None else compare(spark, directories[0], replica)
    # As in `log verify`: a directory that cannot be read is not clean.
    except DirectoryError as error:
        click.echo(f"tailrace: {error}", err=True)
        sys.exit(_EXIT_UNVERIFIED)
    for found in report.findings:
        click.echo(str(found.finding))
    different = [each for each in compared if each.comparison.differences]
    for each in different:
        for difference in each.comparison.differences:
            click.echo(f"different: {each.partition}: {difference}")
    if page is not None:
        Path(page).write_text(audit_page(report, compared), encoding="utf-8")
    findings = ", ".join(f"{count} {each.value}" for each, count in report.counts.items() if count)
    replicas = f"; {replicas_told(compared)}" if compared else ""
    click.echo(
        f"{counted(len(report.partitions), 'partition')}, {report.size} bytes of log, "
        f"{report.seconds:.1f} s, {_whole_time()}: "
        f"{findings or ('no findings' if different else 'clean')}{replicas}"
    )
    sys.exit(_EXIT_FINDINGS if different else report.exit_code)


@pipeline.command()
def prepare() -> None:
    """Make sessions of Spark start in half of the time, in this environment.

    Writes an archive of the classes that Spark's JVM loads into the user's cache: once, a minute
    and 200 MB. Sessions that the commands here and tailrace.spark.session start use it from then
    on. It takes a Java 17 to 23 that is not cut down, as distributions have it.
    """
    check_extra("spark", "tailrace pipeline")
    from tailrace.spark.prepare import prepare as write

    _say("running typical jobs; it takes about a minute")
    archive = write()
    click.echo(f"{archive}, {archive.stat().st_size} bytes; sessions use it from now on")


@pipeline.command()
@log_directory
@click.option(
    "--topic", "topics", metavar="T", multiple=True,
    help="A topic to compact; repeatable. Default: all topics with cleanup.policy=compact.",
)  # fmt: skip
@click.option(
    "--set", "settings", metavar="NAME=VALUE", multiple=True, callback=assigned,
    help="A topic config that overrides the stored one, such as min.cleanable.dirty.ratio=0; "
    "repeatable.",
)  # fmt: skip
@_on_spark
def compact(
    *, directory: str, topics: tuple[str, ...], settings: dict[str, str], master: str
) -> None:
    """Compact topics of a stopped broker's log directory.

    The result is that of a broker's log cleaner, but the keys need not fit in one machine's memory.
    """
    from tailrace.runtime.files import DiskFiles
    from tailrace.spark.jobs.compact import choose_configs
    from tailrace.spark.jobs.compact import compact as compact_topics

    chosen = topics or None
    # Before Spark, which takes seconds to start: a wrong topic or config is an error at once.
    choose_configs(DiskFiles(), directory, topics=chosen, settings=settings)
    spark = _start_spark(master)
    with _progress_bar("compacting") as step:
        summary = compact_topics(spark, directory, topics=chosen, settings=settings, progress=step)
    for each in summary.partitions:
        click.echo(
            f"{each.partition}: clean up to offset {each.cleaned_to}; {each.bytes_before} bytes to "
            f"{each.bytes_after}, {each.records_before} records to {each.records_after}"
        )
    click.echo(
        f"{counted(len(summary.partitions), 'partition')} compacted, "
        f"{summary.bytes_before} bytes to {summary.bytes_after}; "
        f"{summary.seconds:.1f} s, {_whole_time()}"
    )


@pipeline.command()
@_reads
@click.option(
    "--html",
    "page",
    type=click.Path(dir_okay=False, writable=True),
    help="Write the report to this HTML file.",
)
@_on_spark
@advising(_SKIPS)
@errors_in_flags()
def profile(*, page: str | None, options: dict[str, str], master: str, **place: str | None) -> None:
    """Profile topics: sizes, rates, keys, timestamps, compression."""
    from tailrace.spark.jobs.pages import profile_lines, profile_page
    from tailrace.spark.jobs.profile import plan_profile, profile_topics
    from tailrace.spark.options import parse_options

    options = _source_options(**place) | options
    _say_broker(options)
    plan_profile(parse_options(options))
    spark = _start_spark(master)
    with _progress_bar("profiling") as step:
        found = profile_topics(spark, options, progress=step)
    if page is not None:
        Path(page).write_text(profile_page(found), encoding="utf-8")
    for line in profile_lines(found):
        click.echo(line)


@pipeline.command()
@click.argument("sql")
@click.option("--archive", metavar="DIR", required=True, help="The archive: a path or URI.")
@_reads
@click.option(
    "--rows", type=click.IntRange(1), default=20,
    show_default=True, help="Print at most this number of rows."
)  # fmt: skip
@_on_spark
@advising(_SKIPS)
@errors_in_flags()
def query(
    *, sql: str, archive: str, rows: int, options: dict[str, str], master: str,
    **place: str | None,
) -> None:  # fmt: skip
    """Query an archive and the live log with SQL, as one table `log`.

    Each record is in the table once: archived offsets are read from the archive, later ones from
    the log.
    """
    from tailrace.spark.jobs.query import check_query
    from tailrace.spark.jobs.query import query as query_topics
    from tailrace.spark.jobs.work import error_of_query
    from tailrace.spark.options import parse_options

    options = _source_options(**place) | options
    _say_broker(options)
    check_query(parse_options(options), archive)
    spark = _start_spark(master)
    # Only after the packages were checked, so that a missing one is a sentence.
    from pyspark.errors import PySparkException

    _say("running the query")
    try:
        # DataFrame.show cuts cells at 20 characters by default, and keys and offsets are copied
        # from here. Its 20 rows are the default of --rows.
        query_topics(spark, archive, options, sql=sql).show(rows, truncate=False)
    except PySparkException as error:
        raise error_of_query(error) from error


@pipeline.command()
@_reads
@click.option("--archive", metavar="DIR", help="Or read from an archive: a path or URI.")
@click.option(
    "--to", "target", metavar="HOST:PORT", required=True, help="Bootstrap servers of the target "
    "cluster."
)  # fmt: skip
# Required: without it a second run could not know what the first has sent.
@click.option(
    "--offset-map", metavar="DIR", required=True,
    help="Directory (a path or URI) for the mapping of source to target offsets, which also "
    "records the progress.",
)  # fmt: skip
@click.option(
    "--rename", "renamed", multiple=True, callback=assigned, metavar="TOPIC=TOPIC",
    help="Write the records of the first topic to the second; repeatable.",
)  # fmt: skip
# The target may have another number of partitions.
@click.option(
    "--keep-partitions", is_flag=True,
    help="Send each record to the partition it had; by default its key decides.",
)  # fmt: skip
@click.option(
    "--target-option", "producer", multiple=True, callback=assigned, metavar="NAME=VALUE",
    help="A producer setting, such as compression.type=zstd; repeatable.",
)  # fmt: skip
@_on_spark
@advising(_SKIPS)
@errors_in_flags()
def replay(
    *, archive: str | None, target: str, offset_map: str, renamed: dict[str, str],
    keep_partitions: bool, options: dict[str, str], producer: dict[str, str], master: str,
    **place: str | None,
) -> None:  # fmt: skip
    """Copy topics or an archive into topics, exactly once.

    Keys, values, headers and timestamps are kept. With the same --offset-map a run continues where
    the last one ended or was killed. The target topics must exist; note that their retention.ms
    applies to the original timestamps.
    """
    from tailrace.spark.jobs.replay import ReplaySettings, check_arguments, check_replay
    from tailrace.spark.jobs.replay import replay as replay_topics

    options = _source_options(**place) | options
    if archive is not None:
        options["archive"] = archive
    producer |= {"bootstrap.servers": target}
    chosen = ReplaySettings(topics=renamed, keeps_partitions=keep_partitions)
    _say_broker({"kafka.bootstrap.servers": target})
    check_replay(check_arguments(options, producer, offset_map=offset_map, settings=chosen), chosen)
    spark = _start_spark(master)
    with _progress_bar("replaying") as step:
        summary = replay_topics(
            spark, options, producer, offset_map=offset_map, settings=chosen, progress=step
        )
    notes = f"; {summary.found} were there already" if summary.found else ""
    notes += f"; {summary.gone} offsets of the source were gone" if summary.gone else ""
    click.echo(
        f"{counted(summary.records, 'record')} in {counted(summary.ranges, 'range')}, "
        f"{summary.bytes} bytes; {summary.seconds:.1f} s, "
        f"{summary.records_per_second} records/s, {_whole_time()}{notes}"
    )


def _source_options(
    *, bootstrap: str | None, data: str | None, topic: str | None
) -> dict[str, str]:
    """The options of the source `tailrace`."""
    several = split_directories(data or "")
    named = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}
    # Spark's own name and form for several paths: a JSON list.
    named |= {"paths": json.dumps(several)} if len(several) > 1 else {"path": data}
    return {name: value for name, value in named.items() if value is not None}


def _say_broker(options: Mapping[str, str]) -> None:
    """Tell which broker is asked next; one that does not answer is asked for some seconds."""
    broker = options.get("kafka.bootstrap.servers")
    if broker is not None:
        _say(f"asking the broker at {broker}")


def _archive_settings(
    *,
    by: str,
    codec: str,
    schema: str | None,
    table_format: str,
    table_options: dict[str, str],
) -> "ArchiveSettings":
    from tailrace.spark.jobs.archive import ArchiveSettings

    return ArchiveSettings(
        by=by,
        codec=codec,
        value_schema=schema,
        format=table_format,
        table_options=table_options,
    )


def _archive(
    spark: "SparkSession", options: Mapping[str, str], target: str, *, settings: "ArchiveSettings"
) -> None:
    from tailrace.spark.jobs.archive import archive as archive_topics

    with _progress_bar("archiving") as step:
        summary = archive_topics(spark, options, target, settings=settings, progress=step)
    click.echo(f"{_summary_line(summary)}; {_whole_time()}")


def _follow(
    spark: "SparkSession", options: Mapping[str, str], target: str, *, settings: "ArchiveSettings"
) -> None:
    """Run until Ctrl-C; the next run takes up what was not committed."""
    from tailrace.spark.jobs.archive import follow_archive

    # A line for each round, since it runs until Ctrl-C.
    for summary in follow_archive(spark, options, target, settings=settings):
        click.echo(_summary_line(summary))


def _verify(
    spark: "SparkSession",
    options: Mapping[str, str] | None,
    target: str,
    *,
    table_options: Mapping[str, str],
) -> None:
    from tailrace.spark.jobs.verify_archive import verify_archive

    with _progress_bar("verifying") as step:
        report = verify_archive(spark, options, target, table_options=table_options, progress=step)
    for finding in report.findings:
        click.echo(str(finding))
    findings = counted(len(report.findings), "finding") if report.findings else "clean"
    compared = f", {report.compared} offsets compared with the log" if options else ""
    ahead = f", {report.ahead} not archived yet" if report.ahead else ""
    click.echo(
        f"{counted(report.rows, 'row')} in {counted(report.files, 'file')}{compared}{ahead}, "
        f"{report.seconds:.1f} s, {_whole_time()}: {findings}"
    )
    if report.findings:
        sys.exit(_EXIT_FINDINGS)


def _summary_line(summary: "ArchiveSummary") -> str:
    rows, files = counted(summary.rows, "row"), counted(summary.files, "file")
    parts = [
        f"{rows} in {files}, {summary.bytes} bytes",
        f"{summary.seconds:.1f} s, {summary.rows_per_second} rows/s",
    ]
    if summary.dead_letters:
        parts.append(f"{summary.dead_letters} dead letters")
    if summary.lost:
        parts.append(f"{summary.lost} offsets were gone before they were archived")
    if summary.never_archived:
        parts.append(f"{summary.never_archived} offsets were gone before the first run")
    return "; ".join(parts)


def _start_spark(master: str) -> "SparkSession":
    """The session of this process; says on stderr that it waits for Spark, if there is none yet.

    Raises:
        FatalError: as `tailrace.spark.session`.
    """
    from tailrace.spark.install import check_pyspark
    from tailrace.spark.session import session

    check_pyspark()
    from pyspark import SparkContext

    # In a notebook or a test there may be a session already, and nothing to wait for.
    if SparkContext._active_spark_context is None:
        _say(f"starting Spark on {master}")
    return session(name="tailrace pipeline", master=master)


def _say(waiting_for: str) -> None:
    """Tell on stderr what the command does next and the user waits for."""
    click.echo(f"tailrace: {waiting_for}", err=True)


def _whole_time() -> str:
    """The seconds since the command began, for the end of a line with those of the job."""
    # From the start of the process: imports and Spark take longer than small jobs.
    began = click.get_current_context().find_root().meta["began"]
    return f"{time.monotonic() - began:.1f} s in all"


@contextmanager
def _progress_bar(label: str) -> Iterator[Callable[[int, int], None] | None]:
    """Takes what is done and what there is; a bar on stderr where that is a terminal."""
    # In a log file each drawing of the bar would be a line.
    if not sys.stderr.isatty():
        yield None
        return
    with click.progressbar(length=1, label=label, file=sys.stderr) as bar:

        def step(done: int, total: int) -> None:
            bar.length = total
            bar.update(done - bar.pos)

        yield step
