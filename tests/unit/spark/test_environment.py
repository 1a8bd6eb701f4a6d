"""Tests of the checks of this machine before Spark is started."""

import sys
from pathlib import Path

import pytest

from tailrace.errors import FatalError
from tailrace.spark.install import check_pyspark, check_pyspark_version, use_this_python


class Context:
    """The part of a SparkContext that names the workers' Python, as Spark starts it by default."""

    def __init__(self, **settings: str) -> None:
        self.pythonExec = "python3"
        self._settings = settings

    def getConf(self) -> dict[str, str]:  # noqa: N802 - Spark's name
        """Settings of the session."""
        return self._settings


@pytest.mark.parametrize("chosen", ["", sys.executable])
def test_workers_of_a_running_session_become_this_python(
    monkeypatch: pytest.MonkeyPatch, chosen: str
) -> None:
    """They do so also if PYSPARK_PYTHON was set to it after the session had started."""
    monkeypatch.setenv("PYSPARK_PYTHON", chosen)
    context = Context()
    use_this_python(context)
    assert context.pythonExec == sys.executable


def test_a_chosen_python_without_the_package_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message has its path, and what to set instead."""
    other = tmp_path / "python3"
    other.write_text("#!/bin/sh\nexit 1\n")
    other.chmod(0o755)
    monkeypatch.setenv("PYSPARK_PYTHON", str(other))
    with pytest.raises(FatalError) as caught:
        use_this_python(Context())
    assert str(caught.value) == (
        f"Spark starts its Python workers with {other}, which cannot import tailrace; "
        f"set PYSPARK_PYTHON={sys.executable} before the session starts"
    )


@pytest.mark.parametrize("version", ["3.5.7", "3.4.0", "2.4.8"])
def test_an_old_pyspark_is_refused_in_one_sentence(version: str) -> None:
    """It names the version that is there, and the command that installs one that works."""
    with pytest.raises(FatalError) as caught:
        check_pyspark_version(version)
    assert str(caught.value) == (
        f"tailrace needs PySpark 4.0 to 4.3, and this is PySpark {version}. "
        "Run: pip install 'pyspark>=4.0,<4.4'"
    )


@pytest.mark.parametrize("version", ["4.0.0", "4.0.5", "4.1.4", "4.2.1", "4.3.0", "4.3.1.dev1"])
def test_a_supported_pyspark_is_taken_without_a_word(version: str) -> None:
    """Every version from 4.0 to 4.3, the one that runs these tests among them."""
    check_pyspark_version(version)
    check_pyspark()


@pytest.mark.parametrize("version", ["4.4.0", "4.4.0.dev1", "4.10.0", "5.0.0"])
def test_a_newer_pyspark_is_taken_with_a_warning(version: str) -> None:
    """It says which versions are tested, and the command that installs one of them."""
    with pytest.warns(UserWarning, match="is tested with") as caught:
        check_pyspark_version(version)
    [warning] = caught
    assert str(warning.message) == (
        f"tailrace is tested with PySpark 4.0 to 4.3, and this is PySpark {version}, which may "
        "work. If it does not, run: pip install 'pyspark>=4.0,<4.4'"
    )
