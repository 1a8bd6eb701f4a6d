"""Which combinations of listeners a broker starts with, held against Kafka's `KafkaConfig`.

Each is asked for a broker of a cluster and for a node that is a controller too. Where both take
them they have to agree on the advertised addresses, and on the listener for brokers.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from compat.kafka import run_java
from compat.report import Report
from tailrace.broker.config import broker_config
from tailrace.errors import ConfigError

_PROGRAM = Path(__file__).with_name("Listeners.java")
_MAP: Final = "CONTROLLER:PLAINTEXT,IN:PLAINTEXT,OUT:PLAINTEXT,SAFE:SSL"
_BOTH: Final = {
    "listeners": "IN://a:1,OUT://b:2",
    "listener.security.protocol.map": _MAP,
    "inter.broker.listener.name": "IN",
}
_ROLES: Final = {
    "broker": {"controller.quorum.bootstrap.servers": "c:9093"},
    "broker,controller": {"controller.quorum.voters": "1@c:9093"},
}
_CASES: Final = (
    {"listeners": "PLAINTEXT://a:1"},
    {"listeners": "plaintext://a:1"},
    {"listeners": "PLAINTEXT://a:1", "advertised.listeners": "PLAINTEXT://b:0"},
    {"listeners": "PLAINTEXT://a:1", "advertised.listeners": "IN://b:2"},
    {"listeners": "PLAINTEXT://a:1", "advertised.listeners": "PLAINTEXT://0.0.0.0:2"},
    {"listeners": "PLAINTEXT://a:1", "advertised.listeners": "CONTROLLER://b:2"},
    {"listeners": "PLAINTEXT://a:1", "security.inter.broker.protocol": "PLAINTEXT"},
    {"listeners": "PLAINTEXT://a:1", "security.inter.broker.protocol": "SSL"},
    {"listeners": "PLAINTEXT://a:1", "inter.broker.listener.name": "PLAINTEXT"},
    {"listeners": "PLAINTEXT://a:1", "inter.broker.listener.name": "IN"},
    {"listeners": "PLAINTEXT://a:1", "inter.broker.listener.name": "CONTROLLER"},
    {"listeners": "PLAINTEXT://a:1", "inter.broker.listener.name": "PLAINTEXT",
     "security.inter.broker.protocol": "PLAINTEXT"},
    {"listeners": "PLAINTEXT://a"},
    {"listeners": "PLAINTEXT://a:x"},
    {"listeners": "IN://a:1"},
    {"listeners": "PLAINTEXT://a:1", "listener.security.protocol.map": _MAP},
    {"listeners": "PLAINTEXT://a:1", "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT"},
    {"listeners": "PLAINTEXT://a:1", "listener.security.protocol.map": "PLAINTEXT:NONE"},
    {"listeners": "PLAINTEXT://a:1", "controller.listener.names": ""},
    _BOTH,
    _BOTH | {"inter.broker.listener.name": "out"},
    _BOTH | {"inter.broker.listener.name": "NONE"},
    _BOTH | {"inter.broker.listener.name": ""},
    _BOTH | {"advertised.listeners": "OUT://c:3"},
    _BOTH | {"advertised.listeners": "IN://c:3"},
    _BOTH | {"advertised.listeners": "OUT://c:3,IN://c:3"},
    _BOTH | {"advertised.listeners": "IN://c:3,IN://d:4"},
    _BOTH | {"advertised.listeners": "IN://c:3,PLAINTEXT://d:4"},
    _BOTH | {"listeners": "IN://a:1,IN://b:2"},
    _BOTH | {"listeners": "IN://a:1,OUT://b:1"},
    _BOTH | {"listeners": "IN://:1,OUT://127.0.0.1:1"},
    _BOTH | {"listeners": "IN://127.0.0.1:1,OUT://127.0.0.2:1"},
    _BOTH | {"listeners": "IN://127.0.0.1:1,OUT://[::1]:1"},
    _BOTH | {"listeners": "IN://[::1]:1,OUT://[::2]:1"},
    _BOTH | {"listeners": "IN://a:0,OUT://a:0"},
    _BOTH | {"listeners": "in://a:1,Out://b:2", "advertised.listeners": "In://:3"},
    _BOTH | {"listeners": "IN://a:1,OUT://b:2,OTHER://c:3"},
    _BOTH | {"listeners": "IN://a:1,OUT://b:2,PLAINTEXT://c:3"},
    _BOTH | {"listeners": "IN://a:1,SAFE://b:2"},
)  # fmt: skip
_LAXER: Final = (
    {"listeners": "a:1"},
    {"listeners": "PLAINTEXT://a:1", "advertised.listeners": "b:2"},
    {"listeners": "PLAINTEXT://0.0.0.0:1"},
    {"listeners": "IN://a:1", "listener.security.protocol.map": _MAP},
)
"""Combinations that only Kafka refuses: addresses without names, all addresses of the machine, for
which its name is advertised, and a single listener that brokers use whatever its name."""


def check(report: Report, java: Path, class_path: str, directory: Path) -> None:
    """Ask both what they make of each combination."""
    asked = [(role, settings) for settings in (*_CASES, *_LAXER) for role in _ROLES]
    path = directory / "listeners.tsv"
    lines = ["\t".join(f"{k}={v}" for k, v in _whole(*each).items()) for each in asked]
    path.write_text("".join(f"{line}\n" for line in lines))
    lines = run_java(java, class_path, [str(_PROGRAM), str(path)]).splitlines()
    printed = [line.removeprefix("= ") for line in lines if line.startswith("= ")]
    report.check(
        f"{len(asked)} combinations of listeners are taken or refused as Kafka does",
        [*_differences(asked, printed)],
        explained=f"Kafka refuses {len(_LAXER)} of them that are taken here",
    )


def _differences(asked: list[tuple[str, dict[str, str]]], printed: list[str]) -> Iterator[str]:
    for (role, settings), theirs in zip(asked, printed, strict=True):
        ours = _ours(_whole(role, settings))
        wanted = theirs
        if settings in _LAXER:
            wanted = ours if theirs == "refuses" != ours else "taken here only"
        if ours != wanted:
            yield f"{role} {settings}: Kafka {theirs!r}, ours {ours!r}"


def _whole(role: str, settings: dict[str, str]) -> dict[str, str]:
    found = {
        "process.roles": role,
        "node.id": "1",
        "log.dirs": "/data",
        "controller.listener.names": "CONTROLLER",
        **_ROLES[role],
        **settings,
    }
    if role != "broker":
        found["listeners"] += ",CONTROLLER://c:9093"
    return {name: text for name, text in found.items() if text}


def _ours(settings: dict[str, str]) -> str:
    try:
        config = broker_config(settings)
    except ConfigError:
        return "refuses"
    advertised = []
    for each in config.listeners:
        if each.is_advertised:
            host, port = each.advertised or (each.host, each.port)
            # Kafka has null where the name of the machine is meant.
            advertised.append(f"{each.name} {host or None} {port}".replace("None", "null"))
    return f"{','.join(sorted(advertised))} by {config.inter_broker_listener}"
