"""The picture of the cluster's demonstration: well-formed, and with the numbers of the run."""

import re
from xml.etree import ElementTree as ET

from tailrace.demo.cluster_picture import COLOURS, Happened, Measured, draw

RUN = Measured(
    seconds=10.0,
    acknowledged=[(each / 100, 0.01) for each in range(900)] + [(9.0, 2.5)],
    read=[each / 100 for each in range(900)],
    leaders=[(0.0, (1, 2)), (4.0, (3, 2))],
    happened=[Happened(2.0, "kill -9 broker 1"), Happened(4.0, "others lead"), Happened(8.0, "<&")],
    killed=1,
)


def elements(run: Measured) -> list[ET.Element]:
    """The elements of the picture, which has to be well-formed."""
    _, begin, rest = draw(run).partition("<svg")
    return list(ET.fromstring(begin + rest))


def test_it_says_what_was_measured() -> None:
    """Its title has the number of records, and the longest wait is below; text is escaped."""
    texts = [each.text or "" for each in elements(RUN) if each.tag.endswith("text")]
    assert texts[0].startswith("901 records acknowledged")
    assert "2.5 s" in texts[1]
    assert "<&, 8.0 s" in texts


def test_a_dead_leader_is_pale() -> None:
    """A partition is pale from the death of its leader until another leads."""
    spans = re.findall(rf'fill="({"|".join(COLOURS.values())})" opacity="(\S+)"', draw(RUN))
    one, two, three = COLOURS[1], COLOURS[2], COLOURS[3]
    assert spans == [(one, "1"), (one, "0.25"), (three, "1"), (two, "1"), (two, "1")]


def test_a_run_without_records_has_a_picture() -> None:
    """Nothing is divided by nothing."""
    empty = Measured(seconds=1.0, acknowledged=[], read=[], leaders=[], happened=[], killed=1)
    assert elements(empty)
