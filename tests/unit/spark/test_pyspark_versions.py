"""Differences between the versions of PySpark that a session shows."""

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql.datasource import DataSource

from tailrace.spark.pyspark_versions import register_source
from tailrace.spark.source import TailraceDataSource


class Session:
    """A session of Spark that refuses to register a format."""

    def __init__(self, condition: str) -> None:
        self.dataSource = self
        self.refusal = AnalysisException("refused", errorClass=condition, messageParameters={})

    def register(self, source: type[DataSource]) -> None:
        """Spark's own method of `spark.dataSource`."""
        assert source is TailraceDataSource
        raise self.refusal


def test_a_format_that_spark_4_0_has_found_by_itself_is_kept() -> None:
    """Spark 4.0 refuses to register it again, and it works as it is."""
    register_source(Session("DATA_SOURCE_ALREADY_EXISTS"), TailraceDataSource)


def test_another_refusal_of_spark_reaches_the_user() -> None:
    """Unchanged, as Spark raised it."""
    session = Session("INVALID_HANDLE.SESSION_CLOSED")
    with pytest.raises(AnalysisException) as caught:
        register_source(session, TailraceDataSource)
    assert caught.value is session.refusal
