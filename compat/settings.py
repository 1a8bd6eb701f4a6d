"""Every setting that Kafka defines, held against `tests/unit/broker/kafka_settings.tsv`.

Settings.java prints them as that file has them; it is compiled when it is run, so this takes a JDK.
Our tests hold our own settings against the file.
"""

from difflib import unified_diff
from pathlib import Path

from compat.kafka import run_java
from compat.report import Report

_PROGRAM = Path(__file__).with_name("Settings.java")
_KEPT = Path(__file__).parent.parent / "tests" / "unit" / "broker" / "kafka_settings.tsv"


def check(report: Report, java: Path, class_path: str) -> None:
    """Print all of them again, and compare."""
    due = run_java(java, class_path, [str(_PROGRAM)]).splitlines()
    kept = _KEPT.read_text().splitlines()
    report.check(
        f"{len(due)} settings of brokers, topics and groups are those that our tests know",
        [*unified_diff(due, kept, "Kafka", "ours", n=0, lineterm="")],
    )
