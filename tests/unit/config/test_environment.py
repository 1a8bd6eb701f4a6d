"""`KAFKA_*` variables: which settings they are, by the rule of Apache Kafka's image."""

import pytest

from tailrace.config.environment import kafka_variables, named_with, with_listeners
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


def test_a_fault_has_its_variable() -> None:
    """A user looks for the variable, and knows no file that has the setting."""
    said = named_with({"a.b": "KAFKA_A_B"}, "a.b: no such setting")
    assert said == "a.b: no such setting (it is from the variable KAFKA_A_B)"
    assert named_with({"a.b": "KAFKA_A_B"}, "c: no such setting") == "c: no such setting"
