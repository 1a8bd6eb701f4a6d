"""The report of an audit as a page: totals, a map of each partition's log, findings."""

import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Final

from tailrace.offline.findings import Finding, Severity
from tailrace.offline.verify import PartitionFiles
from tailrace.spark.jobs.audit import AuditReport, ComparedPartition, replicas_told
from tailrace.spark.jobs.charts import BYTES, WIDTH, LogMap, Mark, Piece, ticks
from tailrace.spark.jobs.report_html import render, size
from tailrace.storage import names

_PIECES_MAX: Final = 200
"""Pieces of a map; neighbouring segments share one where there are more."""
_MARK_WIDTH: Final = 3
_FINDINGS_MAX: Final = 2000
_LOGS_MAX: Final = 500
"""Partitions that are drawn: those with the worst findings first."""

_RANK: Final = (Severity.ERROR, Severity.WARNING, Severity.UNVERIFIED, Severity.INFO)


def audit_page(report: AuditReport, compared: Sequence[ComparedPartition] = ()) -> str:
    """One HTML file that says it all."""
    counts = report.counts
    told = [f"{counts[each]} {each.value}" for each in _RANK if counts[each]]
    is_same = not any(each.comparison.differences for each in compared)
    totals: list[tuple[str, object]] = [
        ("partitions", len(report.partitions)),
        ("segments", sum(len(files.segments) for _, files in report.partitions)),
        ("bytes of log", size(report.size)),
        ("per second", size(report.size / max(report.seconds, 1e-3))),
        ("findings", ", ".join(told) or ("none: clean" if is_same else "none")),
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
    """Return the page's table of compared replicas: one row for each pair."""
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
        told = _RANK[rank(files)].value if found else "sound"
        count = len(files.segments)
        noun = "segment" if count == 1 else "segments"
        heading = f"{partition}: {count} {noun}, {size(files.size)}, {told}"
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
