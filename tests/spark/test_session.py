"""`install` into the session of this process."""

import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tailrace.errors import FatalError
from tailrace.model import TopicPartition
from tailrace.spark import install
from tests.spark.directories import write_numbered
from tests.spark.test_worker_python import other_python

pytestmark = [pytest.mark.spark, pytest.mark.smoke]


def test_a_local_session_is_sent_no_package(spark: SparkSession, tmp_path: Path) -> None:
    """Its workers have this Python's; the format is there, and the session comes back."""
    write_numbered(tmp_path, TopicPartition("t", 0), limit=7)
    assert install(spark) is spark
    assert spark.sparkContext.listFiles == []
    assert spark.read.format("tailrace").option("subscribe", "t").load(str(tmp_path)).count() == 7


def test_a_session_refuses_a_python_that_cannot_work(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message of `install` names the Python that was chosen, and the one to set instead."""
    chosen = other_python(tmp_path)
    monkeypatch.setenv("PYSPARK_PYTHON", str(chosen))
    with pytest.raises(FatalError) as caught:
        install(spark)
    assert str(caught.value) == (
        f"Spark starts its Python workers with {chosen}, which cannot import tailrace; "
        f"set PYSPARK_PYTHON={sys.executable} before the session starts"
    )
