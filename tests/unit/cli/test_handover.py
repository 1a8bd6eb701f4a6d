"""`tailrace handover` on directories that Kafka left."""

import json
import shutil
from pathlib import Path

from tailrace.config.sources import read_properties
from tailrace.runtime.files import DiskFiles
from tests.kraft import DIRECTORY
from tests.unit.cli.running import documented, lines, run, said


def kafka_directory(at: Path) -> Path:
    """A copy of a directory that Kafka has stopped on in order."""
    return Path(shutil.copytree(DIRECTORY, at / "logs"))


def contents(directory: Path) -> dict[Path, bytes]:
    """Every file below a directory."""
    return {each: each.read_bytes() for each in directory.rglob("*") if each.is_file()}


def test_a_move_is_described_and_prepared(tmp_path: Path) -> None:
    """Both brokers are ready; the file has the settings; the directory stays as it was."""
    directory, target = kafka_directory(tmp_path), tmp_path / "server.properties"
    before = contents(directory)
    shown = lines("handover", "--data", directory, "--write", target)
    assert shown[0].startswith("node 1 of cluster ")
    assert "understood" in shown
    assert "prevents the move" not in shown
    assert shown[-2].startswith("Tailrace: ready: tailrace serve --config ")
    assert shown[-1] == f"Apache Kafka: ready: kafka-server-start.sh {target}"
    settings = read_properties(target.read_text())
    assert settings["log.dirs"] == str(directory)
    assert settings["controller.quorum.voters"] == "1@localhost:9093"
    assert "  controller.quorum.voters=1@localhost:9093" in shown
    assert contents(directory) == before


def test_a_hindrance_is_an_exit_code(tmp_path: Path) -> None:
    """A Kafka that was killed can be taken over by Tailrace; settings are written all the same."""
    directory, target = kafka_directory(tmp_path), tmp_path / "server.properties"
    (directory / ".kafka_cleanshutdown").unlink()
    result = run("handover", "--data", directory, "--write", target)
    assert result.exit_code == 1
    assert "Kafka: " in result.stdout
    of_tailrace, of_kafka = result.stdout.splitlines()[-2:]
    assert of_tailrace.startswith("Tailrace: ready: ")
    assert of_kafka.startswith("Apache Kafka: not ready, because of 1 ")
    assert target.exists()
    assert run("handover", "--data", directory, "--to", "tailrace").exit_code == 0
    assert run("handover", "--data", directory, "--to", "kafka").exit_code == 1
    (first, *_) = run("handover", "--data", directory, "--json").stdout.splitlines()
    assert json.loads(first)["ready_for"] == ["tailrace"]


def test_a_broker_at_work_is_told(tmp_path: Path) -> None:
    """Its lock is left alone."""
    directory = kafka_directory(tmp_path)
    lock = DiskFiles().lock(str(directory / ".lock"))
    try:
        assert f"a node has {directory} open" in run("handover", "--data", directory).stdout
    finally:
        lock.release()
    assert lines("handover", "--data", directory)[-1].startswith("Apache Kafka: ready")


def test_the_report_as_json(tmp_path: Path) -> None:
    """Each object has the fields that the documentation lists."""
    result = run("handover", "--data", kafka_directory(tmp_path), "--json")
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert [found[0]["type"], found[-1]["type"]] == ["handover", "setting"]
    assert found[0]["ready"] is True
    for each in found:
        fields = each.keys() - {"format", "type"}
        assert fields == documented()[each["format"], each["type"], "handover"]


def test_a_directory_of_nobody_is_one_sentence(tmp_path: Path) -> None:
    """Without `meta.properties` no node is there to be handed over."""
    assert "has no meta.properties" in said("handover", "--data", tmp_path)
    assert "names no directory" in said("handover", "--data", ",")
