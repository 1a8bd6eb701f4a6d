"""`Admin` and `AsyncAdmin` against a broker on real sockets: the main operations of both."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tailrace import Admin, AsyncAdmin
from tailrace.client import AuthenticationError, RemoteFatalError
from tailrace.client.admin import (
    ConfigResource,
    NewTopic,
    NoSuchGroupError,
    OffsetAt,
    Place,
    Replica,
)
from tailrace.model import SpecialTimestamp, TopicPartition
from tailrace.protocol.config_resources import ResourceType
from tailrace.protocol.errors import ErrorCode
from tailrace.testing.broker import TestBroker

pytestmark = pytest.mark.wire

F0 = TopicPartition("flights", 0)
FLIGHTS = ConfigResource(ResourceType.TOPIC, "flights")


@pytest.fixture
def broker() -> Iterator[TestBroker]:
    """A broker with a topic of two partitions and three records."""
    with TestBroker() as broker:
        broker.create_topic("flights", partitions=2)
        for value in (b"a", b"b", b"c"):
            broker.produce("flights", value, partition=0)
        yield broker


def test_topics_from_creation_to_deletion(broker: TestBroker) -> None:
    """Each call sees what the earlier ones have done; a bad topic does not harm its neighbour."""
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        dry = admin.create_topics([NewTopic("new", 3)], validate_only=True)
        assert dry.results()
        assert "new" not in {each.name for each in admin.list_topics()}
        found = admin.create_topics([NewTopic("new", 3), NewTopic("flights"), NewTopic("b/d")])
        assert found.result("new").partition_count == 3
        assert {name: error.code for name, error in found.errors.items()} == {  # type: ignore[attr-defined]
            "flights": ErrorCode.TOPIC_ALREADY_EXISTS,
            "b/d": ErrorCode.INVALID_TOPIC_EXCEPTION,
        }
        described = admin.describe_topics(["new", "gone"], include_authorized_operations=True)
        assert described.result("new").authorized_operations
        assert [*described.errors] == ["gone"]
        number = described.result("new").topic_id
        assert number is not None
        admin.create_partitions({"new": 5}).results()
        assert len(admin.describe_topics([number]).result(number).partitions) == 5
        admin.delete_topics([number]).results()
        assert [each.name for each in admin.list_topics(include_internal=False)] == ["flights"]


def test_settings_are_read_and_changed(broker: TestBroker) -> None:
    """A value is the topic's own after the change, and the default's after its removal."""
    with Admin({"bootstrap.servers": broker.bootstrap_servers}) as admin:
        admin.incremental_alter_configs({FLIGHTS: {"retention.ms": 60_000}}).results()
        entry = admin.describe_configs([FLIGHTS], include_synonyms=True).result(FLIGHTS)
        assert (entry["retention.ms"].value, entry["retention.ms"].is_own) == ("60000", True)
        assert entry["retention.ms"].synonyms
        with pytest.raises(RemoteFatalError, match="topic flights at"):
            admin.incremental_alter_configs({FLIGHTS: {"retention.ms": "soon"}}).results()
        admin.incremental_alter_configs({FLIGHTS: {"retention.ms": None}}).results()
        entry = admin.describe_configs([FLIGHTS], names=["retention.ms"]).result(FLIGHTS)
        assert [*entry] == ["retention.ms"]
        assert not entry["retention.ms"].is_own
        assert FLIGHTS in admin.list_config_resources([ResourceType.TOPIC])


def test_offsets_of_logs_and_groups(broker: TestBroker) -> None:
    """Offsets are found, reset in a dry run and then for good, and deleted with the group."""
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        latest = admin.list_offsets({F0: SpecialTimestamp.LATEST}).result(F0)
        assert latest.offset == 3
        place = OffsetAt(Place.FROM_LATEST, -1)
        admin.reset_group_offsets("g", [F0], to=place, validate_only=True).results()
        assert admin.list_group_offsets("g").results() == {}
        admin.reset_group_offsets("g", [F0], to=place).results()
        assert admin.list_group_offsets("g", [F0]).result(F0).offset == 2
        admin.alter_group_offsets("g", {F0: 1}).results()
        assert [each.group for each in admin.list_groups(states=["Empty"])] == ["g"]
        assert admin.describe_groups(["g"]).result("g").state == "Empty"
        admin.delete_group_offsets("g", [F0]).results()
        admin.alter_group_offsets("g", {F0: 1}).results()
        outcomes = admin.delete_groups(["g", "nobody"])
        assert outcomes["g"] is None
        assert isinstance(outcomes["nobody"], NoSuchGroupError)


def test_records_are_deleted(broker: TestBroker) -> None:
    """The log begins at the offset, or at its end for -1."""
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        assert admin.delete_records({F0: 2}).result(F0) == 2
        assert admin.log_ranges([F0]).result(F0) == (2, 3)
        assert admin.delete_records({F0: -1}).result(F0) == 3


def test_the_cluster_and_its_directories(broker: TestBroker) -> None:
    """Broker, controller, features, directories and leaders of a cluster of one."""
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        cluster = admin.describe_cluster(include_authorized_operations=True)
        (node,) = cluster.brokers
        assert cluster.controller == node
        assert f"{node.host}:{node.port}" == broker.bootstrap_servers
        assert admin.describe_features().supported is not None
        directories = admin.describe_log_dirs().result(node.id)
        assert any(F0 in each.replicas for each in directories.values())
        replica = Replica("flights", 0, node.id)
        (path,) = directories
        found = admin.describe_replica_log_dirs([replica]).result(replica)
        assert found.current == path
        assert admin.elect_leaders([F0]).errors
        assert admin.list_partition_reassignments() == {}


def test_transactions_are_listed_and_fenced(broker: TestBroker) -> None:
    """A transactional id that was fenced is one that is known."""
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        fenced = admin.fence_producers(["x"]).result("x")
        assert fenced.producer_id >= 0
        assert [each.transactional_id for each in admin.list_transactions()] == ["x"]
        described = admin.describe_transactions(["x", "y"])
        assert described.result("x").producer_id == fenced.producer_id
        assert [*described.errors] == ["y"]
        assert admin.force_terminate_transaction("x").producer_epoch > fenced.producer_epoch
        assert admin.describe_producers([F0]).result(F0) is not None
        assert admin.find_hanging_transactions([F0], now_ms=0) == []


def test_what_the_broker_lacks_is_told_in_a_sentence(broker: TestBroker) -> None:
    """With Kafka's own words and code."""
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        with pytest.raises(RemoteFatalError, match=r"No Authorizer is configured .*DISABLED"):
            admin.describe_acls()
        with pytest.raises(RemoteFatalError, match="Broker ID 99 is not currently registered"):
            admin.unregister_broker(99)


def test_a_login_at_a_port_without_logins_fails_at_once(broker: TestBroker) -> None:
    """The client does not try again until its time is up, and names the setting."""
    login: dict[str, Any] = {"sasl_mechanism": "PLAIN", "sasl_username": "a", "sasl_password": "b"}
    with (
        Admin(
            bootstrap_servers=broker.bootstrap_servers, security_protocol="SASL_PLAINTEXT", **login
        ) as admin,
        pytest.raises(AuthenticationError, match="expects no login on this port"),
    ):
        admin.list_topics()


def test_the_quorum_of_a_broker_is_itself(broker: TestBroker) -> None:
    """It is the leader and the only voter of the metadata log."""
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        quorum = admin.describe_metadata_quorum()
    assert (quorum.leader_id, [each.replica_id for each in quorum.voters]) == (1, [1])


def test_threads_share_a_client(broker: TestBroker) -> None:
    """Their calls go one after the other, and each gets its own result."""
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        names = [f"t{number}" for number in range(4)]
        threads = [
            threading.Thread(
                target=lambda name: admin.create_topics([NewTopic(name, 1)]), args=(n,)
            )
            for n in names
        ]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert {*names} < {each.name for each in admin.list_topics()}


def test_tasks_share_a_client_of_a_loop(broker: TestBroker) -> None:
    """Their calls run at the same time; the operations are those of `Admin`."""

    async def play() -> None:
        async with AsyncAdmin(bootstrap_servers=broker.bootstrap_servers) as admin:
            names = [f"t{number}" for number in range(4)]
            created = await asyncio.gather(
                *(admin.create_topics([NewTopic(each, 1)]) for each in names)
            )
            assert all(each.results() for each in created)
            assert {*names} < {each.name for each in await admin.list_topics()}
            (await admin.alter_group_offsets("g", {F0: 1})).results()
            assert (await admin.list_group_offsets("g")).result(F0).offset == 1
            assert (await admin.within(5_000).describe_cluster()).controller

    asyncio.run(play())


def test_a_broker_that_was_killed_is_waited_for(broker: TestBroker) -> None:
    """A call that begins while it is down ends when it is up again."""
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.list_topics()
        broker.kill()
        starting = threading.Thread(target=broker.restart)
        starting.start()
        assert [each.name for each in admin.list_topics(include_internal=False)] == ["flights"]
        starting.join()
