"""Config providers: values of settings that are kept in files and variables."""

from pathlib import Path

import pytest

from tailrace.broker.config import broker_config
from tailrace.config.providers import FILE_BYTES_MAX, looked_up
from tailrace.errors import ConfigError

CLASSES = "org.apache.kafka.common.config.provider"
FILE = {
    "config.providers": "file",
    "config.providers.file.class": f"{CLASSES}.FileConfigProvider",
}
DIRECTORY = {
    "config.providers": "dir",
    "config.providers.dir.class": f"{CLASSES}.DirectoryConfigProvider",
}
ENVIRONMENT = {
    "config.providers": "env",
    "config.providers.env.class": f"{CLASSES}.EnvVarConfigProvider",
}


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    """A directory with a properties file, and a file for a secret alone."""
    (tmp_path / "all.properties").write_text("# all\nkeystore = hunter2\nport=9094\n")
    (tmp_path / "password").write_text("hunter3\n")
    (tmp_path / "large").write_bytes(b"x" * (FILE_BYTES_MAX + 1))
    return tmp_path


def found(texts: dict[str, str], **environment: str) -> dict[str, str]:
    """The settings without references, which can all be looked up."""
    faults: list[str] = []
    looked = looked_up(texts, faults=faults, environment=environment)
    assert faults == []
    return dict(looked.texts)


def faults_of(texts: dict[str, str], **environment: str) -> list[str]:
    """Why settings cannot be looked up."""
    faults: list[str] = []
    looked_up(texts, faults=faults, environment=environment)
    return faults


def test_values_come_from_files_and_variables(secrets: Path) -> None:
    """Several in one value, too, and those of single providers are no settings any more."""
    texts = {
        **FILE, **DIRECTORY, **ENVIRONMENT, "config.providers": "file, dir,env",
        "a": f"x${{file:{secrets}/all.properties:keystore}}y${{env:NAME}}z",
        "b": f"${{dir:{secrets}:password}}",
        "c": "plain",
    }  # fmt: skip
    assert found(texts, NAME="${env:OTHER}", OTHER="o") == {
        "config.providers": "file, dir,env",
        "a": "xhunter2y${env:OTHER}z",
        "b": "hunter3\n",
        "c": "plain",
    }


def test_a_reference_to_no_provider_is_a_value() -> None:
    """It is one in Kafka, too: a value may have such characters for another reason."""
    for more in ({}, ENVIRONMENT):
        texts = {"a": "${file:/x:y}", "b": "${", "c": "${env}", "d": "${:}", **more}
        assert {name: found(texts)[name] for name in "abcd"} == {
            "a": "${file:/x:y}", "b": "${", "c": "${env}", "d": "${:}",
        }  # fmt: skip


def test_limits_say_what_may_be_looked_up(secrets: Path) -> None:
    """Paths by the way they are written, without steps upwards, and variables by a pattern."""
    (secrets / "in").mkdir()
    allowed = {**FILE, "config.providers.file.param.allowed.paths": f"{secrets}/in,{secrets}/x/.."}
    assert found({**allowed, "a": f"${{file:{secrets}/all.properties:port}}"})["a"] == "9094"
    allowed["config.providers.file.param.allowed.paths"] = f"{secrets}/in"
    reference = f"${{file:{secrets}/in/../all.properties:port}}"
    assert faults_of({**allowed, "a": reference}) == [
        f"a: {reference} cannot be looked up: allowed.paths does not allow this path"
    ]
    named = {**ENVIRONMENT, "config.providers.env.param.allowlist.pattern": "BROKER_.*"}
    assert found({**named, "a": "${env:BROKER_A}"}, BROKER_A="1")["a"] == "1"
    (said,) = faults_of({**named, "a": "${env:HOME}"}, HOME="/root")
    assert said.endswith("allowlist.pattern does not allow this variable")


REFUSED = [
    ({**FILE, "a": "${file:/none:key}"}, "a: ${file:/none:key} cannot be looked up: /none cannot"),
    ({**FILE, "a": "${file:SECRETS/all.properties:key}"}, "the file has no line for 'key'; add it"),
    ({**FILE, "a": "${file:SECRETS/large:key}"}, "has more than 1048576 bytes"),
    ({**FILE, "a": "${file:SECRETS:key}"}, "cannot be read (Is a directory)"),
    ({**FILE, "a": "${file:SECRETS/\0:key}"}, "cannot be looked up: embedded null byte"),
    ({**DIRECTORY, "a": "${dir:SECRETS:../x}"}, "with the name of a file in it"),
    ({**DIRECTORY, "a": "${dir:SECRETS:none}"}, "none cannot be read (No such file or directory)"),
    ({**ENVIRONMENT, "a": "${env:NONE}"}, "there is no such variable; set it"),
    ({**ENVIRONMENT, "a": "${env:x:NONE}"}, "a variable has no path"),
    ({"config.providers": "file"}, "config.providers.file.class: '' is no class that is known"),
    ({"config.providers": "v", "config.providers.v.class": "x.Vault"}, "'x.Vault' is no class"),
    ({**FILE, "config.providers.file.param.allowed.path": "/"},
     "no such setting; did you mean config.providers.file.param.allowed.paths?"),
    ({**FILE, "config.providers.file.param.allowed.paths": "x"}, "x is no absolute path"),
    ({**ENVIRONMENT, "config.providers.env.param.allowlist.pattern": "["}, "no regular expression"),
]  # fmt: skip


@pytest.mark.parametrize(("texts", "words"), REFUSED)
def test_what_cannot_be_looked_up_is_one_sentence(
    texts: dict[str, str], words: str, secrets: Path
) -> None:
    """With the setting and the reference; Kafka would take the reference for the value."""
    given = {name: text.replace("SECRETS", str(secrets)) for name, text in texts.items()}
    (said,) = faults_of(given)
    assert words in said
    with pytest.raises(ConfigError, match=r"config\.providers|cannot be looked up"):
        broker_config({"log.dirs": "data", **given})


def test_a_broker_has_the_values(secrets: Path) -> None:
    """Values that are looked up count as those that are given."""
    address = f"PLAINTEXT://:${{file:{secrets}/all.properties:port}}"
    config = broker_config({"log.dirs": "data", "listeners": address, **FILE})
    assert config.listeners[0].port == 9094
    assert config.ignored == {}


def test_an_error_does_not_show_what_was_looked_up(secrets: Path) -> None:
    """A reference to a password may be in the wrong line."""
    reference = f"${{file:{secrets}/all.properties:keystore}}"
    long = f"${{dir:{secrets}:long}}"
    (secrets / "long").write_text("correct horse battery staple" * 9)
    with pytest.raises(ConfigError) as raised:
        broker_config(
            {
                "log.dirs": "data", "num.partitions": reference, "background": reference,
                "listeners": reference, "log.retention.ms": long,
                **FILE, **DIRECTORY, "config.providers": "file,dir",
            }
        )  # fmt: skip
    assert "hunter2" not in str(raised.value)
    assert "horse" not in str(raised.value)
    assert "num.partitions: '***' is not a whole number" in raised.value.faults
