"""Tests of the errors of a Spark job: those of its tasks, and those of arguments before it."""

import pytest

from tailrace.errors import ConfigError, FatalError, RetriableError
from tailrace.spark.jobs.archive import ArchiveSettings, check_arguments
from tailrace.spark.jobs.work import translated

TRACEBACK = """
  An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "worker.py", line 1, in main
    process()
    ^^^^^^^^^
{last}

\tat org.apache.spark.api.python.BasePythonRunner.handlePythonException(PythonRunner.scala:1)
"""


def test_an_error_of_ours_keeps_its_sentence() -> None:
    """Without the traceback around it, and as one that may be tried again."""
    error = translated(
        TRACEBACK.format(last="tailrace.client.errors.UnreachableBrokerError: a:1: is down")
    )
    assert isinstance(error, RetriableError)
    assert str(error) == "a:1: is down"


@pytest.mark.parametrize("last", ["OSError: [Errno 28] No space left", "pyarrow.lib.X: torn"])
def test_any_other_error_is_told_by_its_last_line(last: str) -> None:
    """The message is the last line of the Python traceback, not of the JVM's."""
    error = translated(TRACEBACK.format(last=last))
    assert isinstance(error, FatalError)
    assert str(error) == f"a Spark task failed: {last}"


def test_a_message_without_a_traceback_is_told_by_its_first_line() -> None:
    """The loss of an executor gives such a message."""
    error = translated("Job aborted: ExecutorLostFailure\n\nDriver stacktrace:\n\tat org.apache")
    assert str(error) == "a Spark task failed: Job aborted: ExecutorLostFailure"


def test_all_faults_of_arguments_are_told_at_once() -> None:
    """One error tells the faults of the source's options and those of the archive's settings."""
    settings = ArchiveSettings(by="week", codec="zip", target_file_bytes=0)
    with pytest.raises(ConfigError) as caught:
        check_arguments({"path": "data", "subscripe": "t"}, "nowhere://x", settings)
    told = "\n".join(caught.value.faults)
    for fault in (
        "by: date or hour, not 'week'",
        "codec: one of zstd",
        "target_file_bytes: at least 1",
        "nowhere://x: PyArrow cannot use it",
        "did you mean subscribe?",
        "give exactly one, which topics to read",
    ):
        assert fault in told
