"""Pages of reports: well-formed, and no value that they are given becomes markup."""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.model import Offset, TopicPartition
from tailrace.offline.findings import Finding, Rule, Severity
from tailrace.offline.verify import PartitionFiles
from tailrace.reading.listing import SegmentFiles
from tailrace.spark.jobs import report_html as html
from tailrace.spark.jobs.audit import AuditFinding, AuditReport
from tailrace.spark.jobs.pages import audit_page, profile_page
from tailrace.spark.jobs.profile import CodecUse, LogProfile, Profile
from tests.unit.spark.jobs.pages import Page

SCRIPT = "<script>alert('x')</script>"


def audit_of(text: str) -> str:
    """The page of an audit in which every text is `text`."""
    name = f"{0:020d}.log"
    files = PartitionFiles(
        folder=text,
        checkpoints={},
        epochs=(),
        segments=(SegmentFiles(base_offset=Offset(0), path=f"{text}/{name}", size=100),),
        listed=(),
    )
    finding = Finding(
        severity=Severity.ERROR,
        rule=Rule.FRAME,
        path=f"{text}/{name}",
        position=50,
        sentence=text,
    )
    partition = TopicPartition(text, 0)
    return audit_page(
        AuditReport(
            directories=(text,),
            partitions=((partition, files),),
            findings=(AuditFinding(partition, finding),),
            seconds=1.0,
        )
    )


def profile_of(text: str, timestamp_ms: int = 0) -> str:
    """The page of a profile in which every text is `text`: also the topic and the key."""
    found = LogProfile(codecs={text: CodecUse(batches=1)})
    chunk = pa.record_batch(
        {
            "key": pa.array([text.encode()]),
            "value": pa.array([b"v"]),
            "timestamp": pa.array([0], pa.timestamp("us")),
        }
    )
    found.add_records(chunk, now_ms=0)
    found.times.add(np.array([timestamp_ms]), np.array([1]))
    partition = TopicPartition(text, 0)
    return profile_page(Profile(source=text, partitions={partition: found}, seconds=1.0))


@pytest.mark.parametrize("page_of", [audit_of, profile_of])
@given(st.text(st.characters(codec="utf-8"), min_size=1).map(lambda each: each.replace("/", "-")))
def test_any_text_stays_text(page_of: Callable[[str], str], text: str) -> None:
    """A page has the tags that it has with harmless text, and no others."""
    assert Page(page_of(text)).tags == Page(page_of("a" * len(text.encode()))).tags


@pytest.mark.parametrize("page_of", [audit_of, profile_of])
def test_a_topic_named_like_a_script_is_shown_and_not_run(page_of: Callable[[str], str]) -> None:
    """The page shows any name as text, be it a topic, a key, a path or a sentence about damage."""
    page = Page(page_of(SCRIPT))
    assert "script" not in page.tags
    assert SCRIPT in page.text


@pytest.mark.parametrize("text", [audit_of("flights"), profile_of("flights")])
def test_a_page_loads_nothing_and_suits_light_and_dark(text: str) -> None:
    """It says so to the browser, and has no script and no address."""
    page = Page(text)
    assert "default-src 'none'" in text
    assert "prefers-color-scheme: dark" in text
    assert not {"script", "link", "img", "iframe"} & set(page.tags)
    assert "http://" not in text
    assert "https://" not in text
    assert "url(" not in text
    assert "@import" not in text


def test_the_charts_of_a_profile_have_axes_with_units() -> None:
    """Each chart says what it measures; values over time say of which time, in UTC."""
    text = Page(profile_of("flights")).text
    for axis in (
        "bytes stored", "records per minute", "bytes per minute", "records of that size",
        "records with that key", "timestamp of the records, UTC",
    ):  # fmt: skip
        assert axis in text


def test_a_timestamp_beyond_any_calendar_is_drawn() -> None:
    """Its time is told in milliseconds."""
    assert " ms: 1</title>" in profile_of("flights", 2**62)


def test_a_table_is_cut_and_says_so() -> None:
    """Rows beyond the limit are counted."""
    finding = Finding(severity=Severity.INFO, rule=Rule.MORE, path="p", sentence="s")
    report = AuditReport(
        directories=(), partitions=(), findings=(AuditFinding(None, finding),) * 3100, seconds=1.0
    )
    page = Page(audit_page(report))
    assert page.tags.count("tr") == 2001
    assert "and 1,100 more rows" in page.text


def test_numbers_for_people() -> None:
    """Bytes with a unit, counts with their thousands apart, shares of nothing as a dash."""
    assert [html.size(each) for each in (0, 1023, 1536, 5 * 2**40)] == [
        "0 B", "1023 B", "1.5 KiB", "5 TiB",
    ]  # fmt: skip
    assert html.count(1234567) == "1,234,567"
    assert html.count(2**63 - 1) == "9,223,372,036,854,775,807"
    assert (html.share(1, 8), html.share(0, 0)) == ("12.5 %", "-")
