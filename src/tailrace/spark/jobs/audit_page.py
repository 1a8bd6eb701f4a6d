"""The report of an audit as a page: totals, a strip of segments for each partition, findings."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

from tailrace.offline.findings import Severity
from tailrace.offline.verify import PartitionFiles
from tailrace.spark.jobs import report_html as html
from tailrace.spark.jobs.audit import AuditReport, ComparedPartition, replicas_told
from tailrace.storage import names

_CELLS_MAX: Final = 200
"""Cells of a strip; segments share a cell where there are more, in the colour of the worst."""
_FINDINGS_MAX: Final = 2000
_STRIPS_MAX: Final = 500
"""Partitions that are drawn: those with the worst findings first."""

_RANK: Final = (Severity.ERROR, Severity.WARNING, Severity.UNVERIFIED, Severity.INFO)
_SOUND: Final = len(_RANK)


def audit_page(report: AuditReport, compared: Sequence[ComparedPartition] = ()) -> str:
    """One HTML file that says it all."""
    counts = report.counts
    told = [f"{counts[each]} {each.value}" for each in _RANK if counts[each]]
    is_same = not any(each.comparison.differences for each in compared)
    facts: list[tuple[str, object]] = [
        ("partitions", len(report.partitions)),
        ("segments", sum(len(files.segments) for _, files in report.partitions)),
        ("bytes of log", html.size(report.size)),
        ("per second", html.size(report.size / max(report.seconds, 1e-3))),
        ("findings", ", ".join(told) or ("none: clean" if is_same else "none")),
    ]
    if compared:
        facts.append(("replicas", replicas_told(compared)))
    parts = [
        html.facts(facts),
        html.heading("Partitions"),
        html.paragraph("Each piece is a segment, as wide as it is large."),
        *_strips(report),
    ]
    if report.findings:
        headings = ("severity", "rule", "partition", "file", "position", "offset", "what")
        parts.append(html.heading("Findings"))
        parts.append(html.table(headings, _rows(report), rows_max=_FINDINGS_MAX))
    if compared:
        parts += [html.heading("Replicas"), *_replicas(compared)]
    when = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return html.page("Audit", f"{', '.join(report.directories)}; {when}", parts)


def _rows(report: AuditReport) -> Iterator[tuple[object, ...]]:
    ordered = sorted(report.findings, key=lambda each: _RANK.index(each.finding.severity))
    for each in ordered:
        found = each.finding
        yield (
            found.severity.value,
            found.rule.value,
            None if each.partition is None else str(each.partition),
            found.path,
            found.position,
            found.offset,
            found.sentence,
        )


def _strips(report: AuditReport) -> Iterator[html.Markup]:
    worst: dict[tuple[str, int | None], int] = defaultdict(lambda: _SOUND)
    for each in report.findings:
        folder, _, name = each.finding.path.rpartition("/")
        parsed = names.parse_segment_file_name(name)
        rank = _RANK.index(each.finding.severity)
        for key in ((folder, parsed[0] if parsed else None), (folder, -1)):
            worst[key] = min(worst[key], rank)
    ordered = sorted(report.partitions, key=lambda each: worst[each[1].folder, -1])
    for partition, files in ordered[:_STRIPS_MAX]:
        rank = worst[files.folder, -1]
        told = "sound" if rank == _SOUND else _RANK[rank].value
        count = len(files.segments)
        noun = "segment" if count == 1 else "segments"
        text = f"{partition}: {count} {noun}, {html.size(files.size)}, {told}"
        yield html.heading(text, level=3)
        yield html.strip(_cells(files, worst))
    if len(ordered) > _STRIPS_MAX:
        yield html.paragraph(f"and {len(ordered) - _STRIPS_MAX} more partitions")


def _cells(files: PartitionFiles, worst: dict[tuple[str, int | None], int]) -> list[html.Cell]:
    step = -(-len(files.segments) // _CELLS_MAX) or 1
    cells = []
    for start in range(0, len(files.segments), step):
        group = files.segments[start : start + step]
        rank = min(worst[files.folder, each.base_offset] for each in group)
        kind = "good" if rank == _SOUND else _RANK[rank].value
        size = sum(each.size for each in group)
        title = f"from offset {group[0].base_offset}, {html.size(size)}: {kind}"
        # Empty segments are there too.
        cells.append(html.Cell(max(size, files.size / 1000, 1), kind, title))
    return cells


def _replicas(compared: Sequence[ComparedPartition]) -> Iterator[html.Markup]:
    """What differs first; then how far each pair was compared."""
    rows = [
        (str(each.partition), found.what.value, found.offset, found.next_offset, str(found))
        for each in compared
        for found in each.comparison.differences
    ]
    if rows:
        headings = ["partition", "what", "from offset", "up to", "difference"]
        yield html.table(headings, rows, rows_max=_FINDINGS_MAX)
    yield html.table(
        ["partition", "from offset", "same up to", "same batches", "bytes", "differences"],
        (
            (
                str(partition),
                done.start,
                done.limit,
                done.batches,
                html.size(done.bytes),
                done.counts.total() or "none: the same",
            )
            for partition, done in ((each.partition, each.comparison) for each in compared)
        ),
        rows_max=_FINDINGS_MAX,
    )
