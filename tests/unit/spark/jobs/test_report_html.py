"""Pieces of a report: well-formed, and nothing of what they are given becomes markup."""

from hypothesis import given
from hypothesis import strategies as st

from tailrace.spark.jobs import report_html as html
from tests.unit.spark.jobs.pages import Page


@given(st.text(), st.text(), st.floats(0, 1e12))
def test_any_text_stays_text(label: str, told: str, value: float) -> None:
    """In every piece there is: the page has the tags it has with harmless text, and no others."""

    def tags(label: str, told: str) -> list[str]:
        parts = [
            html.heading(label),
            html.paragraph(told),
            html.facts([(label, told)]),
            html.table([label], [[told, 5], [None, value]], rows_max=5),
            html.bars([(label, value, told)]),
            html.columns([(label, value, told)]),
            html.strip([html.Cell(value, "good", told)]),
        ]
        return Page(html.page(label, told, parts)).tags

    assert tags(label, told) == tags("a", "b")


def test_a_page_loads_nothing_and_suits_light_and_dark() -> None:
    """It says so to the browser, and has no script and no address."""
    text = html.page("Audit", "of a directory", [html.bars([("flights", 3, "3 B")])])
    page = Page(text)
    assert "default-src 'none'" in text
    assert "prefers-color-scheme: dark" in text
    assert not {"script", "link", "img", "iframe"} & set(page.tags)
    assert "http://" not in text
    assert "https://" not in text


def test_a_table_is_cut_and_says_so() -> None:
    """Rows beyond the limit are counted."""
    page = Page(html.page("t", "", [html.table(["n"], ([n] for n in range(1200)), rows_max=100)]))
    assert page.tags.count("tr") == 101
    assert "and 1,100 more rows" in page.text


def test_charts_are_drawn_to_scale() -> None:
    """Half the value is half the bar; nothing at all is no error."""
    page = Page(html.page("t", "", [html.bars([("a", 10, ""), ("b", 5, ""), ("c", 0, "")])]))
    widths = [float(each["width"]) for each in page.attributes("rect")]
    assert widths[0] == 2 * widths[1]
    assert widths[2] == 0
    pieces = html.strip([html.Cell(3, "good", ""), html.Cell(1, "error", "")])
    lefts = [float(each["x"]) for each in Page(html.page("t", "", [pieces])).attributes("rect")]
    assert lefts == [0, 750]
    assert Page(html.page("t", "", [html.bars([]), html.columns([]), html.strip([])])).tags


def test_numbers_for_people() -> None:
    """Bytes with a unit, counts with their thousands apart, shares of nothing as a dash."""
    assert [html.size(each) for each in (0, 1023, 1536, 5 * 2**40)] == [
        "0 B", "1023 B", "1.5 KiB", "5.0 TiB",
    ]  # fmt: skip
    assert html.count(1234567) == "1,234,567"
    assert (html.share(1, 8), html.share(0, 0)) == ("12.5 %", "-")
