"""Tests of an audit: its pieces, their findings on a real disk, and its page."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tailrace.model import Offset, TopicPartition
from tailrace.offline.findings import Finding, Rule, Severity
from tailrace.offline.replicas import Comparison, Difference, DifferenceKind
from tailrace.offline.verify import PartitionFiles, SegmentReport, list_partition, verify
from tailrace.reading.directory import find_partitions
from tailrace.reading.listing import SegmentFiles
from tailrace.runtime.files import DiskFiles
from tailrace.spark.jobs.audit import (
    AuditFinding,
    AuditReport,
    ComparedPartition,
    Findings,
    Part,
    Whole,
    check_pieces,
    cut,
    join,
    pack,
)
from tailrace.spark.jobs.pages import audit_page
from tests.spark.directories import write_numbered
from tests.unit.spark.jobs.pages import Page

HOSTILE = "<script>alert('x')</script>&\"\0"


def listed(sizes: Sequence[int], folder: str = "data/t-0") -> PartitionFiles:
    """A partition with segments of these sizes."""
    segments = [
        SegmentFiles(
            base_offset=Offset(10 * number), path=f"{folder}/{10 * number:020d}.log", size=size
        )
        for number, size in enumerate(sizes)
    ]
    return PartitionFiles(
        folder=folder, checkpoints={}, epochs=(), segments=tuple(segments), listed=()
    )


@given(
    st.lists(st.lists(st.integers(0, 5 * 2**20), max_size=6), max_size=8),
    st.integers(2**20, 2**23),
)
def test_every_segment_is_in_one_piece_and_items_are_not_too_large(
    sizes: list[list[int]], piece_bytes: int
) -> None:
    """A partition stays whole up to the limit, and beyond it each segment knows the next one."""
    partitions = [listed(each) for each in sizes]
    pieces = cut(partitions, piece_bytes)
    for index, partition in enumerate(partitions):
        mine = [piece for number, piece in pieces if number == index]
        if partition.size <= piece_bytes or len(partition.segments) == 1:
            assert mine == [Whole(partition)]
        else:
            assert [each.segment for each in mine if isinstance(each, Part)] == list(
                partition.segments
            )
            follow = [each.following for each in mine if isinstance(each, Part)]
            assert follow == [*(each.base_offset for each in partition.segments[1:]), None]
    items = pack(pieces, piece_bytes)
    assert [pair for item in items for pair in item] == pieces
    for item in items:
        assert len(item) == 1 or sum(piece.size for _, piece in item) <= piece_bytes


def test_pieces_and_their_join_find_what_verify_finds(tmp_path: Path) -> None:
    """The two functions that run in tasks, called as Spark calls them."""
    write_numbered(tmp_path, TopicPartition("t", 0), limit=100)
    damaged = write_numbered(tmp_path, TopicPartition("t", 0), first=100, limit=200)
    content = bytearray(damaged.read_bytes())
    content[-3] ^= 1
    damaged.write_bytes(content)
    directory = find_partitions(DiskFiles(), str(tmp_path))
    expected = {str(each) for each in verify(DiskFiles(), directory)}
    files, _ = list_partition(DiskFiles(), f"{tmp_path}/t-0", checkpoints={})
    reports = [each for each in check_pieces(cut([files], 1)) if isinstance(each, SegmentReport)]
    joined = join((files, {each.base_offset: each for each in reports}))
    [whole] = check_pieces([(0, Whole(files))])
    assert isinstance(whole, Findings)
    assert {str(each) for each in joined.passed} == {str(each) for each in whole.passed} == expected
    assert any(each.rule is Rule.CHECKSUM for each in whole.passed)


def report(*severities: Severity) -> AuditReport:
    """A report of two partitions with findings of these severities in the second segment."""
    partition = TopicPartition("t", 0)
    files = listed([100, 200, 300])
    findings = tuple(
        AuditFinding(
            partition,
            Finding(
                severity=each, rule=Rule.CHECKSUM, path=files.segments[1].path, position=7,
                offset=12, sentence=f"it is {HOSTILE}",
            ),
        )
        for each in severities
    )  # fmt: skip
    return AuditReport(
        directories=("data",),
        partitions=((partition, files), (TopicPartition("u", 3), listed([50], "data/u-3"))),
        findings=findings,
        seconds=2.0,
    )


def test_the_exit_code_is_that_of_verify() -> None:
    """Damage before what could not be looked at; information is clean."""
    severities: list[tuple[list[Severity], int]] = [
        ([], 0),
        ([Severity.INFO], 0),
        ([Severity.UNVERIFIED, Severity.INFO], 2),
        ([Severity.WARNING, Severity.UNVERIFIED], 1),
        ([Severity.ERROR], 1),
    ]
    for given_severities, code in severities:
        assert report(*given_severities).exit_code == code


def test_the_page_has_totals_and_a_row_for_each_finding() -> None:
    """The page shows the totals and each finding, and no content of files becomes markup."""
    page = Page(audit_page(report(Severity.INFO, Severity.ERROR, Severity.WARNING)))
    assert "script" not in page.tags
    assert "<script>alert('x')</script>&\"\\x00" in page.text
    assert "1 error, 1 warning, 1 info" in page.text
    assert "t-0: 3 segments, 600 B, error" in page.text
    assert "u-3: 1 segment, 50 B, sound" in page.text
    assert page.tags.count("tr") == 4


def drawn(found: AuditReport, kind: str) -> list[tuple[float, float]]:
    """Left edge and width of every rectangle of a class of the style sheet."""
    return [
        (float(each["x"]), float(each["width"]))
        for each in Page(audit_page(found)).attributes("rect")
        if each["class"] == kind
    ]


def test_the_page_of_a_clean_audit_says_so() -> None:
    """No finding, and nothing is drawn but segments, each as wide as it is large."""
    page = Page(audit_page(report()))
    assert "none: clean" in page.text
    assert {each["class"] for each in page.attributes("rect")} == {"log"}
    lefts = [left for left, _ in drawn(report(), "log")]
    assert lefts == [0, 166.67, 500, 0]


def test_a_damaged_batch_is_one_mark_at_its_position() -> None:
    """The segment around it stays as it is: of 600 bytes, byte 107 is at 107/600 of the width."""
    assert drawn(report(Severity.ERROR), "error") == [(round(1000 * 107 / 600), 3)]


def test_findings_at_one_position_share_a_mark() -> None:
    """It has the colour of the worst of them, and its tooltip counts the others."""
    found = report(Severity.INFO, Severity.ERROR, Severity.WARNING)
    assert [len(drawn(found, kind)) for kind in ("error", "warning", "info")] == [1, 0, 0]
    assert "&#34;\\x00; and 2 more</title>" in audit_page(found)


def test_a_finding_about_a_file_is_a_line_below_its_segment() -> None:
    """A finding in an index is such a line too, since its position is not one in the log."""
    files = listed([100, 300])
    index = files.segments[1].path.replace(".log", ".index")
    bad = Finding(
        severity=Severity.ERROR, rule=Rule.OFFSET_INDEX, path=index, position=8, sentence="falls"
    )
    found = replace(
        report(),
        partitions=((TopicPartition("t", 0), files),),
        findings=(AuditFinding(TopicPartition("t", 0), bad),),
    )
    assert drawn(found, "error") == [drawn(found, "log")[1]]


def test_many_segments_share_the_pieces_of_a_map() -> None:
    """A piece stands for neighbouring segments; the line below it has the colour of the worst."""
    files = listed([10] * 1000)
    bad = Finding(
        severity=Severity.WARNING, rule=Rule.TAIL, path=files.segments[637].path, sentence="torn"
    )
    found = replace(
        report(),
        partitions=((TopicPartition("t", 0), files),),
        findings=(AuditFinding(TopicPartition("t", 0), bad),),
    )
    pieces = drawn(found, "log")
    assert len(pieces) == 200
    assert drawn(found, "warning") == [pieces[637 // 5]]


def test_an_empty_log_is_drawn_too() -> None:
    """Its axis has nothing but zero."""
    empty = replace(report(), partitions=((TopicPartition("t", 0), listed([0])),))
    assert drawn(empty, "log") == [(0, 0.5)]


def test_the_map_of_a_log_has_an_axis_in_bytes() -> None:
    """The axis has ticks with units, and says at which offset it begins."""
    page = Page(
        audit_page(replace(report(), partitions=((TopicPartition("t", 0), listed([600])),)))
    )
    assert "128 B" in page.text
    assert "512 B" in page.text
    assert "position in the log, in bytes from offset 0 on" in page.text


def test_the_page_tells_where_replicas_differ() -> None:
    """The page has the place in both, the equal part and the number, and is never clean."""
    content = Difference(
        kind=DifferenceKind.CONTENT, offset=41, next_offset=50, batches=2,
        path="a/t-0/0.log", position=300, other_path="b/t-0/0.log", other_position=301,
        sentence=f"record 41: value {HOSTILE}",
    )  # fmt: skip
    short = Difference(
        kind=DifferenceKind.LOG_END, offset=9, next_offset=49, path="a/u-3", other_path="b/u-3",
        sentence="the second ends at offset 9 and is 40 records short: the first ends at 49",
    )  # fmt: skip
    same = Comparison(limit=7, batches=1, counts=Counter())
    compared = [
        ComparedPartition(
            TopicPartition("t", 0),
            Comparison(
                limit=41, differences=(content,), counts=Counter({DifferenceKind.CONTENT: 1})
            ),
        ),
        ComparedPartition(
            TopicPartition("u", 3),
            Comparison(limit=9, differences=(short,), counts=Counter({DifferenceKind.LOG_END: 1})),
        ),
        ComparedPartition(TopicPartition("v", 0), same),
    ]
    page = Page(audit_page(report(), compared))
    assert "3 replicas compared, 2 different (1 content, 1 log-end)" in page.text
    assert "offset 41: a/t-0/0.log, position 300 and b/t-0/0.log, position 301" in page.text
    assert "is 40 records short" in page.text
    assert "none: the same" in page.text
    assert "script" not in page.tags
    clean = replace(report(), findings=())
    assert "clean" not in Page(audit_page(clean, compared)).text
    assert "none: clean" in Page(audit_page(clean, compared[2:])).text
