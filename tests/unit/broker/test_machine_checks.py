"""`tailrace check` on readings of machines, and on the one that runs the tests."""

import json
import os
import re
import socket
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tailrace.broker.config import broker_config
from tailrace.broker.machine_checks import Check, checks, secret_files
from tailrace.runtime.machine import Directory, Machine, Mount, read_machine
from tailrace.values import replace
from tests.unit.cli.running import documented, run

NOBODY = 65534
"""A user who owns nothing."""

DATA = Directory(
    path="/data",
    exists=True,
    is_usable=True,
    owner="kafka",
    mode=0o750,
    mount=Mount("/", "ext4", frozenset(["rw", "relatime"])),
    free_bytes=200 << 30,
    total_bytes=500 << 30,
    free_inodes=1_000_000,
    segment_count=300,
    partition_count=200,
    is_in_use=False,
)
GOOD = Machine(
    python=(3, 13),
    has_kernels=True,
    user="kafka",
    descriptors_max=524_288,
    threads_max=10_000,
    memory_bytes=16 << 30,
    memory_bytes_max=4 << 30,
    cores_max=2.0,
    swap_bytes=0,
    swappiness=60,
    backlog_max=4096,
    local_ports=(32768, 60999),
    is_clock_kept=True,
    directories=[DATA],
    refused_ports={},
    exposed_files=[],
)


def found(machine: Machine, **settings: str) -> list[Check]:
    """The checks of a machine that are not all well."""
    config = broker_config({"log.dirs": "/data", **settings})
    return [each for each in checks(machine, config) if each.level != "ok"]


def test_nothing_is_said_of_a_good_machine() -> None:
    """Nor of one that tells nothing, such as a container without /proc."""
    assert found(GOOD) == []
    nothing: dict[str, Any] = dict.fromkeys(
        [
            "threads_max", "memory_bytes", "memory_bytes_max", "cores_max", "swap_bytes",
            "swappiness", "backlog_max", "local_ports", "is_clock_kept",
        ]
    )  # fmt: skip
    unknown = replace(DATA, mount=None, free_inodes=None)
    assert found(replace(GOOD, directories=[unknown], **nothing)) == []


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"python": (3, 10)}, ("warn", "python", "Python 3.10", "3.11 to 3.14")),
        ({"has_kernels": False}, ("fail", "kernels", "not there", "pip install")),
        (
            {"descriptors_max": 2000},
            ("warn", "descriptors", "2000 .* 2848 for 200 partitions with 300", "LimitNOFILE=5696"),
        ),
        ({"threads_max": 100}, ("warn", "threads", "100 threads .* up to 64", "TasksMax=256")),
        (
            {"memory_bytes_max": 512 << 20},
            ("warn", "memory", "control group has 512.0 MiB; .* up to 612.0 MiB", "max.connec"),
        ),
        ({"cores_max": 0.5}, ("warn", "cpu", "0.5 cores .* each 0.1 s", "--cpus=1")),
        ({"swap_bytes": 1 << 30}, ("warn", "swap", "1.0 GiB, with vm.swappiness=60", "swappin")),
        ({"is_clock_kept": False}, ("warn", "clock", "nothing keeps it right", "timedatectl")),
        ({"backlog_max": 128}, ("warn", "backlog", "128 connections .* 512", "somaxconn=512")),
        ({"local_ports": (9000, 9999)}, ("warn", "port", "9092 is one of", "reserved_ports=9092")),
        (
            {"refused_ports": {("127.0.0.1", 9092): "address already in use"}},
            ("fail", "port", "127.0.0.1:9092: address already in use", "ss -ltnp"),
        ),
        ({"exposed_files": ["/etc/a"]}, ("warn", "secrets", "/etc/a has", "chmod o= /etc/a")),
        (
            {"directories": [DATA, replace(DATA, path="/more")]},
            ("warn", "volumes", "/data, /more are on one file system, /", "for each disk"),
        ),
    ],
    ids=lambda each: next(iter(each)) if isinstance(each, dict) else "",
)
def test_a_limit_is_said_with_its_reason_and_what_to_do(
    change: Mapping[str, Any], expected: tuple[str, str, str, str]
) -> None:
    """One line for each, and no other check changes its mind."""
    [check] = found(replace(GOOD, **change))
    level, name, text, advice = expected
    assert (check.level, check.name) == (level, name)
    assert re.search(text, check.text)
    assert advice in check.advice


@pytest.mark.parametrize(
    ("change", "level", "text", "advice"),
    [
        ({"is_usable": False}, "fail", "/data belongs to kafka", "install -d -o kafka"),
        ({"exists": False, "is_usable": False}, "fail", "above /data, which is not", "install -d"),
        ({"mode": 0o755}, "warn", "open to every user of the machine .mode 755", "chmod o= /data"),
        ({"free_bytes": 1 << 30}, "warn", "1.0 GiB of 500.0 GiB free; segments", "log-dirs"),
        ({"free_bytes": 1 << 20}, "fail", "1.0 MiB of 500.0 GiB free; segments", "log-dirs"),
        ({"free_inodes": 500}, "warn", "500 inodes free", "df -i"),
        ({"mount": Mount("/", "nfs4", frozenset(["rw"]))}, "warn", "nfs4: appends", "a disk"),
        ({"mount": Mount("/", "tmpfs", frozenset(["rw"]))}, "warn", "go with the machine", "dir"),
        ({"mount": Mount("/", "overlay", frozenset(["rw"]))}, "warn", "container", "a volume"),
        ({"mount": Mount("/", "xfs", frozenset(["ro", "noatime"]))}, "fail", "read-only", "mount"),
        ({"mount": Mount("/", "xfs", frozenset(["noatime", "sync"]))}, "warn", "sync", "without"),
        (
            {"mount": Mount("/", "ext4", frozenset(["relatime", "nobarrier"]))},
            "warn", "a flush does not reach the device", "without nobarrier",
        ),
        ({"mount": Mount("/", "ext4", frozenset(["rw"]))}, "warn", "access times", "relatime"),
    ],
)  # fmt: skip
def test_a_directory_is_looked_at(
    change: Mapping[str, Any], level: str, text: str, advice: str
) -> None:
    """Its rights, its room, and the file system that it is on."""
    [check] = found(replace(GOOD, directories=[replace(DATA, **change)]))
    assert check.level == level
    assert re.search(text, check.text)
    assert advice in check.advice


def test_a_port_of_the_node_itself_is_no_failure() -> None:
    """Its directory is in use then."""
    machine = replace(
        GOOD,
        directories=[replace(DATA, is_in_use=True)],
        refused_ports={("127.0.0.1", 9092): "address already in use"},
    )
    assert found(machine) == []


def test_files_with_secrets_are_those_that_settings_name() -> None:
    """The file of the settings is one if a secret is in it and is not only named there."""
    named = {
        "ssl.key.password": "${file:/run/secrets/broker.properties:key}",
        "listener.name.outside.ssl.keystore.location": "/etc/outside.pem",
        "log.dirs": "/data",
    }
    expected = ["/run/secrets/broker.properties", "/etc/outside.pem"]
    assert secret_files(named, "server.properties") == expected
    given = {"ssl.key.password": "hunter2"}
    assert secret_files(given, "server.properties") == ["server.properties"]


def test_references_name_the_places_of_their_providers() -> None:
    """A variable is in no file, and a directory has a file for each value."""
    classes = "org.apache.kafka.common.config.provider"
    named = {
        "config.providers": "env,dir",
        "config.providers.env.class": f"{classes}.EnvVarConfigProvider",
        "config.providers.dir.class": f"{classes}.DirectoryConfigProvider",
        "ssl.key.password": "${env:KEY_PASSWORD}",
        "ssl.keystore.password": "${dir:/run/secrets:keystore}",
    }
    assert secret_files(named, "server.properties") == ["/run/secrets/keystore"]


def test_reserved_ports_are_not_given_to_connections() -> None:
    """The advice keeps those that are reserved, names all that are not, and is enough."""
    listeners = "PLAINTEXT://:9092,B://:9093,C://:9094"
    settings = {
        "listeners": listeners,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,B:PLAINTEXT,C:PLAINTEXT",
    }
    machine = replace(GOOD, local_ports=(9000, 9999), reserved_ports="80,9094-9095")
    first, second = found(machine, **settings)
    advice = "sysctl net.ipv4.ip_local_reserved_ports=80,9094-9095,9092,9093, or another port"
    assert (first.advice, second.advice) == (advice, advice)
    assert found(replace(machine, reserved_ports="80,9092-9095"), **settings) == []


def test_this_machine_is_read(tmp_path: Path) -> None:
    """A taken port fails the command; a directory that is open elsewhere, and a readable secret."""
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    (data / "t-0").mkdir()
    (data / "t-0" / "00000000000000000000.log").touch()
    with (
        # Not in `tmp_path`, which no other user may enter.
        tempfile.TemporaryDirectory() as name,
        socket.create_server(("127.0.0.1", 0)) as taken,
    ):
        Path(name).chmod(0o755)
        file = Path(name, "server.properties")
        port = taken.getsockname()[1]
        file.write_text(
            f"log.dirs={data}\nlisteners=127.0.0.1:{port}\nlistener.name.x.sasl.jaas.config=y\n"
        )
        file.chmod(0o644)
        result = run("check", "--config", file, "--json")
        assert result.exit_code == 1
        lines = [json.loads(line) for line in result.stdout.splitlines()]
        fields = documented()["tailrace.check/1", "check", "check"]
        assert all(each.keys() - {"format", "type"} == fields for each in lines)
        by_name = {each["name"]: each for each in lines}
        assert by_name["port"]["level"] == "fail"
        assert "for 1 partitions with 1 segments" in by_name["descriptors"]["text"]
        assert str(file) in by_name["secrets"]["text"]
        taken.close()
        assert f"127.0.0.1:{port} is" in run("check", "--config", file).stdout


def test_limits_of_control_groups_are_read(tmp_path: Path) -> None:
    """The lowest from the group up to the root counts, of version 2 as of version 1."""
    files = {
        "proc/self/cgroup": "0::/pod/node\n3:memory:/node\n",
        "proc/meminfo": "MemTotal: 16384 kB\nSwapTotal: 0 kB\n",
        "proc/self/mountinfo": (
            "20 1 8:1 / / rw,relatime shared:1 - ext4 /dev/root rw\n"
            f"21 20 8:2 / {tmp_path!s}/a\\040b rw,noatime - xfs /dev/data rw,nobarrier\n"
        ),
        "sys/fs/cgroup/pod/node/memory.max": "max\n",
        "sys/fs/cgroup/pod/memory.max": "2097152\n",
        "sys/fs/cgroup/pod/cpu.max": "150000 100000\n",
        "sys/fs/cgroup/cpu.max": "max 100000\n",
        "sys/fs/cgroup/memory/node/memory.limit_in_bytes": "1048576\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{2**63 - 4096}\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    data = tmp_path / "a b"
    data.mkdir()
    machine = read_machine(directories=[str(data)], addresses=[], secrets=[], root=str(tmp_path))
    assert (machine.memory_bytes, machine.memory_bytes_max) == (16 << 20, 1 << 20)
    assert (machine.cores_max, machine.swap_bytes) == (1.5, 0)
    [directory] = machine.directories
    expected = Mount(str(data), "xfs", frozenset(["rw", "noatime", "nobarrier"]))
    assert directory.mount == expected


@pytest.mark.parametrize("name", ["données", "データ", "a\u3000b", "a\u2028b", "a\\b", "\udcff"])
def test_a_mount_is_found_whatever_its_name_is(tmp_path: Path, name: str) -> None:
    """Also where the name is not of Latin letters, or has a space that only people take for one."""
    data = tmp_path / name
    data.mkdir()
    mounts = tmp_path / "proc/self/mountinfo"
    mounts.parent.mkdir(parents=True)
    point = str(data).replace("\\", "\\134")
    text = f"20 1 8:1 / / rw - overlay none rw\n21 20 8:2 / {point} rw - xfs /dev/data rw\n"
    mounts.write_bytes(os.fsencode(text))
    machine = read_machine(directories=[str(data)], addresses=[], secrets=[], root=str(tmp_path))
    assert [each.mount for each in machine.directories] == [
        Mount(str(data), "xfs", frozenset(["rw"]))
    ]


def test_a_lock_that_may_not_be_read_says_nothing() -> None:
    """A directory of another user is not taken for one that a node has open."""
    is_root = os.geteuid() == 0
    # Not in `tmp_path`, which no other user may enter.
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        Path(name, ".lock").touch(mode=0)
        if is_root:
            os.seteuid(NOBODY)
        try:
            machine = read_machine(directories=[name], addresses=[], secrets=[])
        finally:
            if is_root:
                os.seteuid(0)
    assert [each.is_in_use for each in machine.directories] == [False]


def test_a_file_in_a_closed_folder_is_read_by_nobody_else() -> None:
    """Its own mode says that everyone may read it; only the way to it says that nobody can."""
    # Not in `tmp_path`, which no other user may enter.
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "keys")
        folder.mkdir()
        files = [folder / "open.pem", folder / "closed.pem"]
        for path, mode in zip(files, (0o644, 0o640), strict=True):
            path.touch()
            path.chmod(mode)
        link = Path(name, "link.pem")
        link.symlink_to(files[0])
        circle = Path(name, "circle.pem")
        circle.symlink_to(circle)
        found = []
        for outer, inner in ((0o755, 0o755), (0o755, 0o750), (0o700, 0o755)):
            Path(name).chmod(outer)
            folder.chmod(inner)
            secrets = [str(each) for each in (*files, link, circle, folder / "absent.pem")]
            found.append(read_machine(directories=[], addresses=[], secrets=secrets).exposed_files)
    assert found == [[str(files[0]), str(link)], [], []]


def test_a_machine_that_shows_nothing_is_read(tmp_path: Path) -> None:
    """Without /proc and /sys what they have is not known, and the rest is."""
    machine = read_machine(
        directories=[str(tmp_path / "new")], addresses=[], secrets=[], root=str(tmp_path)
    )
    assert (machine.memory_bytes, machine.swap_bytes, machine.cores_max) == (None, None, None)
    [directory] = machine.directories
    assert (directory.exists, directory.is_usable, directory.mount) == (False, True, None)


def test_an_address_that_is_no_name_is_refused(tmp_path: Path) -> None:
    """A host with an empty or a long label cannot be encoded for a question."""
    addresses = [("a..b", 9092), ("x" * 64, 9092)]
    machine = read_machine(directories=[], addresses=addresses, secrets=[], root=str(tmp_path))
    assert machine.refused_ports == dict.fromkeys(addresses, "name or service not known")
