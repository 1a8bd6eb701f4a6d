"""`KAFKA_*` variables: which settings they are, by the rule of Apache Kafka's image."""

from pathlib import Path

import pytest

from tailrace.config.environment import (
    Variables,
    kafka_variables,
    named_with,
    with_listeners,
    with_stores,
)
from tailrace.errors import ConfigError
from tests.unit.broker.test_kafka_settings import KAFKA


@pytest.mark.parametrize(
    ("variable", "name"),
    [
        ("KAFKA_LISTENERS", "listeners"),
        ("KAFKA_LOG_RETENTION_MS", "log.retention.ms"),
        ("KAFKA_A__B", "a_b"),
        ("KAFKA_A___B", "a-b"),
        ("KAFKA_A____B_C", "a-.b.c"),
        ("KAFKA_LISTENER_NAME_INSIDE_SCRAM___SHA___256_SASL_JAAS_CONFIG",
         "listener.name.inside.scram-sha-256.sasl.jaas.config"),
    ],
)  # fmt: skip
def test_a_variable_is_a_setting(variable: str, name: str) -> None:
    """Lower case, and one, two and three underscores are a dot, an underscore and a hyphen."""
    found = kafka_variables({variable: "x=\\y", "PATH": "/bin", "KAFKANODE": "1", "kafka_a": "1"})
    assert found.settings == {name: "x=\\y"}
    assert found.sources == {name: variable}
    assert found.passed_over == ()


def test_every_setting_of_kafka_can_be_given() -> None:
    """No name of one is among the variables of Java, of the image or of Kubernetes."""
    for each in KAFKA:
        variable = "KAFKA_" + each.name.upper().replace(".", "_")
        assert kafka_variables({variable: "1"}).settings == {each.name: "1"}


@pytest.mark.parametrize(
    "variable",
    [
        "KAFKA_HEAP_OPTS", "KAFKA_OPTS", "KAFKA_JMX_OPTS", "KAFKA_JVM_PERFORMANCE_OPTS",
        "KAFKA_LOG4J_LOGGERS", "KAFKA_VERSION", "KAFKA_SSL_KEYSTORE_FILENAME",
        # From Kubernetes, in each pod beside a service "kafka".
        "KAFKA_PORT", "KAFKA_SERVICE_HOST", "KAFKA_SERVICE_PORT", "KAFKA_SERVICE_PORT_CLIENTS",
        "KAFKA_PORT_9092_TCP", "KAFKA_PORT_9092_TCP_ADDR", "KAFKA_UI_SERVICE_HOST",
    ],
)  # fmt: skip
def test_a_variable_that_is_no_setting_is_passed_over(variable: str) -> None:
    """It is named, so that nobody looks for its effect."""
    found = kafka_variables({variable: "1"})
    assert (found.settings, found.passed_over) == ({}, (variable,))


def test_listeners_follow_from_those_that_are_advertised() -> None:
    """All addresses of the container, unless it is a controller or has listeners of its own."""
    advertised = {"advertised.listeners": "A://kafka.example.com:9092,B://localhost:9093"}
    found = with_listeners(advertised)
    assert found == {**advertised, "listeners": "A://0.0.0.0:9092,B://0.0.0.0:9093"}
    for more in ({"listeners": "A://:1"}, {"process.roles": "controller"}):
        assert with_listeners(advertised | more) == advertised | more


STORES = {
    "KAFKA_ADVERTISED_LISTENERS": "SASL_SSL://kafka.example.com:9093",
    "KAFKA_SSL_KEYSTORE_FILENAME": "broker.p12",
    "KAFKA_SSL_KEYSTORE_CREDENTIALS": "keystore_creds",
    "KAFKA_SSL_KEY_CREDENTIALS": "key_creds",
    "KAFKA_SSL_TRUSTSTORE_FILENAME": "trusted.p12",
    "KAFKA_SSL_TRUSTSTORE_CREDENTIALS": "truststore_creds",
}


def taken(environment: dict[str, str], secrets: Path) -> Variables:
    """The settings of an environment with the files that it names."""
    return with_stores(kafka_variables(environment), environment, secrets=secrets)


def test_files_of_certificates_are_settings(tmp_path: Path) -> None:
    """The keystore's with an encrypted listener, the truststore's if it asks for certificates."""
    for variable, name in STORES.items():
        if variable != "KAFKA_ADVERTISED_LISTENERS":
            (tmp_path / name).write_text(f"of {name}\n\n")
    given = {**STORES, "KAFKA_SSL_KEYSTORE_LOCATION": "/other"}
    found = taken(given, tmp_path)
    keystore = {
        "ssl.keystore.location": f"{tmp_path}/broker.p12",
        "ssl.keystore.password": "of keystore_creds",
        "ssl.key.password": "of key_creds",
    }
    listeners = {"advertised.listeners": STORES["KAFKA_ADVERTISED_LISTENERS"]}
    assert found.settings == {**listeners, **keystore}
    assert found.sources["ssl.key.password"] == "KAFKA_SSL_KEY_CREDENTIALS"
    assert found.passed_over == (
        "KAFKA_SSL_TRUSTSTORE_CREDENTIALS", "KAFKA_SSL_TRUSTSTORE_FILENAME",
    )  # fmt: skip
    found = taken(given | {"KAFKA_SSL_CLIENT_AUTH": "required"}, tmp_path)
    assert found.passed_over == ()
    assert found.settings == {
        **listeners, **keystore,
        "ssl.client.auth": "required",
        "ssl.truststore.location": f"{tmp_path}/trusted.p12",
        "ssl.truststore.password": "of truststore_creds",
    }  # fmt: skip
    plain = given | {"KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://kafka.example.com:9093"}
    assert len(taken(plain, tmp_path).passed_over) == 5


def test_a_file_that_is_missing_is_said_with_its_variable(tmp_path: Path) -> None:
    """All of them at once, and what to give instead."""
    (tmp_path / "broker.p12").write_text("x")
    with pytest.raises(ConfigError) as raised:
        taken(STORES, tmp_path)
    missing = "cannot be read (No such file or directory); mount it there, or give KAFKA_SSL_"
    assert raised.value.faults == [
        f"KAFKA_SSL_{name}_CREDENTIALS: {tmp_path}/{file} {missing}{name}_PASSWORD instead"
        for name, file in (("KEYSTORE", "keystore_creds"), ("KEY", "key_creds"))
    ]


def test_a_fault_has_its_variable() -> None:
    """A user looks for the variable, and knows no file that has the setting."""
    said = named_with({"a.b": "KAFKA_A_B"}, "a.b: no such setting")
    assert said == "a.b: no such setting (it is from the variable KAFKA_A_B)"
    assert named_with({"a.b": "KAFKA_A_B"}, "c: no such setting") == "c: no such setting"
