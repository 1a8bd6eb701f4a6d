"""`tailrace log`: a log directory without a broker; only `repair --apply` changes anything."""

import json
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from tailrace.cli.arguments import advising, aligned, assigned, log_directory
from tailrace.cli.decoding import chosen_decoding, decoded
from tailrace.cli.log_compare import compare
from tailrace.cli.log_export import export
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
    log_bytes,
    progress,
)
from tailrace.config.settings import INT64_MAX
from tailrace.errors import CorruptionError, DirectoryError, counted
from tailrace.kernels.showing import Form
from tailrace.model import IsolationLevel
from tailrace.offline.cat import Choice, choose_partitions, show_records
from tailrace.offline.commits import GroupOffset, GroupsFound, find_groups
from tailrace.offline.findings import Cause, Finding, Severity, causes_first
from tailrace.offline.scan import PartitionScan, scan_partition
from tailrace.offline.show import printable
from tailrace.offline.verify import verify as verify_directory
from tailrace.offline.verify import verify_folders
from tailrace.reading.damage import Drop, OnDamage
from tailrace.reading.directory import find_partitions
from tailrace.reading.reader import FolderGoneError
from tailrace.runtime.clock import SystemClock, iso_time
from tailrace.runtime.files import DiskFiles, Files
from tailrace.runtime.memory import keep_large_buffers

if TYPE_CHECKING:
    from tailrace.offline.explain import PartitionReasons
    from tailrace.offline.repair_plan import RepairPlan

# Scripts read these formats: fields are added, and none is renamed.
SCAN_FORMAT = "tailrace.scan/1"
VERIFY_FORMAT = "tailrace.verify/1"
REPAIR_FORMAT = "tailrace.repair/1"
EXPLAIN_FORMAT = "tailrace.explain/1"
GROUPS_FORMAT = "tailrace.groups/1"

_ALL = click.option(
    "--all", "lists_all", is_flag=True,
    help="List each finding by itself, of one rule in one file at most 20.",
)  # fmt: skip

_EXIT_FINDINGS = 1
_EXIT_UNVERIFIED = 2
_HEADINGS = ("partition", "start", "end", "records", "batches", "segments", "bytes", "codecs")
_GROUP_HEADINGS = ("group", "partition", "committed", "log end", "lag", "at", "pending", "metadata")
_GROUP_NUMBERS = (2, 3, 4)


@click.group()
def log() -> None:
    """Read, verify, export and repair log directories, with or without a running broker.

    Only `repair --apply` changes files; all other commands work on a read-only mount. `repair`
    needs the broker stopped.
    """


def _key(_: click.Context, __: click.Parameter, value: str | None) -> bytes | None:
    """The bytes of an option that is hexadecimal digits."""
    try:
        return None if value is None else bytes.fromhex(value.removeprefix("0x"))
    except ValueError as error:
        raise click.BadParameter(
            f"{value!r} is not hexadecimal; give two digits for each byte, such as 0a1b"
        ) from error


@log.command()
@log_directory
@click.option("--json", "as_json", is_flag=True, help="Print JSON Lines: one object per line.")
def scan(directory: str, *, as_json: bool) -> None:
    """List partitions with offsets, sizes, timestamps and codecs.

    Reads only batch headers, so it is quick; `verify` checks every byte.
    """
    files = DiskFiles()
    # kafka-dump-log takes single files, and kafka-log-dirs needs a running broker.
    found = find_partitions(files, directory)
    scans = []
    with progress("scanning", files, found) as step:
        for partition, folder in found.partitions.items():
            # A broker may delete the partition while the directory is read; that is no error.
            with suppress(FolderGoneError):
                scans.append(
                    scan_partition(files, found.path, partition, folder=folder, progress=step)
                )
    if as_json:
        for each in scans:
            click.echo(json.dumps(_scan_object(each)))
        return
    for line in _table(scans):
        click.echo(line)


@log.command()
@log_directory
@click.argument("topic", metavar="TOPIC[-PARTITION]")
@PARTITION
@FROM_OFFSET
@TO_OFFSET
@FROM_TIME
@TO_TIME
@click.option("--key", help="Only records with exactly this key, given as text (UTF-8).")
# Keys in Avro, or of numbers, are bytes that cannot be typed.
@click.option(
    "--key-hex", callback=_key, metavar="HEX",
    help="Only records with exactly this key, given in hexadecimal, such as 0a1b.",
)  # fmt: skip
@ISOLATION
@click.option(
    "--limit", type=click.IntRange(0, INT64_MAX), help="Print at most this number of records."
)
@click.option(
    "--format", "form", type=click.Choice(["text", "json", "hex"]), default="text",
    show_default=True,
    help="text: one readable line per record. json: JSON Lines. hex: keys and values in hex.",
)  # fmt: skip
@ON_DAMAGE
@decoded
@advising(SKIPS)
def cat(
    directory: str,
    topic: str,
    partition: int | None,
    *,
    form: str,
    key: str | None,
    key_hex: bytes | None,
    isolation: str,
    on_damage: str,
    **bounds: int | None,
) -> None:
    """Print records of a topic or partition.

    Records of __consumer_offsets and __cluster_metadata are decoded. Offsets and times are looked
    up in the indexes. The checksum of each batch is verified before its records are printed, so
    records of damaged batches are never shown.
    """
    if key is not None and key_hex is not None:
        raise click.UsageError("give --key or --key-hex, not both")
    decoding = chosen_decoding()
    # Else --value-format would have no effect, without a word.
    if decoding is not None and form == "hex":
        raise click.UsageError(
            "--format hex shows keys and values undecoded; leave it out, or leave out "
            "--key-format and --value-format"
        )
    files = DiskFiles()
    partitions = choose_partitions(find_partitions(files, directory), topic, partition)
    choice = Choice(
        key=key_hex if key is None else key.encode(),
        isolation=IsolationLevel[isolation.upper()],
        **bounds,
    )
    left_out = LeftOut()
    decoder = None if decoding is None else decoding.decoder()
    pages = show_records(
        files,
        partitions,
        choice,
        form=Form[form.upper()],
        on_skip=left_out.report if on_damage == "skip" else None,
        decoder=decoder,
    )
    for page in _one_ahead(pages):
        click.echo(page, nl=False)
    left_out.finish(undecoded=0 if decoder is None else decoder.fault_count)


@log.command()
@log_directory
@_ALL
@click.option("--json", "as_json", is_flag=True, help="Print JSON Lines: one object per finding.")
def verify(directory: str, *, lists_all: bool, as_json: bool) -> None:
    """Check every byte: batches, indexes, snapshots, checkpoints.

    Verifies checksums, records, offsets, producer state, indexes and checkpoint files, and changes
    nothing. Of each partition the damage of its log comes first, and what may follow from it, such
    as wrong index entries, is counted.

    Exit code 0: clean. 1: errors or warnings. 2: no damage was found, but some files could not be
    read.
    """
    # Each segment takes large buffers; without this malloc returns them to the system each time.
    keep_large_buffers()
    files = DiskFiles()
    try:
        found = find_partitions(files, directory)
        total = log_bytes(files, found)
        counts = Counter[Severity]()
        others = 0
        # Printed at once: a large directory takes minutes, and the first finding may be enough.
        with progress("verifying", files, found) as step:
            if as_json or lists_all:
                for finding in verify_directory(files, found, progress=step):
                    counts[finding.severity] += 1
                    click.echo(json.dumps(_finding_object(finding)) if as_json else str(finding))
            else:
                for folder in verify_folders(files, found, progress=step):
                    for cause in causes_first(*folder):
                        counts[cause.finding.severity] += 1
                        others += cause.others.total()
                        for line in _cause_lines(cause):
                            click.echo(line)
    except DirectoryError as error:
        click.echo(f"tailrace: {error}", err=True)
        # Unreadable is not clean: scripts that take 0 for a whole log must not see it.
        sys.exit(_EXIT_UNVERIFIED)
    named = {severity.value: counts[severity] for severity in Severity}
    if as_json:
        summary = {"partitions": len(found.partitions), "bytes": total, "findings": named}
        click.echo(json.dumps({"format": VERIFY_FORMAT, "type": "summary", **summary}))
    else:
        findings = ", ".join(f"{count} {name}" for name, count in named.items() if count) or "clean"
        more = f", and {others} more that may follow" if others else ""
        partitions = counted(len(found.partitions), "partition")
        click.echo(f"{partitions}, {counted(total, 'byte')} of log: {findings}{more}")
    # Damage weighs more than files that could not be read, so 1 comes before 2.
    if counts[Severity.ERROR] or counts[Severity.WARNING]:
        sys.exit(_EXIT_FINDINGS)
    if counts[Severity.UNVERIFIED]:
        sys.exit(_EXIT_UNVERIFIED)


@log.command()
@log_directory
# The plan is the default: what would go is listed before anything changes.
@click.option(
    "--dry-run/--apply", "is_dry", default=True,
    help="--dry-run, the default: print the plan and change nothing. --apply: make the changes.",
)  # fmt: skip
@click.option(
    "--on-damage", type=click.Choice([each.value for each in OnDamage]), default="cut",
    show_default=True,
    help="cut: truncate the log at the damage, as a broker does. skip: remove only the damaged "
    "range and keep the valid batches after it.",
)  # fmt: skip
@click.option(
    "--salvage", metavar="FILE",
    help="Write records that can be parsed from damaged batches to FILE as JSON Lines. Their "
    "checksum failed, so their content is uncertain; they are not put back into the log.",
)  # fmt: skip
@_ALL
@click.option("--json", "as_json", is_flag=True, help="Print JSON Lines: one object per step.")
def repair(
    directory: str,
    *,
    is_dry: bool,
    on_damage: str,
    salvage: str | None,
    lists_all: bool,
    as_json: bool,
) -> None:
    """Repair damaged logs, indexes and checkpoints.

    Prints the plan and changes nothing unless --apply is given. Bytes that are removed from a log
    are kept in quarantine files beside it. Stop the broker first.

    Exit code 0: nothing to repair, or repaired. 1: a dry run found something to repair. 2: not
    everything can be repaired, or the directory is in use.
    """
    # What only this command needs takes a fifth of the time in which all others start.
    from tailrace.offline.repair import apply_repair, lock_directory
    from tailrace.offline.repair_plan import plan_repair

    files = DiskFiles()
    try:
        found = find_partitions(files, directory)
        # A dry run is refused beside a broker too: its plan would soon be wrong.
        lock = lock_directory(files, found.path, is_read_only=is_dry)
        try:
            with progress("examining", files, found) as step:
                plan = plan_repair(files, found, OnDamage(on_damage), progress=step)
            _tell_plan(plan, as_json=as_json, lists_all=lists_all, is_dry=is_dry)
            if is_dry and not as_json and plan.record_counts.set_aside:
                click.echo("to keep the valid records in the log, use --on-damage skip")
            # Before the repair, which moves the damaged bytes away.
            if salvage is not None:
                _salvage(files, plan, to=salvage)
            if not is_dry:
                for cut in apply_repair(files, plan, clock=SystemClock()):
                    click.echo(f"tailrace: also cut: {cut.path} from {cut.position}", err=True)
        finally:
            if lock is not None:
                lock.release()
    except (DirectoryError, CorruptionError) as error:
        click.echo(f"tailrace: {error}", err=True)
        sys.exit(_EXIT_UNVERIFIED)
    # Even after the repair: what is left needs somebody to act.
    if plan.advice:
        sys.exit(_EXIT_UNVERIFIED)
    if is_dry and not plan.is_empty:
        sys.exit(_EXIT_FINDINGS)


@log.command()
@log_directory
@click.option("--topic", help="Explain only the partitions of this topic.")
@click.option(
    "--set", "given", multiple=True, callback=assigned, metavar="NAME=VALUE",
    help="Assume this topic config instead of the stored one, such as retention.ms=60000; "
    "repeatable.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print JSON Lines: one object per line.")
def explain(directory: str, *, topic: str | None, given: dict[str, str], as_json: bool) -> None:
    """Explain why each segment is retained, and what compaction waits for.

    Topic configs are read from the metadata log in DIR; for topics that it does not have, Kafka's
    defaults are assumed.
    """
    from tailrace.offline.explain import explain_partition
    from tailrace.offline.repair import topic_config

    files = DiskFiles()
    found = find_partitions(files, directory)
    # One time for all partitions, so that their reasons can be compared.
    now_ms = SystemClock().now_ms()
    for partition, folder in found.partitions.items():
        if topic not in {None, partition.topic}:
            continue
        config = topic_config(files, found.path, partition, given=given)
        try:
            reasons = explain_partition(
                files, found.path, partition, folder=folder, config=config, now_ms=now_ms
            )
        except FolderGoneError:
            continue  # A broker has just deleted the partition.
        if as_json:
            click.echo(json.dumps(_reasons_object(reasons)))
            continue
        for line in _reasons_lines(reasons):
            click.echo(line)


@log.command()
@log_directory
@click.option("--json", "as_json", is_flag=True, help="Print JSON Lines: one object per line.")
@ON_DAMAGE
@advising(SKIPS)
def groups(directory: str, *, as_json: bool, on_damage: str) -> None:
    """List committed offsets of groups, from __consumer_offsets.

    Reads the __consumer_offsets partitions in DIR. The lag is shown for partitions whose log is in
    DIR too. Offsets of aborted transactions are left out; those of open transactions are pending.
    """
    files = DiskFiles()
    left_out = LeftOut()
    found = find_groups(
        files,
        find_partitions(files, directory),
        on_skip=left_out.report if on_damage == "skip" else None,
    )
    for line in _group_objects(found) if as_json else _group_lines(found):
        click.echo(line)
    left_out.finish()


log.add_command(compare)
log.add_command(export)


def _one_ahead(pages: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the same pages; a thread makes the next one while one is written."""
    # Writing to a pipe releases the GIL, so the next page is made meanwhile.
    with ThreadPoolExecutor(1) as pool:
        following = pool.submit(next, pages, None)
        while (page := following.result()) is not None:
            following = pool.submit(next, pages, None)
            yield page


def _salvage(files: Files, plan: "RepairPlan", *, to: str) -> None:
    # Needed by few runs, so it is imported where it is used.
    from tailrace.offline.salvage import salvage_records

    folders = {each.partition: each.folder for each in plan.partitions if each.drops}
    found = salvage_records(files, folders, to=to)
    click.echo(
        f"salvage: wrote {counted(found.records, 'record')} of "
        f"{counted(found.ranges, 'damaged range')} to {to}, without a valid checksum; "
        f"{found.silent_ranges} of the ranges had no record that can be parsed",
        err=True,
    )


def _tell_plan(plan: "RepairPlan", *, as_json: bool, lists_all: bool, is_dry: bool) -> None:
    """Print the plan: bytes to remove, files to repair, then what cannot be repaired.

    A file with many reasons has one line, unless `lists_all`.
    """
    from tailrace.offline.repair import quarantine_path

    drops = [drop for partition in plan.partitions for drop in partition.drops]
    fixes = [*plan.fixes, *(fix for partition in plan.partitions for fix in partition.fixes)]
    counts = plan.record_counts
    size = sum(drop.size_bytes for drop in drops)
    if as_json:
        for drop in drops:
            _echo_object(REPAIR_FORMAT, "drop", {**asdict(drop), "to": quarantine_path(drop)})
        for fix in fixes:
            # The names of tailrace.repair/1 stay as they are: scripts read them.
            _echo_object(REPAIR_FORMAT, "mend", asdict(fix))
        for kind, sentences in (("advice", plan.advice), ("note", plan.notes)):
            for each in sentences:
                _echo_object(REPAIR_FORMAT, kind, {"path": each.path, "sentence": each.sentence})
        _echo_object(
            REPAIR_FORMAT,
            "summary",
            {"is_dry": is_dry, "drops": len(drops), "bytes": size,
             "records": counts.lost + counts.set_aside,
             "records_rescued": counts.rescued, "records_set_aside": counts.set_aside,
             "records_lost": counts.lost, "unknown_ranges": counts.unknown_ranges,
             "mends": len(fixes), "advice": len(plan.advice)},
        )  # fmt: skip
        return
    for drop in drops:
        click.echo(f"remove: {_drop_line(drop)}")
    paths = {each.path for each in fixes}
    for verb_of, lines in (
        ("repair", [(each.path, f"{each.path}: {each.sentence}") for each in fixes]),
        ("cannot repair", [(each.path, str(each)) for each in plan.advice]),
        ("not changed", [(each.path, str(each)) for each in plan.notes]),
    ):
        by_path = Counter(path for path, _ in lines)
        first = dict(reversed(lines))
        for path, line in lines if lists_all else ((path, first[path]) for path in by_path):
            others = 0 if lists_all else by_path[path] - 1
            click.echo(f"{verb_of}: {line}" + (f"; and {others} more" if others else ""))
    if plan.is_empty:
        click.echo("nothing to repair")
        return
    verb = _verb(is_dry)
    click.echo(
        f"{counted(len(drops), 'range')}, {counted(size, 'byte')} {verb} removed; "
        f"{counted(len(paths), 'file')} {verb} repaired"
    )
    click.echo(
        f"records: {counts.rescued} {verb} rescued from after damage, {counts.set_aside} valid "
        f"ones moved to quarantine, {counts.lost} lost"
        + (
            f", plus an unknown number in {counted(counts.unknown_ranges, 'range')}"
            if counts.unknown_ranges
            else ""
        )
    )


def _verb(is_dry: bool) -> str:  # noqa: FBT001
    return "would be" if is_dry else "are"


def _drop_line(drop: Drop) -> str:
    from tailrace.offline.repair import quarantine_path

    offsets = (
        f"offsets from {drop.offset} on"
        if drop.next_offset is None
        else f"offsets {drop.offset} to {drop.next_offset - 1}"
        if drop.next_offset > drop.offset
        else "no offset"
    )
    records = "an unknown number of" if drop.records is None else str(drop.records)
    sound = f", {drop.sound_records} of them valid" if drop.sound_records else ""
    return (
        f"{drop.path}, position {drop.position}, {drop.size_bytes} bytes, {offsets}, {records} "
        f"records{sound}: {drop.reason}; kept in {quarantine_path(drop)}"
    )


def _echo_object(form: str, kind: str, fields: dict[str, object]) -> None:
    click.echo(json.dumps({"format": form, "type": kind, **fields}))


def _reasons_object(reasons: "PartitionReasons") -> dict[str, object]:
    fields = asdict(reasons)
    del fields["partition"]
    topic, number = reasons.partition
    return {"format": EXPLAIN_FORMAT, "topic": topic, "partition": number, **fields}


def _reasons_lines(reasons: "PartitionReasons") -> Iterator[str]:
    yield (
        f"{reasons.partition}: log start {reasons.log_start_offset}, last stable "
        f"{reasons.last_stable_offset}, high watermark {reasons.high_watermark}, "
        f"end {reasons.log_end_offset}"
    )
    widths = [max(len(str(n)) for n in column) for column in zip(
        *((each.base_offset, each.size_bytes) for each in reasons.segments), strict=True
    )]  # fmt: skip
    for each in reasons.segments:
        base, size = str(each.base_offset).rjust(widths[0]), str(each.size_bytes).rjust(widths[1])
        yield f"  segment {base}  {size} bytes  {iso_time(each.timestamp_ms)}  {each.sentence}"
    state = reasons.compaction
    if state is not None:
        yield (
            f"  compaction: first dirty offset {state.first_dirty_offset}, first uncleanable "
            f"{state.first_uncleanable_offset}: {state.sentence}"
        )


def _scan_object(scan: PartitionScan) -> dict[str, object]:
    return {
        "format": SCAN_FORMAT,
        "topic": scan.partition.topic,
        "partition": scan.partition.partition,
        "start_offset": scan.start_offset,
        "end_offset": scan.end_offset,
        "oldest_timestamp": scan.oldest_timestamp,
        "newest_timestamp": scan.newest_timestamp,
        "segments": scan.segments,
        "bytes": scan.bytes,
        "batches": scan.batches,
        "records": scan.records,
        "codecs": dict(scan.codecs),
        "tail_bytes": scan.tail_bytes,
        "damage": scan.damage,
    }


def _cause_lines(cause: Cause) -> Iterator[str]:
    yield str(cause.finding)
    if not cause.others:
        return
    if set(cause.others) == {cause.finding.rule}:
        yield f"  and {cause.others.total()} more of this rule in this file; see --all"
        return
    rules = ", ".join(f"{count} {rule.value}" for rule, count in cause.others.items())
    yield f"  {cause.others.total()} more may follow from it ({rules}); see --all"


def _finding_object(finding: Finding) -> dict[str, object]:
    return {
        "format": VERIFY_FORMAT,
        "type": "finding",
        "severity": finding.severity.value,
        "rule": finding.rule.value,
        "path": finding.path,
        "position": finding.position,
        "offset": finding.offset,
        "sentence": finding.sentence,
    }


def _table(scans: list[PartitionScan]) -> Iterator[str]:
    rows: list[tuple[str, ...]] = [(*_HEADINGS, "oldest", "newest")]
    rows += [
        (
            str(each.partition),
            *map(str, (each.start_offset, each.end_offset, each.records, each.batches)),
            *map(str, (each.segments, each.bytes)),
            ",".join(sorted(each.codecs)) or "-",
            *map(_time, (each.oldest_timestamp, each.newest_timestamp)),
        )
        for each in scans
    ]
    yield from aligned(rows, right=range(1, 7))
    for each in scans:
        if each.tail_bytes:
            yield (
                f"{each.partition}: {each.tail_bytes} bytes after the last whole batch: a broker "
                "is appending, or an append was torn"
            )
        for sentence in each.damage:
            yield f"{each.partition}: damaged: {sentence}"


def _time(timestamp_ms: int | None) -> str:
    return "-" if timestamp_ms is None else iso_time(timestamp_ms)


# -- groups ----------------------------------------------------------------------------------


def _group_objects(found: GroupsFound) -> Iterator[str]:
    for each in found.offsets:
        yield _group_object("offset", _group_fields(each))
    for name, (version, group) in sorted(found.groups.items()):
        fields: dict[str, object] = {
            "group": name,
            "protocol_type": group.protocol_type,
            "generation": group.generation,
            "protocol": group.protocol,
            "members": len(group.members),
            "state_timestamp": group.current_state_timestamp if version >= 2 else None,
        }
        yield _group_object("group", fields)
    names = {each.group for each in found.offsets} | found.groups.keys()
    yield _group_object(
        "summary", {"groups": len(names), "unknown": dict(sorted(found.unknown.items()))}
    )


def _group_object(kind: str, fields: dict[str, object]) -> str:
    # Names of groups are UTF-8. Escaped, they could not be found with grep.
    return json.dumps({"format": GROUPS_FORMAT, "type": kind, **fields}, ensure_ascii=False)


def _group_fields(each: GroupOffset) -> dict[str, object]:
    version, commit = each.committed or (0, None)
    return {
        "group": each.group,
        "topic": each.partition.topic,
        "partition": each.partition.partition,
        "committed_offset": each.committed_offset,
        # Version 3 of the record added the epoch.
        "leader_epoch": None if commit is None or version < 3 else commit.leader_epoch,
        "metadata": None if commit is None else commit.metadata,
        "commit_timestamp": None if commit is None else commit.commit_timestamp,
        # Only version 1 has a time of expiry.
        "expire_timestamp": None if commit is None or version != 1 else commit.expire_timestamp,
        "log_end_offset": each.log_end_offset,
        "lag": each.lag,
        "pending": [
            {
                # A commit of -1 means no offset.
                "offset": None if pending.offset < 0 else pending.offset,
                "metadata": pending.metadata,
                "commit_timestamp": pending.commit_timestamp,
            }
            for _, pending in each.pending
        ],
    }


def _group_lines(found: GroupsFound) -> Iterator[str]:
    rows = [_GROUP_HEADINGS, *map(_group_row, found.offsets)]
    # Groups may have members and no commit yet.
    silent = found.groups.keys() - {each.group for each in found.offsets}
    rows += [(printable(name), *"-" * (len(_GROUP_HEADINGS) - 1)) for name in sorted(silent)]
    yield from aligned(rows, right=_GROUP_NUMBERS)
    for what, count in sorted(found.unknown.items()):
        yield f"not read: {counted(count, 'record')}: {what}"


def _group_row(each: GroupOffset) -> tuple[str, ...]:
    at, metadata = "-", ""
    if each.committed is not None:
        commit = each.committed.value
        at = iso_time(commit.commit_timestamp)
        metadata = printable(commit.metadata)
    return (
        printable(each.group),
        printable(str(each.partition)),
        "-" if each.committed_offset is None else str(each.committed_offset),
        "-" if each.log_end_offset is None else str(each.log_end_offset),
        "-" if each.lag is None else str(each.lag),
        at,
        ",".join(str(pending.offset) for _, pending in each.pending if pending.offset >= 0) or "-",
        metadata,
    )
