"""`TestCluster`: brokers that die, are cut off and come back, as clients meet it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace import Consumer, Producer
from tailrace.client.producer.errors import DeliveryTimeoutError
from tailrace.errors import ConfigError
from tailrace.testing import TestCluster
from tailrace.testing.broker_process import RefusedRequestError
from tests.wire.clients import CLIENTS, Sent

pytestmark = pytest.mark.wire

ONE = Sent(b"k", b"one", 1_700_000_000_000)
TWO = Sent(b"k", b"two", 1_700_000_000_001)


@pytest.fixture
def cluster() -> Iterator[TestCluster]:
    """Three brokers with the topic `t`, which broker 1 leads."""
    with TestCluster() as cluster:
        cluster.create_topic("t", replicas=[[1, 2, 3]])
        yield cluster


def send(cluster: TestCluster, *records: Sent, client: str = "confluent-kafka") -> list[int]:
    """Send records as an idempotent producer does."""
    servers = cluster.bootstrap_servers
    return CLIENTS[client].produce(servers, "t", records, codec="none", is_idempotent=True)


class TestLife:
    """Brokers that are stopped, killed and started again."""

    # Without kafka-python, which leaves a socket open where a connection is refused.
    @pytest.mark.parametrize("client", ["confluent-kafka", "aiokafka"])
    def test_records_survive_the_broker_that_took_them(
        self, cluster: TestCluster, client: str
    ) -> None:
        """After a kill of the leader another has the record, takes the next, and gives both."""
        send(cluster, ONE, client=client)
        cluster.kill(1)
        assert cluster.leader_of("t") in {2, 3}
        assert cluster.in_sync("t") == (2, 3)
        assert send(cluster, TWO, client=client) == [1]
        assert CLIENTS[client].read(cluster.bootstrap_servers, "t", 0, count=2) == [ONE, TWO]

    def test_a_producer_sends_on_while_its_leader_is_killed(self, cluster: TestCluster) -> None:
        """The same producer has each record acknowledged, once and in order."""
        with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            producer.send("t", b"0").result()
            receipts = [producer.send("t", str(number).encode()) for number in range(1, 200)]
            cluster.kill(1)
            receipts += [producer.send("t", str(number).encode()) for number in range(200, 300)]
            assert [each.result().offset for each in receipts] == list(range(1, 300))
        assert cluster.log("t").values() == [str(number).encode() for number in range(300)]

    def test_a_restarted_broker_fetches_what_it_lacks(self, cluster: TestCluster) -> None:
        """Its own files have the record that was written while it was down."""
        cluster.kill(2)
        send(cluster, ONE)
        assert cluster.log("t", broker=2).values() == []
        cluster.restart(2)
        cluster.wait_until_in_sync("t")
        assert set(cluster.in_sync("t")) == {1, 2, 3}
        assert cluster.log("t", broker=2).values() == [b"one"]

    @pytest.mark.parametrize("how", ["stop", "kill"])
    def test_a_broker_starts_at_once_after_each_end(self, cluster: TestCluster, how: str) -> None:
        """The session of its last life does not delay it; its address is the same."""
        servers = cluster.bootstrap_servers
        getattr(cluster, how)(1)
        assert cluster.running_ids == (2, 3)
        assert cluster.leader_of("t") != 1
        cluster.start(1)
        cluster.wait_until_in_sync()
        assert cluster.bootstrap_servers == servers
        assert cluster.running_ids == cluster.broker_ids == (1, 2, 3)

    def test_a_session_ends_by_itself(self) -> None:
        """Without the help of the test a killed leader is replaced when its session is over."""
        with TestCluster(broker_session_timeout_ms=300) as cluster:
            cluster.create_topic("t", replicas=[[1, 2, 3]])
            cluster.kill(1, fenced=False)
            assert cluster.leader_of("t") == 1
            assert send(cluster, ONE) == [0]
            assert cluster.leader_of("t") in {2, 3}

    def test_brokers_serve_without_the_controller(self, cluster: TestCluster) -> None:
        """Records pass while it is down, and topics can be created when it is back."""
        cluster.kill_controller()
        assert send(cluster, ONE) == [0]
        with pytest.raises(RuntimeError, match="the controller is not running"):
            cluster.create_topic("other")
        cluster.start_controller()
        cluster.create_topic("other")
        assert cluster.leader_of("other") in cluster.broker_ids
        assert cluster.log("t").values() == [b"one"]

    def test_a_cluster_continues_in_its_directory(self, tmp_path: Path) -> None:
        """Topics and records are there in the next cluster of the directory."""
        with TestCluster(tmp_path) as cluster:
            cluster.create_topic("t")
            send(cluster, ONE)
        with TestCluster(tmp_path) as cluster:
            cluster.wait_until_in_sync()
            assert send(cluster, TWO) == [1]
            assert cluster.directory(1) == tmp_path / "1"

    def test_a_temporary_directory_goes_with_the_cluster(self) -> None:
        """It is there until the end of the block."""
        with TestCluster(brokers=1) as other:
            directory = other.directory(1)
            assert directory.exists()
        assert not directory.parent.exists()


class TestCutOff:
    """Brokers that run, and reach nobody."""

    def test_a_leader_that_is_cut_off_is_replaced(self, cluster: TestCluster) -> None:
        """It believes to lead; the others go on, and it follows when it is back."""
        cluster.cut_off(1)
        assert cluster.running_ids == (1, 2, 3)
        assert cluster.leader_of("t") in {2, 3}
        assert send(cluster, ONE) == [0]
        assert cluster.log("t", broker=1).values() == []
        cluster.reconnect(1)
        cluster.wait_until_in_sync()
        assert cluster.log("t", broker=1).values() == [b"one"]

    def test_nothing_passes_in_silence(self, cluster: TestCluster) -> None:
        """A request stays unanswered, and is answered when the cable is plugged in again."""
        with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            producer.send("t", b"one").result()
            cluster.cut_off(1, silent=True, fenced=False)
            receipt = producer.send("t", b"two")
            with pytest.raises(TimeoutError):
                receipt.result(timeout=0.2)
            cluster.reconnect(1)
            assert receipt.result().offset == 1

    def test_too_few_replicas_refuse_records(self, cluster: TestCluster) -> None:
        """With min.insync.replicas=2 a leader alone takes nothing that wants all of them."""
        cluster.create_topic("two", replicas=[[1, 2]], configs={"min.insync.replicas": 2})
        cluster.kill(2)
        with (
            Producer(
                bootstrap_servers=cluster.bootstrap_servers,
                delivery_timeout_ms=600,
                request_timeout_ms=500,
            ) as producer,
            pytest.raises(DeliveryTimeoutError),
        ):
            producer.send("two", b"one").result()
        assert cluster.log("two").values() == []


class TestLeaders:
    """Leaders, and the choice of one."""

    @pytest.mark.parametrize("leader", [2, 3, 1])
    def test_the_test_chooses_the_leader(self, cluster: TestCluster, leader: int) -> None:
        """Clients send to the chosen one, which is the preferred one from then on."""
        cluster.move_leader("t", 0, leader)
        assert cluster.leader_of("t") == leader
        assert cluster.replicas_of("t")[0] == leader
        assert send(cluster, ONE) == [0]

    def test_a_leader_is_a_replica_in_sync(self, cluster: TestCluster) -> None:
        """Others are refused, and the message says why."""
        cluster.create_topic("two", replicas=[[1, 2]])
        with pytest.raises(RefusedRequestError, match="it is no replica"):
            cluster.move_leader("two", 0, 3)
        cluster.kill(2)
        with pytest.raises(RefusedRequestError, match="PREFERRED_LEADER_NOT_AVAILABLE"):
            cluster.move_leader("two", 0, 2)
        with pytest.raises(LookupError, match="no topic 'none'"):
            cluster.leader_of("none")

    def test_a_wait_names_what_is_not_in_sync(self, cluster: TestCluster) -> None:
        """Its error has the partition, and the replicas that are missing."""
        cluster.kill(3)
        with pytest.raises(TimeoutError, match=r"t-0 \(without \[3\]\)"):
            cluster.wait_until_in_sync("t", timeout_s=0.01)


class TestFaults:
    """Faults of requests, and the clock."""

    def test_a_fault_is_of_one_broker(self, cluster: TestCluster) -> None:
        """Only requests to that one meet it; one of the cluster meets those to any."""
        own = cluster.fail("Produce", error="NOT_LEADER_OR_FOLLOWER", times=1, broker=1)
        other = cluster.fail("Produce", error="NOT_LEADER_OR_FOLLOWER", broker=2)
        of_all = cluster.fail("Produce", error="REQUEST_TIMED_OUT", times=1)
        assert send(cluster, ONE) == [0]
        assert (own.count, other.count, of_all.count) == (1, 0, 1)
        cluster.heal()
        assert cluster.log("t").values() == [b"one"]

    def test_followers_meet_faults(self, cluster: TestCluster) -> None:
        """A record is not acknowledged before the followers may fetch it again."""
        with (
            Producer(bootstrap_servers=cluster.bootstrap_servers) as producer,
            cluster.delay("Fetch", seconds=3600, broker=1) as fault,
        ):
            fault.wait(2)
            receipt = producer.send("t", b"one")
            with pytest.raises(TimeoutError):
                receipt.result(timeout=0.2)
            fault.remove()
            assert receipt.result().offset == 0

    def test_the_clock_moves_for_all(self, cluster: TestCluster) -> None:
        """Retention has run when the call returns, and no broker is fenced meanwhile."""
        cluster.create_topic("short", configs={"retention.ms": 1000})
        with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            producer.send("short", b"one").result()
        cluster.advance(3600)
        assert cluster.log("short").values() == []
        assert set(cluster.in_sync("short")) == {1, 2, 3}

    def test_log_waits_for_records(self, cluster: TestCluster) -> None:
        """It returns when they are there, also from another leader."""
        with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            producer.send("t", b"one")
            cluster.kill(1)
            producer.send("t", b"two")
            assert [each.value for each in cluster.log("t").wait_for(2)] == [b"one", b"two"]

    def test_a_group_continues_after_its_coordinator(self, cluster: TestCluster) -> None:
        """Offsets that a consumer has committed are known to the next coordinator."""
        send(cluster, ONE, TWO)
        settings = {
            "bootstrap_servers": cluster.bootstrap_servers,
            "group_id": "g",
            "auto_offset_reset": "earliest",
        }
        with Consumer(settings) as consumer:
            consumer.subscribe("t")
            assert next(iter(consumer)).value == b"one"
            consumer.commit()
        coordinator = cluster.leader_of("__consumer_offsets")
        assert coordinator is not None
        cluster.kill(coordinator)
        with Consumer(settings) as consumer:
            consumer.subscribe("t")
            assert next(iter(consumer)).value == b"two"


class TestMistakes:
    """Mistakes of the test's author are refused at the call."""

    def test_settings_are_checked_before_the_start(self) -> None:
        """This holds for those of all brokers, and those of one."""
        with pytest.raises(ConfigError, match=r"did you mean num\.partitions"):
            TestCluster(num_partition=3)  # type: ignore[call-arg]
        with pytest.raises(ConfigError, match=r"did you mean broker\.rack"):
            TestCluster(of_brokers={1: {"broker.rac": "a"}})
        with pytest.raises(ValueError, match="there is no broker 4"):
            TestCluster(of_brokers={4: {"broker.rack": "a"}})
        with pytest.raises(ValueError, match="from 1 to 9"):
            TestCluster(brokers=0)

    def test_a_state_that_does_not_allow_it(self, cluster: TestCluster) -> None:
        """The error says what to do."""
        with pytest.raises(RuntimeError, match="broker 1 is running already"):
            cluster.start(1)
        with pytest.raises(ValueError, match=r"no broker 7; the ids are \[1, 2, 3\]"):
            cluster.kill(7)
        cluster.kill(1)
        with pytest.raises(RuntimeError, match="broker 1 is not running; start it"):
            cluster.cut_off(1)
        with pytest.raises(RuntimeError, match="use it in a with block"):
            TestCluster().leader_of("t")
