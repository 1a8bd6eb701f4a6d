"""Marked secrets go into a broker, clients and tools, and into nothing that they write."""

import logging
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace import Admin, Producer
from tailrace.client.admin import (
    ConfigChange,
    ConfigResource,
    NewTopic,
    ScramMechanism,
    ScramUpsertion,
)
from tailrace.errors import ConfigError, TailraceError
from tailrace.protocol.config_resources import ResourceType
from tailrace.schemas.config import parse_registry_config
from tests.unit.cli.running import run
from tests.wire.test_serve import COMMAND

pytestmark = pytest.mark.wire

MARK = "hunter2-8Jq5"
"""A part of each secret."""
JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    f'username="a" password="{MARK}" user_a="{MARK}";'
)
SECRETS = {
    "ssl.keystore.password": MARK,
    "ssl.key.password": MARK,
    "ssl.truststore.password": MARK,
    "listener.name.plaintext.ssl.keystore.password": MARK,
    "listener.name.other.ssl.key.password": MARK,
    "sasl.jaas.config": JAAS,
    "listener.name.plaintext.plain.sasl.jaas.config": JAAS,
    "delegation.token.secret.key": MARK,
    "sasl.oauthbearer.client.credentials.client.secret": MARK,
    "password.encoder.secret": MARK,
}
TAKEN = {
    "listener.name.plaintext.ssl.keystore.password", "listener.name.other.ssl.key.password",
}  # fmt: skip
"""Secrets that a running broker takes."""
LOGIN = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "a"}


def written(path: Path, settings: dict[str, str]) -> Path:
    """A properties file, which is where secrets belong."""
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return path


def address_of(process: subprocess.Popen[str]) -> str:
    """The address of a broker, once it is started."""
    assert process.stdout is not None
    first = process.stdout.readline()
    assert first.startswith("listening on "), first
    assert process.stdout.readline() == "[KafkaServer id=1] started\n"
    return first.split()[2].rstrip(",")


def answers(address: str) -> Iterator[str]:
    """Texts of a broker's answers and of errors that an administrator can get."""
    broker = ConfigResource(ResourceType.BROKER, "1")
    with Admin(bootstrap_servers=address) as admin:
        for name in (*SECRETS, "ssl.keystore.pasword"):
            outcome = admin.incremental_alter_configs({broker: [ConfigChange(name, MARK)]})
            if name in TAKEN:
                yield f"{outcome!r}{outcome.results()}"
                continue
            with pytest.raises(TailraceError) as refused:
                outcome.results()
            yield f"{outcome!r}{refused.value}"
        entries = admin.describe_configs([broker], include_synonyms=True).results()[broker]
        yield repr(entries)
        assert entries.keys() >= TAKEN
        for name in SECRETS.keys() & entries.keys():
            assert entries[name].value is None, name
            assert entries[name].is_sensitive, name
        # The value of a setting that is no secret is in the error: the test would see one.
        outcome = admin.incremental_alter_configs({broker: [ConfigChange("max.connections", MARK)]})
        with pytest.raises(TailraceError, match=MARK):
            outcome.results()
        user = ScramUpsertion("u", ScramMechanism.SHA_256, MARK)
        yield repr(user)
        admin.alter_user_scram_credentials([user]).results()
        yield repr(admin.describe_user_scram_credentials(["u"]).results())
        admin.create_topics([NewTopic("t", 1)]).results()


def outputs(address: str, directory: Path) -> Iterator[str]:
    """The output of commands that get secrets, or the directory of the broker."""
    config = directory / "server.properties"
    client = written(directory / "client.properties", {**LOGIN, "sasl.password": MARK})
    wrong = written(
        directory / "wrong.properties",
        {
            **LOGIN, "sasl.jaas.config": f"NoModule required password='{MARK}'",
            "ssl.keystore.key": MARK, "ssl.key.password": MARK, "ssl.keystore.pasword": MARK,
        },
    )  # fmt: skip
    mistyped = written(
        directory / "mistyped.properties",
        {"log.dirs": "data", "num.partitions": "0"}
        | {f"{name}s": value for name, value in SECRETS.items()},
    )
    written(directory / "kept.properties", {"secret": MARK})
    referring = written(
        directory / "referring.properties",
        {
            "log.dirs": "data", "config.providers": "file",
            "config.providers.file.class": (
                "org.apache.kafka.common.config.provider.FileConfigProvider"
            ),
        }
        | dict.fromkeys(
            ("num.partitions", "listeners", "broker.rack", "ssl.key.password", "ssl.key.pasword"),
            f"${{file:{directory}/kept.properties:secret}}",
        ),
    )  # fmt: skip
    commands: list[list[object]] = [
        ["topic", "list", "-b", address, "--command-config", client],
        ["topic", "list", "-b", address, "--command-config", wrong],
        ["topic", "describe", "t", "-b", address],
        ["config", "validate", config],
        ["config", "validate", config, "--json"],
        ["config", "validate", mistyped],
        ["config", "validate", referring],
        ["config", "validate", referring, "--json"],
        ["serve", "--config", referring],
        ["cluster", "describe", "--data", directory / "data", "--json"],
        ["storage", "info", "--data", directory / "data"],
        ["serve", "--config", mistyped],
    ]
    for each in commands:
        result = run(*each)
        assert result.output or result.exception is not None, each
        yield f"{result.output}{result.exception!r}{result.exception}"


def test_no_secret_is_written_anywhere(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Not to logs, answers, errors, output or command lines; in files only where nobody reads."""
    caplog.set_level(logging.DEBUG)
    config = written(
        tmp_path / "server.properties",
        {"log.dirs": str(tmp_path / "data"), "listeners": "PLAINTEXT://127.0.0.1:0", **SECRETS},
    )
    output = tmp_path / "broker.log"
    with (
        output.open("w") as log,
        subprocess.Popen(
            [*COMMAND, "--config", str(config), "--verbose"],
            stdout=subprocess.PIPE, stderr=log, text=True,
        ) as process,
    ):  # fmt: skip
        try:
            address = address_of(process)
            command_line = Path(f"/proc/{process.pid}/cmdline").read_text()
            said = [command_line, *answers(address), *outputs(address, tmp_path)]
        finally:
            process.terminate()
            rest, _ = process.communicate(timeout=60)
    said.append(rest)
    with pytest.raises(ConfigError) as refused:
        Producer({"ssl.key.password": MARK, "ssl.protocol": MARK[:3]}, bootstrap_servers=address)
    said += [str(refused.value), repr(refused.value), caplog.text]
    registry = {
        "schema.registry.url": f"http://u:{MARK}@localhost", "basic.auth.user.info": f"u:{MARK}",
        "ssl.key.password": MARK,
    }  # fmt: skip
    said.append(repr(parse_registry_config(registry)))
    assert [text for text in said if MARK in text] == []
    private = tmp_path / "data" / "__cluster_metadata-0"
    assert stat.S_IMODE(private.stat().st_mode) == 0o700
    found = {
        path.relative_to(tmp_path)
        for path in tmp_path.rglob("*")
        if path.is_file() and MARK.encode() in path.read_bytes() and private not in path.parents
    }
    assert {each.suffix for each in found} == {".properties"}
    assert "server.properties" in {each.name for each in found}
