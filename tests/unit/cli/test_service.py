"""The units that `tailrace service` prints, and systemd's own check of them where it is there."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tailrace.broker.config import broker_config
from tailrace.config.environment import kafka_variables, with_listeners
from tests.unit.cli.running import lines, said

CONTAINERFILE = Path(__file__).parents[3] / "Containerfile"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """The settings of a node with two listeners, one of them on a name."""
    file = tmp_path / "server.properties"
    (tmp_path / "a b").mkdir()
    file.write_text(
        f"log.dirs={tmp_path}/a b,{tmp_path}/100%\nmetadata.log.dir={tmp_path}/meta\n"
        "listeners=INSIDE://[::1]:9092,OUTSIDE://example.com:9094\n"
        "listener.security.protocol.map=INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT\n"
        "inter.broker.listener.name=INSIDE\ntailrace.shutdown.timeout.ms=90500\n"
    )
    return file


def test_a_node_gets_its_units(config: Path, tmp_path: Path) -> None:
    """The service has the paths and limits of its settings; systemd finds no fault in both."""
    unit = lines("service", "unit", "--config", config, "--user", "kafka", "--sockets")
    place = str(tmp_path)
    for line in (
        "Type=notify",
        "User=kafka",
        "TimeoutStopSec=106",
        "RestartPreventExitStatus=1 2",
        "Sockets=tailrace-inside.socket",
        "Sockets=tailrace-outside.socket",
        f'ReadWritePaths="{place}/a b" {place}/100%% {place}/meta',
    ):
        assert line in unit
    [start] = [line for line in unit if line.startswith("ExecStart=/")]
    assert start.endswith(f" serve --config {config}")
    socket = lines("service", "socket", "--config", config, "inside")
    assert "ListenStream=[::1]:9092" in socket
    assert "FileDescriptorName=INSIDE" in socket
    analyze = shutil.which("systemd-analyze")
    if analyze is not None:
        files = [tmp_path / "tailrace.service", tmp_path / "tailrace-inside.socket"]
        for file, text in zip(files, (unit, socket), strict=True):
            file.write_text("\n".join(line for line in text if "outside" not in line))
        done = subprocess.run(
            [analyze, "verify", *map(str, files)], capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")


def test_an_apostrophe_in_a_path_is_one_for_systemd(tmp_path: Path) -> None:
    """It would begin a quoted part there, whose end is missing."""
    file = tmp_path / "it's.properties"
    file.write_text(f"log.dirs={tmp_path}/it's\n")
    unit = lines("service", "unit", "--config", file)
    assert f'ReadWritePaths="{tmp_path}/it\'s"' in unit
    [start] = [line for line in unit if line.startswith("ExecStart=/")]
    assert start.endswith(f' --config "{file}"')


def test_a_controller_gets_its_unit_too(tmp_path: Path) -> None:
    """It has one directory; a path that depends on where the command is typed is refused."""
    file = tmp_path / "controller.properties"
    text = (
        "process.roles=controller\nnode.id=100\ncontroller.listener.names=C\n"
        "listeners=C://127.0.0.1:9093\nlog.dirs={}\n"
    )
    file.write_text(text.format("/data/controller"))
    unit = lines("service", "unit", "--config", file, "--sockets")
    assert {"ReadWritePaths=/data/controller", "Sockets=tailrace-c.socket"} <= {*unit}
    assert "Description=Tailrace node 100 (controller)" in unit
    file.write_text(text.format("data"))
    assert "log directory data: a service needs" in said("service", "unit", "--config", file)


def test_a_socket_needs_a_listener_on_an_address_and_a_port(config: Path) -> None:
    """Another one is refused, with those that there are."""
    assert said("service", "socket", "--config", config, "main").endswith(
        "there is no listener main; there are INSIDE, OUTSIDE"
    )
    assert "systemd listens on addresses only" in said(
        "service", "socket", "--config", config, "outside"
    )
    config.write_text(f"log.dirs={config.parent}\nlisteners=127.0.0.1:0\n")
    assert "PLAINTEXT has port 0, and systemd listens on a port that is given" in said(
        "service", "socket", "--config", config, "PLAINTEXT"
    )


def test_the_image_is_a_node_by_its_variables() -> None:
    """It listens on all addresses, writes to its volume, and is asked where it answers."""
    text = CONTAINERFILE.read_text()
    variables = dict(re.findall(r"\b(KAFKA_\w+)=(\S+)", text))
    config = broker_config(with_listeners(kafka_variables(variables).settings))
    [listener] = config.listeners
    assert (listener.host, listener.port) == ("0.0.0.0", 9092)
    assert listener.advertised == ("localhost", 9092)
    assert f'VOLUME ["{config.metadata_directory}"]' in text
    assert config.http_listener is not None
    assert "http://{}:{}/readyz".format(*config.http_listener) in text
