"""The pages of reports: the findings of an audit with a map of each log, and profiles of topics."""

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Final

from tailrace.errors import counted
from tailrace.offline.findings import Finding, Severity
from tailrace.offline.verify import PartitionFiles
from tailrace.spark.jobs import report_html as html
from tailrace.spark.jobs.audit import AuditReport, ComparedPartition, replicas_told
from tailrace.spark.jobs.profile import LogProfile, Profile
from tailrace.spark.jobs.report_html import (
    BYTES,
    COUNTS,
    WIDTH,
    Bars,
    Columns,
    LogMap,
    Mark,
    Piece,
    bars,
    columns,
    moment,
    render,
    size,
    ticks,
)
from tailrace.spark.jobs.sketches import DISTINCT_ERROR, TimeHistogram
from tailrace.storage import names

_PIECES_MAX: Final = 200
"""Pieces of a map; neighbouring segments share one where there are more."""
_MARK_WIDTH: Final = 3
_FINDINGS_MAX: Final = 2000
_LOGS_MAX: Final = 500
"""Partitions that are drawn: those with the worst findings first."""

_RANK: Final = (Severity.ERROR, Severity.WARNING, Severity.UNVERIFIED, Severity.INFO)


def audit_page(report: AuditReport, compared: Sequence[ComparedPartition] = ()) -> str:
    """An HTML page of an audit that needs no other file."""
    counts = report.counts
    severities = [f"{counts[each]} {each.value}" for each in _RANK if counts[each]]
    is_same = not any(each.comparison.differences for each in compared)
    totals: list[tuple[str, object]] = [
        ("partitions", len(report.partitions)),
        ("segments", sum(len(files.segments) for _, files in report.partitions)),
        ("bytes of log", size(report.size)),
        ("per second", size(report.size / max(report.seconds, 1e-3))),
        ("findings", ", ".join(severities) or ("none: clean" if is_same else "none")),
    ]
    if compared:
        totals.append(("replicas", replicas_told(compared)))
    logs = _logs(report)
    return render(
        "audit.html",
        title="Audit",
        subject=", ".join(report.directories),
        totals=totals,
        severities=[each.value for each in _RANK],
        logs=logs,
        undrawn=len(report.partitions) - len(logs),
        findings=_findings(report),
        differences=[
            (str(each.partition), found.kind.value, found.offset, found.next_offset, str(found))
            for each in compared
            for found in each.comparison.differences
        ],
        compared=_compared(compared),
        rows_max=_FINDINGS_MAX,
    )


def _findings(report: AuditReport) -> list[tuple[object, ...]]:
    ordered = sorted(report.findings, key=lambda each: _RANK.index(each.finding.severity))
    return [
        (
            each.finding.severity.value,
            each.finding.rule.value,
            None if each.partition is None else str(each.partition),
            each.finding.path,
            each.finding.position,
            each.finding.offset,
            each.finding.sentence,
        )
        for each in ordered
    ]


def _compared(compared: Sequence[ComparedPartition]) -> list[tuple[object, ...]]:
    return [
        (
            str(each.partition),
            each.comparison.start,
            each.comparison.limit,
            each.comparison.batches,
            size(each.comparison.bytes),
            each.comparison.counts.total() or "none: the same",
        )
        for each in compared
    ]


def _logs(report: AuditReport) -> list[tuple[str, LogMap]]:
    """The map of each partition below its heading."""
    by_folder: dict[str, list[Finding]] = defaultdict(list)
    for each in report.findings:
        by_folder[os.path.dirname(each.finding.path)].append(each.finding)

    def rank(files: PartitionFiles) -> int:
        found = (_RANK.index(each.severity) for each in by_folder[files.folder])
        return min(found, default=len(_RANK))

    ordered = sorted(report.partitions, key=lambda each: rank(each[1]))
    logs = []
    for partition, files in ordered[:_LOGS_MAX]:
        found = by_folder[files.folder]
        state = _RANK[rank(files)].value if found else "sound"
        segments = counted(len(files.segments), "segment")
        heading = f"{partition}: {segments}, {size(files.size)}, {state}"
        logs.append((heading, _map(files, found)))
    return logs


def _map(files: PartitionFiles, found: Iterable[Finding]) -> LogMap:
    whole = max(files.size, 1)
    starts: dict[int, int] = dict(
        zip(
            (each.base_offset for each in files.segments),
            accumulate((each.size for each in files.segments), initial=0),
            strict=False,
        )
    )
    marks: dict[int, list[Finding]] = defaultdict(list)
    of_files: dict[int, Severity] = {}
    for each in sorted(found, key=lambda each: -_RANK.index(each.severity)):
        parsed = names.parse_segment_file_name(os.path.basename(each.path))
        if parsed is None or parsed[0] not in starts:
            continue
        base_offset, suffix = parsed
        if each.position is None or suffix != names.LOG_SUFFIX:
            of_files[base_offset] = each.severity
        else:
            place = WIDTH * (starts[base_offset] + each.position) / whole
            marks[min(round(place), WIDTH - _MARK_WIDTH)].append(each)
    first = files.segments[0].base_offset if files.segments else 0
    return LogMap(
        _pieces(files, starts, of_files),
        [_mark(at, here) for at, here in marks.items()],
        ticks(files.size, BYTES, start=0, length=WIDTH),
        f"position in the log, in bytes from offset {first} on",
    )


def _mark(at: int, found: Sequence[Finding]) -> Mark:
    """The mark of findings that share a place; the last one is the worst."""
    worst = found[-1]
    offset = "" if worst.offset is None else f", offset {worst.offset}"
    more = f"; and {len(found) - 1} more" if len(found) > 1 else ""
    name = os.path.basename(worst.path)
    text = f"{name}, position {worst.position}{offset}: {worst.sentence}{more}"
    return Mark(at, text, worst.severity.value)


def _pieces(
    files: PartitionFiles, starts: dict[int, int], of_files: dict[int, Severity]
) -> list[Piece]:
    whole = max(files.size, 1)
    step = -(-len(files.segments) // _PIECES_MAX) or 1
    pieces = []
    for number in range(0, len(files.segments), step):
        group = files.segments[number : number + step]
        first = group[0].base_offset
        group_size = sum(each.size for each in group)
        found = [of_files[each.base_offset] for each in group if each.base_offset in of_files]
        pieces.append(
            Piece(
                round(WIDTH * starts[first] / whole, 2),
                # Empty segments are there too.
                round(max(WIDTH * group_size / whole - 1, 0.5), 2),
                f"from offset {first}, {size(group_size)}",
                min(found, key=_RANK.index).value if found else None,
            )
        )
    return pieces


_TOPICS_MAX: Final = 200
"""Topics with charts; the largest come first, and the table has all."""
_ROWS_MAX: Final = 5000
_HITTERS_SHOWN: Final = 20
_COLUMNS_MAX: Final = 200
"""Bars of a chart over time; buckets share a bar where there are more."""
_SHOWN_BYTES: Final = 60
"""Bytes of a key that the page shows."""

_UNITS: Final = {60_000: "minute", 3_600_000: "hour", 86_400_000: "day"}


def profile_page(profile: Profile) -> str:
    """An HTML page of a profile that needs no other file."""
    topics = profile.topics()
    ordered = sorted(topics.items(), key=lambda each: -each[1].counters.stored_bytes)
    drawn = ordered[:_TOPICS_MAX]
    return html.render(
        "profile.html",
        title="Profile",
        subject=profile.source,
        totals=[
            ("topics", len(topics)),
            ("partitions", len(profile.partitions)),
            ("records", sum(each.counters.records for each in topics.values())),
            ("stored", html.size(sum(each.counters.stored_bytes for each in topics.values()))),
            ("seconds", f"{profile.seconds:.1f}"),
        ],
        by_size=bars(
            [
                (name, each.counters.stored_bytes, html.size(each.counters.stored_bytes))
                for name, each in drawn
            ],
            axis="bytes stored",
            quantity=BYTES,
        ),
        partitions=_partitions(profile),
        topics=[_topic(name, each, profile) for name, each in drawn],
        rows_max=_ROWS_MAX,
    )


def profile_lines(profile: Profile) -> Iterator[str]:
    """A line of plain text for each topic, the largest first."""
    ordered = sorted(profile.topics().items(), key=lambda each: -each[1].counters.stored_bytes)
    for name, each in ordered:
        counters = each.counters
        ratio = counters.content_bytes / max(counters.stored_bytes, 1)
        yield (
            f"{name}: {counters.records} records in {counters.batches} batches, "
            f"{counters.stored_bytes} bytes stored, {ratio:.2f} bytes of content for each; "
            f"{'' if each.keys.is_exact else 'about '}{each.keys.count()} keys, "
            f"{counters.null_keys} records without one, {counters.tombstones} tombstones, "
            f"{counters.out_of_order} out of order; {moment(each.oldest)} to {moment(each.newest)}"
        )


def _partitions(profile: Profile) -> list[tuple[object, ...]]:
    return [
        (
            str(partition),
            each.counters.records,
            html.size(each.counters.stored_bytes),
            _distinct(each),
            html.share(each.superseded, each.counters.records),
            each.counters.tombstones,
            html.share(each.counters.out_of_order, each.counters.records),
            moment(each.oldest),
            moment(each.newest),
            each.counters.damaged,
        )
        for partition, each in profile.partitions.items()
    ]


def _topic(name: str, found: LogProfile, profile: Profile) -> dict[str, object]:
    return {
        "name": name,
        "facts": _facts(
            found,
            superseded=sum(
                each.superseded
                for partition, each in profile.partitions.items()
                if partition.topic == name
            ),
        ),
        "rates": _rates(found.times),
        "sizes": _sizes(found),
        "codecs": _codecs(found),
        "hitters": _hitters(found),
        "hitters_error": found.hitters.error,
    }


def _facts(found: LogProfile, *, superseded: int) -> list[tuple[str, object]]:
    counters = found.counters
    records = counters.records
    return [
        ("records", records),
        ("batches", counters.batches),
        ("records per batch", f"{records / max(counters.batches, 1):.1f}"),
        ("stored", html.size(counters.stored_bytes)),
        ("keys and values", html.size(counters.content_bytes)),
        ("distinct keys", _distinct(found)),
        ("superseded", html.share(superseded, records)),
        ("without a key", html.share(counters.null_keys, records)),
        ("tombstones", html.share(counters.tombstones, records)),
        ("oldest", moment(found.oldest)),
        ("newest", moment(found.newest)),
        ("out of order", html.share(counters.out_of_order, records)),
        ("without a time", counters.without_time),
        ("in the future", counters.in_future),
        ("control batches", counters.control_batches),
        ("transactional batches", counters.transactional_batches),
    ]


def _rates(times: TimeHistogram) -> list[tuple[str, Columns]]:
    buckets = times.buckets()
    if not buckets:
        return []
    width = times.width_ms
    first = buckets[0].start_ms
    # Stretches without records are drawn too.
    span = (buckets[-1].start_ms - first) // width + 1
    step = -(-span // _COLUMNS_MAX)
    records, size = ([0] * -(-span // step) for _ in range(2))
    for each in buckets:
        number = (each.start_ms - first) // width // step
        records[number] += each.records
        size[number] += each.bytes
    unit = _UNITS.get(width, f"{width // 86_400_000} day")
    unit = unit if step == 1 else f"{step} {unit}s"
    return [
        (
            f"{name} over time",
            columns(
                values,
                start_ms=first,
                step_ms=step * width,
                axis=f"{name.lower()} per {unit}",
                quantity=quantity,
            ),
        )
        for name, values, quantity in (("Records", records, COUNTS), ("Bytes", size, BYTES))
    ]


def _sizes(found: LogProfile) -> Bars:
    classes = found.size_classes.tolist()
    used = [number for number, count in enumerate(classes) if count]
    values = [
        (
            "0 B" if not number else f"from {html.size(1 << number - 1)}",
            classes[number],
            html.count(classes[number]),
        )
        for number in range(min(used, default=0), max(used, default=-1) + 1)
    ]
    return bars(values, axis="records of that size", quantity=COUNTS)


def _hitters(found: LogProfile) -> Bars:
    keyed = max(found.counters.records - found.counters.null_keys, 1)
    values = [
        (
            _key(each.value),
            each.count_min,
            f"{html.count(each.count_min)}, {html.share(each.count_min, keyed)}",
        )
        for each in found.hitters.top(_HITTERS_SHOWN)
    ]
    return bars(values, axis="records with that key", quantity=COUNTS)


def _codecs(found: LogProfile) -> list[tuple[object, ...]]:
    return [
        (
            name,
            use.batches,
            use.records,
            html.size(use.stored_bytes),
            html.size(use.content_bytes),
            f"{use.content_bytes / use.stored_bytes:.2f}" if use.stored_bytes else "-",
        )
        for name, use in sorted(found.codecs.items())
    ]


def _distinct(found: LogProfile) -> str:
    number = html.count(found.keys.count())
    return number if found.keys.is_exact else f"about {number} (±{100 * DISTINCT_ERROR:.1f} %)"


def _key(value: bytes) -> str:
    """A key as text where it is some, else as hexadecimal digits."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        text = f"0x{value.hex()}"
    return text if len(text) <= _SHOWN_BYTES else f"{text[:_SHOWN_BYTES]}…"
