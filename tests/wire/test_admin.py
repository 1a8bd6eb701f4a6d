"""Other people's admin clients: topics grow, and the cluster, leaders and replicas are told."""

import warnings
from collections.abc import Iterator

import confluent_kafka
import confluent_kafka.admin
import pytest

from tests.wire.clients import CLIENTS, TIMEOUT_S, Sent, kafka

with warnings.catch_warnings():
    # kafka-python asks for resources in a way that newer Pythons warn of.
    warnings.simplefilter("ignore")
    import kafka.admin
    import kafka.errors

pytestmark = pytest.mark.wire

RECORD = Sent(key=b"k", value=b"v", timestamp=1_600_000_000_000)


@pytest.fixture
def librdkafka(address: str) -> confluent_kafka.admin.AdminClient:
    """The admin client of confluent-kafka."""
    return confluent_kafka.admin.AdminClient({"bootstrap.servers": address})


@pytest.fixture
def in_python(address: str) -> Iterator["kafka.KafkaAdminClient"]:
    """The admin client of kafka-python, closed at the end."""
    admin = kafka.KafkaAdminClient(bootstrap_servers=address)
    yield admin
    admin.close()


def make_topic(address: str, name: str) -> None:
    """Have a topic of one partition and one record."""
    CLIENTS["confluent-kafka"].produce(address, name, [RECORD], codec="none", is_idempotent=False)


def test_librdkafka_adds_partitions(
    address: str, librdkafka: confluent_kafka.admin.AdminClient
) -> None:
    """A topic has as many partitions as were asked for; fewer are refused."""
    make_topic(address, "grown.librdkafka")
    new = confluent_kafka.admin.NewPartitions("grown.librdkafka", 3)
    librdkafka.create_partitions([new])["grown.librdkafka"].result(TIMEOUT_S)
    found = librdkafka.list_topics("grown.librdkafka", TIMEOUT_S)
    assert sorted(found.topics["grown.librdkafka"].partitions) == [0, 1, 2]
    again = librdkafka.create_partitions([new])["grown.librdkafka"]
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        again.result(TIMEOUT_S)
    assert caught.value.args[0].code() == confluent_kafka.KafkaError.INVALID_PARTITIONS


def test_librdkafka_describes_the_cluster(
    address: str, librdkafka: confluent_kafka.admin.AdminClient
) -> None:
    """It has one node, at the address that clients use, with all operations."""
    found = librdkafka.describe_cluster(include_authorized_operations=True).result(TIMEOUT_S)
    assert [f"{node.host}:{node.port}" for node in found.nodes] == [address]
    assert found.controller.id == found.nodes[0].id
    assert confluent_kafka.admin.AclOperation.ALTER in found.authorized_operations


def test_librdkafka_elects_no_leader(
    address: str, librdkafka: confluent_kafka.admin.AdminClient
) -> None:
    """The leader is the preferred one already, which the client tells as an error."""
    make_topic(address, "elected.librdkafka")
    wanted = confluent_kafka.TopicPartition("elected.librdkafka", 0)
    kind = confluent_kafka.ElectionType.PREFERRED
    found = librdkafka.elect_leaders(kind, [wanted]).result(TIMEOUT_S)
    (error,) = found.values()
    assert error.code() == confluent_kafka.KafkaError.ELECTION_NOT_NEEDED


def test_kafka_python_adds_partitions(address: str, in_python: "kafka.KafkaAdminClient") -> None:
    """With and without assignments; the pages of DescribeTopicPartitions show all of them."""
    make_topic(address, "grown.python")
    in_python.create_partitions({"grown.python": 2})
    in_python.create_partitions({"grown.python": {"count": 3, "assignments": [[1]]}})
    page = in_python.describe_topic_partitions(["grown.python"], response_partition_limit=2)
    assert page["next_cursor"]["partition_index"] == 2
    rest = in_python.describe_topic_partitions(["grown.python"], cursor=page["next_cursor"])
    numbers = [
        partition["partition_index"]
        for each in (page, rest)
        for topic in each["topics"]
        for partition in topic["partitions"]
    ]
    assert (numbers, rest["next_cursor"]) == ([0, 1, 2], None)


def test_kafka_python_lists_resources(address: str, in_python: "kafka.KafkaAdminClient") -> None:
    """The topics and the broker have settings."""
    make_topic(address, "listed.python")
    found = in_python.list_config_resources()
    assert "listed.python" in found["topic"]
    assert found["broker"] == ["1"]


def test_kafka_python_reassigns_nothing(address: str, in_python: "kafka.KafkaAdminClient") -> None:
    """The present replicas are accepted, others are refused, and nothing is under way."""
    make_topic(address, "reassigned.python")
    partition = kafka.TopicPartition("reassigned.python", 0)
    assert in_python.alter_partition_reassignments({partition: [1]}) == {partition: None}
    found = in_python.alter_partition_reassignments({partition: [1, 2]})
    assert found[partition] is kafka.errors.InvalidReplicationAssignmentError
    assert in_python.list_partition_reassignments() == {}
