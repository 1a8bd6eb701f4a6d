"""The verification of a partition in two steps, so that many machines can share a large one.

    check_segment     per segment, in any order: all bytes, once; a small `SegmentReport`
    join_segments     per partition: headers only, with what the reports say of damage

What a segment holds by itself is most of the work and all of the bytes. What goes on from one
segment to the next (gaps, leader epochs, sequences, transactions) needs the headers in order, which
the second step steps through without reading the records.

Invariant: the findings are those of `verify_partition` on the same files, which walks in one step.
"""

from collections.abc import Iterator, Mapping

from tailrace.offline.findings import Finding, FindingLimit, Rule
from tailrace.offline.segment_check import Checked, Hole, Progress, SegmentCheck
from tailrace.offline.verify import PartitionFiles, verify_partition
from tailrace.reading.listing import SegmentFiles
from tailrace.records.batch import Batch
from tailrace.runtime.files import File, Files
from tailrace.storage.segment_walk import Sound
from tailrace.storage.walk import walk_batches, walk_headers
from tailrace.values import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentReport:
    """Facts about one segment that the walk over its partition needs."""

    base_offset: int
    findings: tuple[Finding, ...] = ()
    """The findings that `FindingLimit` lets pass."""
    excess: Mapping[tuple[str, Rule], int] = field(default_factory=dict)
    """Number of findings it has held back; the reader that joins the reports counts them too."""
    end: int = 0
    """Position behind the last batch that was looked at."""
    holes: tuple[Hole, ...] = ()
    """Ranges without a sound batch."""
    is_complete: bool = True
    has_grown: bool = False
    is_open: bool = True
    """Whether the file could be opened; `error` says why not."""
    error: OSError | None = None
    """The error that has ended the check."""


def check_segment(
    files: Files,
    segment: SegmentFiles,
    *,
    following: int | None,
    progress: Progress = lambda _: None,
) -> SegmentReport:
    """Look at every byte of a segment; `following` is the base offset of the next one, if any."""
    try:
        check = SegmentCheck.open(files, segment, following=following, progress=progress)
    except OSError as error:
        return SegmentReport(base_offset=segment.base_offset, is_open=False, error=error)
    limit = FindingLimit()
    findings: list[Finding] = []
    holes = []
    end, failure = 0, None
    try:
        for each in check.walk():
            if isinstance(each, Finding):
                findings += limit.take([each])
            elif isinstance(each, Hole):
                holes.append(each)
                end = each.end
            else:
                end = each.position + each.piece.size
    except OSError as error:
        failure = error
    finally:
        check.close()
    return SegmentReport(
        base_offset=segment.base_offset,
        findings=tuple(findings),
        excess=limit.excess(),
        end=end,
        holes=tuple(holes),
        is_complete=check.is_complete,
        has_grown=check.has_grown,
        error=failure,
    )


def join_segments(
    files: Files, found: PartitionFiles, reports: Mapping[int, SegmentReport]
) -> Iterator[Finding]:
    """Every finding of a partition, from the reports of its segments by base offset."""

    def open_segment(segment: SegmentFiles, following: int | None) -> "_Headers":
        del following
        report = reports[segment.base_offset]
        if report.error is not None and not report.is_open:
            raise report.error
        return _Headers(files.open(segment.path, read_only=True), segment, report)

    return verify_partition(files, found, open_segment=open_segment)


class _Headers:
    """A walk over headers, which repeats what a report says."""

    def __init__(self, log: File, segment: SegmentFiles, report: SegmentReport) -> None:
        self.is_complete, self.has_grown = report.is_complete, report.has_grown
        self._path = segment.path
        self._report = report
        self._log = log

    def walk(self) -> Iterator[Checked]:
        """The batches that the check has come to, with its findings before them."""
        report = self._report
        yield from report.findings
        start = 0
        for hole in report.holes:
            yield from self._batches(start, hole.position)
            yield hole
            start = hole.end
        yield from self._batches(start, report.end)
        if report.error is not None:
            raise report.error

    def _batches(self, start: int, limit: int) -> Iterator[Sound]:
        for position, header in walk_headers(self._log, self._path, start=start, limit=limit):
            yield Sound(position, self._whole(position, header) if header.is_control else header)

    def close(self) -> None:
        """Release the file."""
        self._log.close()

    def _whole(self, position: int, header: Batch) -> Batch:
        """The batch with its records."""
        end = position + header.size
        return next(walk_batches(self._log, self._path, start=position, limit=end))[1]
