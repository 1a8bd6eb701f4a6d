"""The programs of the README for Spark, one after the other, as a new user runs them."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tailrace.testing import TestBroker
from tests.wire.test_readme import programs

pytestmark = pytest.mark.spark


@pytest.fixture
def broker() -> Iterator[TestBroker]:
    """A broker with the topic that the programs read."""
    with TestBroker() as found:
        found.produce("flights", "JFK", key="B6 1")
        yield found


def test_the_programs_read_files_and_write_to_a_broker(
    broker: TestBroker, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first shows the records of a directory, the second writes them to another topic."""
    assert spark is not None
    names: dict[str, object] = {}
    for program in programs("Read a topic in Spark", broker):
        exec(program.replace('"my-data"', repr(str(broker.directory))), names)
    assert "|B6 1|  JFK|" in capsys.readouterr().out
    assert [(each.key, each.value) for each in broker.log("upper").records()] == [(b"B6 1", b"JFK")]
