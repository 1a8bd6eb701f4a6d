"""Settings of topics, described and changed with other people's admin clients."""

import time
import warnings
from collections.abc import Callable, Iterator

import confluent_kafka.admin
import pytest

from tailrace import Broker
from tests.wire.clients import CLIENTS, TIMEOUT_S, Sent

with warnings.catch_warnings():
    # kafka-python asks for resources in a way that newer Pythons warn of.
    warnings.simplefilter("ignore")
    import kafka
    import kafka.admin

pytestmark = pytest.mark.wire

TIMESTAMP = 1_600_000_000_000
RECORDS = [Sent(key=b"k", value=b"%d" % number, timestamp=TIMESTAMP) for number in range(20)]
KEPT = {"segment.bytes": "2500000", "retention.ms": "-1"}
Configs = dict[str, str]


class ConfluentAdmin:
    """confluent-kafka, which is librdkafka."""

    def __init__(self, address: str) -> None:
        self._admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": address})

    def create(self, topic: str, configs: Configs) -> None:
        """Make a topic of one partition."""
        new = confluent_kafka.admin.NewTopic(topic, 1, 1, config=configs)
        self._admin.create_topics([new])[topic].result(TIMEOUT_S)

    def describe(self, topic: str) -> Configs:
        """The settings that are the topic's own."""
        found = self._describe(confluent_kafka.admin.ConfigResource.Type.TOPIC, topic)
        source = confluent_kafka.admin.ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        return {name: entry.value for name, entry in found.items() if entry.source == source}

    def describe_broker(self) -> Configs:
        """All settings of broker 1."""
        found = self._describe(confluent_kafka.admin.ConfigResource.Type.BROKER, "1")
        return {name: entry.value for name, entry in found.items()}

    def set(self, topic: str, name: str, value: str) -> None:
        """Give one setting a value."""
        entry = confluent_kafka.admin.ConfigEntry(
            name,
            value,
            incremental_operation=confluent_kafka.admin.AlterConfigOpType.SET,
        )
        wanted = confluent_kafka.admin.ConfigResource(
            confluent_kafka.admin.ConfigResource.Type.TOPIC, topic, incremental_configs=[entry]
        )
        self._admin.incremental_alter_configs([wanted])[wanted].result(TIMEOUT_S)

    def replace(self, topic: str, configs: Configs) -> None:
        """Give the topic these settings and no others."""
        wanted = confluent_kafka.admin.ConfigResource(
            confluent_kafka.admin.ConfigResource.Type.TOPIC, topic, set_config=configs
        )
        with pytest.deprecated_call():
            answers = self._admin.alter_configs([wanted])
        answers[wanted].result(TIMEOUT_S)

    def close(self) -> None:
        """Do nothing: it ends with the object."""

    def _describe(
        self, kind: "confluent_kafka.admin.ResourceType", name: str
    ) -> "dict[str, confluent_kafka.admin.ConfigEntry]":
        wanted = confluent_kafka.admin.ConfigResource(kind, name)
        return self._admin.describe_configs([wanted])[wanted].result(TIMEOUT_S)  # type: ignore[no-any-return]


class KafkaPythonAdmin:
    """kafka-python, in pure Python."""

    def __init__(self, address: str) -> None:
        self._admin = kafka.KafkaAdminClient(bootstrap_servers=address)

    def create(self, topic: str, configs: Configs) -> None:
        """See `ConfluentAdmin`."""
        new = kafka.admin.NewTopic(topic, 1, 1, topic_configs=configs)
        self._admin.create_topics([new])

    def describe(self, topic: str) -> Configs:
        """See `ConfluentAdmin`."""
        wanted = kafka.admin.ConfigResource(kafka.admin.ConfigResourceType.TOPIC, topic)
        found = self._admin.describe_configs([wanted], config_filter="all")["topic"][topic]
        return {
            name: config["value"]
            for name, config in found.items()
            if config["config_source"] == "DYNAMIC_TOPIC_CONFIG"
        }

    def describe_broker(self) -> Configs:
        """See `ConfluentAdmin`."""
        wanted = kafka.admin.ConfigResource(kafka.admin.ConfigResourceType.BROKER, "1")
        found = self._admin.describe_configs([wanted], config_filter="all")["broker"]["1"]
        return {name: config["value"] for name, config in found.items()}

    def set(self, topic: str, name: str, value: str) -> None:
        """See `ConfluentAdmin`."""
        self._alter(topic, {name: value}, is_incremental=True)

    def replace(self, topic: str, configs: Configs) -> None:
        """See `ConfluentAdmin`; the client adds what the topic has and nobody names."""
        self._alter(topic, configs, is_incremental=False)

    def close(self) -> None:
        """Close its connections."""
        self._admin.close()

    def _alter(self, topic: str, configs: Configs, *, is_incremental: bool) -> None:
        wanted = kafka.admin.ConfigResource(
            kafka.admin.ConfigResourceType.TOPIC, topic, configs=configs
        )
        self._admin.alter_configs([wanted], incremental=is_incremental)


Admin = ConfluentAdmin | KafkaPythonAdmin


@pytest.fixture(scope="module")
def busy_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """HOST:PORT of a broker that looks ten times a second for segments that may go."""
    data = tmp_path_factory.mktemp("configs") / "data"
    settings = {"log.initial.task.delay.ms": "0", "log.retention.check.interval.ms": "100"}
    with Broker(data, settings=settings) as broker:
        yield broker.bootstrap_servers


@pytest.fixture(params=[ConfluentAdmin, KafkaPythonAdmin])
def admin(request: pytest.FixtureRequest, busy_address: str) -> Iterator[Admin]:
    """Each of the clients, closed at the end."""
    make: Callable[[str], Admin] = request.param
    client = make(busy_address)
    yield client
    client.close()


def test_a_client_changes_settings_and_retention_acts(busy_address: str, admin: Admin) -> None:
    """Described as they were given, changed one by one, replaced; and records go."""
    topic = f"configs.{type(admin).__name__}"
    admin.create(topic, KEPT)
    assert admin.describe(topic) == KEPT
    client = CLIENTS["confluent-kafka"]
    for record in RECORDS:
        client.produce(busy_address, topic, [record], codec="none", is_idempotent=False)
    admin.set(topic, "flush.ms", "777")
    assert admin.describe(topic) == {**KEPT, "flush.ms": "777"}
    assert client.find(busy_address, topic, 0) == 0
    # These records are years old.
    admin.set(topic, "retention.ms", "1000")
    deadline = time.monotonic() + TIMEOUT_S
    while client.find(busy_address, topic, 0) is not None:
        assert time.monotonic() < deadline, "the records stay"
    replaced = {"segment.bytes": "5000000", "retention.ms": "5000", "flush.ms": "5"}
    admin.replace(topic, replaced)
    assert admin.describe(topic) == replaced


def test_a_client_describes_the_broker(admin: Admin) -> None:
    """Its settings."""
    found = admin.describe_broker()
    assert found["log.retention.check.interval.ms"] == "100"
    assert found["num.partitions"] == "1"


def test_a_client_is_told_of_a_fault(busy_address: str) -> None:
    """The response has an error code and a message for the resource."""
    client = ConfluentAdmin(busy_address)
    client.create("faults", {})
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        client.set("faults", "retention.mz", "1")
    error = caught.value.args[0]
    assert error.code() == confluent_kafka.KafkaError.INVALID_CONFIG
    assert "did you mean retention.ms?" in error.str()
