"""`tailrace config validate` on files of settings."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from tailrace.broker.checking import DEPRECATED, OTHER_DEFAULTS
from tailrace.broker.config import BROKER_SETTINGS
from tailrace.cli import commands
from tailrace.config.foreign import foreign_settings
from tests.unit.broker.test_kafka_settings import KAFKA
from tests.unit.cli.running import objects, run

WRONG = """\
# A comment, so that lines are counted
node.id=7
num.partition=3
num.partitions=\\
   0
log.dirs=/data/one,/data/one/
node.id=8
broker.id=9
ssl.keystore.pasword=hunter2
num.io.threads=8
log.cleaner.enable=true
"""
TAKEN = """\
process.roles=broker,controller
node.id=7
listeners=:19092
advertised.listeners=PLAINTEXT://kafka.example.com:19092
log.dirs=/data/one,/data/two
broker.rack=a
num.partitions=3
tailrace.durability=sync
listener.name.outside.max.connections=5
listener.name.plaintext.max.connections=5
listener.name.plaintext.num.partitions=5
remote.log.metadata.manager.class.path=x
log.cleaner.io.buffer.size=1000
"""


def write(directory: Path, text: str) -> Path:
    """A file of settings."""
    path = directory / "server.properties"
    path.write_text(text)
    return path


def test_everything_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    """Each with its line: unknown names, ranges, contradictions, and what has no effect."""
    result = run("config", "validate", write(tmp_path, WRONG))
    assert result.exit_code == 1
    shown = result.output.splitlines()
    assert shown[0].endswith("server.properties: errors: 5, warnings: 3")
    rows = {tuple(line.split(None, 3)[:3]): line.split(None, 3)[3] for line in shown[1:9]}
    assert rows == {
        ("error", "line", "3"):
            "num.partition: no such setting; did you mean num.partitions?",
        ("error", "line", "4"): "num.partitions: 0 is out of range (1 to 10000)",
        ("error", "line", "6"): "log.dirs: /data/one/ is there twice (as /data/one)",
        ("error", "line", "7"):
            "node.id: You must set `node.id` to the same value as `broker.id`: they are 8 and 9",
        ("error", "line", "9"):
            "ssl.keystore.pasword: no such setting; did you mean ssl.keystore.password?",
        ("warning", "line", "7"): "node.id: it is on line 2 too; the last counts",
        ("warning", "line", "10"):
            f"num.io.threads: no effect here. {foreign_settings()['num.io.threads'].reason}",
        ("warning", "line", "11"):
            f"log.cleaner.enable: deprecated: {DEPRECATED['log.cleaner.enable']}",
    }  # fmt: skip
    assert "hunter2" not in result.output


def test_a_file_that_is_taken_has_a_meaning(tmp_path: Path) -> None:
    """Node, listeners, directories, what is not the default; and what Kafka takes otherwise."""
    found = objects("config", "validate", write(tmp_path, TAKEN))
    *findings, meaning = found
    assert meaning["node_id"] == 7
    assert meaning["process_roles"] == ["broker", "controller"]
    assert meaning["listeners"] == [
        "PLAINTEXT://0.0.0.0:19092, advertised as kafka.example.com:19092"
    ]
    assert meaning["controller_listener"] is None
    assert (meaning["log_dirs"], meaning["metadata_log_dir"]) == (
        ["/data/one", "/data/two"], "/data/one",
    )  # fmt: skip
    assert meaning["settings"]["num.partitions"] == "3"
    assert "broker.rack" not in meaning["settings"]
    by_level: dict[str, list[tuple[str, str]]] = {}
    for each in findings:
        by_level.setdefault(each["level"], []).append((each["name"], each["place"]))
    assert by_level["warning"] == [
        ("broker.rack", "line 6"),
        ("listener.name.outside.max.connections", "line 9"),
        ("listener.name.plaintext.num.partitions", "line 11"),
        ("remote.log.metadata.manager.class.path", "line 12"),
        ("log.cleaner.io.buffer.size", "line 13"),
    ]
    assert by_level["kafka"][:2] == [
        ("listeners", "line 3"), ("tailrace.durability", "line 8"),
    ]  # fmt: skip
    assert ("max.connections", "") in by_level["kafka"]
    result = run("config", "validate", tmp_path / "server.properties")
    assert result.exit_code == 0
    assert "  not the default  num.partitions=3" in result.output.splitlines()


def test_every_unknown_name_gets_its_suggestion(tmp_path: Path) -> None:
    """Also more of them than a request may ask for."""
    names = [f"{each.name}s" for each in BROKER_SETTINGS[:12]]
    found = objects("config", "validate", write(tmp_path, "".join(f"{each}=1\n" for each in names)))
    unknown = [each for each in found if each["text"].startswith("no such setting")]
    assert len(unknown) >= 10
    assert all("did you mean" in each["text"] for each in unknown)


def test_a_reference_is_said_with_its_line(tmp_path: Path) -> None:
    """It is an error if it leads to nothing; else it is shown, and not what it leads to."""
    kept = tmp_path / "kept.properties"
    text = (
        "log.dirs=/data\n"
        "config.providers=file\n"
        "config.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider\n"
        f"broker.rack=${{file:{kept}:rack}}\n"
        f"num.partitions=${{file:{kept}:count}}\n"
    )
    kept.write_text("count=7\n")
    result = run("config", "validate", write(tmp_path, text))
    assert result.exit_code == 1
    said = f"${{file:{kept}:rack}} cannot be looked up: the file has no line for 'rack'; add it"
    assert f"error  line 4  broker.rack: {said}" in result.output
    kept.write_text("count=7\nrack=hunter2\n")
    result = run("config", "validate", write(tmp_path, text))
    assert result.exit_code == 0
    assert f"num.partitions=${{file:{kept}:count}}" in result.output
    assert "hunter2" not in result.output


def test_variables_go_over_the_file(tmp_path: Path) -> None:
    """With --env only; a finding names the variable."""
    path = write(tmp_path, "log.dirs=/data\nnum.partitions=0\n")
    variables = {"KAFKA_NUM_PARTITIONS": "3", "KAFKA_LOG_SEGMENT_BITES": "1"}
    with_them = CliRunner(env=variables).invoke(
        commands, ["config", "validate", str(path), "--env", "--json"]
    )
    assert '"place": "KAFKA_LOG_SEGMENT_BITES"' in with_them.output
    assert "out of range" not in with_them.output
    without = CliRunner(env=variables).invoke(commands, ["config", "validate", str(path)])
    assert "out of range" in without.output
    assert "bites" not in without.output


@pytest.mark.parametrize("text", ["", "\x00\xff=\\", "a", "=\n=", "a=" + "b" * 100_000])
def test_any_text_is_answered_in_sentences(tmp_path: Path, text: str) -> None:
    """A file of anything else ends with exit code 1 and no traceback."""
    result = run("config", "validate", write(tmp_path, text))
    assert result.exit_code == 1
    assert isinstance(result.exception, SystemExit)


def test_other_defaults_are_all_that_are_other() -> None:
    """The default of each other setting is that of Kafka, or the same in other units."""
    kafka = {each.name: each.default for each in KAFKA if each.owner == "broker"}
    same = {
        "listener.security.protocol.map", "log.dir", "log.flush.interval.ms",
        "log.retention.minutes", "log.retention.ms", "log.roll.jitter.ms", "log.roll.ms",
    }  # fmt: skip
    for each in BROKER_SETTINGS:
        ours, theirs = each.format(each.default), kafka.get(each.name)
        if theirs is not None and each.kind != "float" and each.name not in same:
            is_same = ours == ("" if theirs == "null" else theirs.strip("'"))
            assert is_same != (each.name in OTHER_DEFAULTS), each.name


def test_deprecated_names_are_of_kafka() -> None:
    """None is known under a name that Kafka does not have."""
    assert DEPRECATED.keys() <= {each.name for each in KAFKA}
