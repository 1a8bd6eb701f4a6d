"""`tailrace log export`: records as JSON lines or Parquet, without Spark."""

import click

from tailrace.cli.arguments import advising, log_directory
from tailrace.cli.decoding import DecodingChoice, chosen_decoding, decoded
from tailrace.cli.log_options import (
    FROM_OFFSET,
    FROM_TIME,
    ISOLATION,
    ON_DAMAGE,
    PARTITION,
    SKIPS,
    TO_OFFSET,
    TO_TIME,
    LeftOut,
    progress,
)
from tailrace.errors import FatalError, counted
from tailrace.model import IsolationLevel, TopicPartition
from tailrace.offline.cat import Choice, choose_partitions
from tailrace.offline.export import ExportDecoding, ExportFormat, export_records
from tailrace.reading.directory import find_partitions
from tailrace.runtime.files import DiskFiles, Files
from tailrace.values import replace


@click.command()
@log_directory
@click.argument("topic", metavar="[TOPIC[-PARTITION]]", required=False)
@click.option(
    "--to", required=True, metavar="FILE|DIR",
    help="A file for all records, or a directory (ending in /) that gets a file for each "
    "partition.",
)  # fmt: skip
@click.option(
    "--format", "form", type=click.Choice([each.value for each in ExportFormat]),
    help="json: JSON Lines. Default: parquet if FILE ends in .parquet, else json.",
)  # fmt: skip
@PARTITION
@FROM_OFFSET
@TO_OFFSET
@FROM_TIME
@TO_TIME
@ISOLATION
@ON_DAMAGE
@decoded
@advising(SKIPS)
def export(
    directory: str,
    topic: str | None,
    partition: int | None,
    *,
    to: str,
    form: str | None,
    isolation: str,
    on_damage: str,
    **bounds: int | None,
) -> None:
    """Export records to JSON Lines or Parquet files.

    Parquet needs PyArrow. Without TOPIC all partitions of DIR are exported. Each file is written
    under a temporary name and renamed when it is complete; an existing file is replaced.
    Transaction markers are left out.

    With --value-format the Parquet column `value` is typed by --schema, or by the latest version
    of the registry's subject TOPIC-value.
    """
    decoding = chosen_decoding()
    files = DiskFiles()
    found = find_partitions(files, directory)
    if topic is not None:
        # Also for the progress bar, whose length is the size of these partitions.
        found = replace(found, partitions=choose_partitions(found, topic, partition))
    elif partition is not None:
        raise click.UsageError("--partition needs TOPIC")
    chosen = _format(to, form)
    choice = Choice(key=None, isolation=IsolationLevel[isolation.upper()], **bounds)
    left_out = LeftOut()
    counts = {}
    with progress("exporting", files, found) as step:
        for path, partitions in _targets(files, to, found.partitions, form=chosen).items():
            counts[path] = export_records(
                files,
                partitions,
                choice,
                to=path,
                form=chosen,
                decoding=decoding and _planned(decoding, partitions, form=chosen),
                on_skip=left_out.report if on_damage == "skip" else None,
                progress=step,
            )
    for path, (count, _) in counts.items():
        click.echo(f"{path}: {counted(count, 'record')}")
    # Last, since it ends the process if something is missing from the files.
    left_out.finish(undecoded=sum(each.undecoded for each in counts.values()))


def _format(to: str, form: str | None) -> ExportFormat:
    if form is not None:
        return ExportFormat(form)
    # Only Parquet goes by the name: files of JSON Lines have several suffixes.
    is_parquet = to.endswith(ExportFormat.PARQUET.suffix)
    return ExportFormat.PARQUET if is_parquet else ExportFormat.JSON


def _targets(
    files: Files, to: str, partitions: dict[TopicPartition, str], *, form: ExportFormat
) -> dict[str, dict[TopicPartition, str]]:
    """Assign the partitions to files."""
    # The slash says that a directory is meant, which need not exist yet.
    if not to.endswith("/") and not files.is_directory(to):
        return {to: partitions}
    to = to.rstrip("/") or "/"
    files.make_directory(to)
    return {
        f"{to}/{partition}{form.suffix}": {partition: folder}
        for partition, folder in partitions.items()
    }


def _planned(
    decoding: DecodingChoice, partitions: dict[TopicPartition, str], *, form: ExportFormat
) -> ExportDecoding:
    """The decodings of one file; the types of Parquet are those of the latest schema.

    Raises:
        FatalError: the file would have several topics, whose types would have to be the same.
    """
    if form is ExportFormat.JSON:
        # JSON has no types of columns, so each value may have a schema of its own.
        return ExportDecoding(key=decoding.key, value=decoding.value)
    topics = sorted({each.topic for each in partitions})
    if len(topics) > 1 and decoding.needs_registry:
        raise FatalError(
            f"one Parquet file cannot have the schemas of {len(topics)} topics; name a TOPIC, give "
            "--schema, or export to a directory (--to DIR/)"
        )
    return ExportDecoding(**decoding.with_latest(topics[0] if topics else ""))
