"""`TestCluster`: brokers with replicas and a controller, for the tests of programs that use Kafka.

    with TestCluster() as cluster:                     # three brokers on real sockets
        cluster.create_topic("orders", partitions=3)
        cluster.kill(cluster.leader_of("orders"))
        ...the program under test, with cluster.bootstrap_servers
        cluster.restart(1)
        cluster.wait_until_in_sync()
        assert cluster.log("orders").values() == [b"one", b"two"]

All nodes run in the process of the test, on one thread. The fixture `tailrace_cluster` of
`tailrace.pytest_plugin` gives one; docs/testing.md explains both.

Not here: one broker, which starts faster (`broker`); clusters of which the test writes the script
(`cluster`).
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self, Unpack

from tailrace.config import settings_texts
from tailrace.errors import kind_of
from tailrace.model import TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import Message
from tailrace.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from tailrace.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsResponse,
)
from tailrace.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tailrace.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from tailrace.protocol.metadata_records import PartitionRecord
from tailrace.testing.broker import DEFAULTS, checked_seconds, checked_time
from tailrace.testing.broker_clock import BrokerClock, let_timers_fire
from tailrace.testing.broker_process import M, RefusedRequestError
from tailrace.testing.cluster_process import ClusterProcess, LeadersLogs
from tailrace.testing.request_faults import (
    Corrupt,
    Drop,
    Fail,
    Fault,
    RequestFaults,
    delay_of,
    error_code,
)
from tailrace.testing.secured import ClientNames, Secured, SecurityProtocol
from tailrace.testing.topic_log import TopicLog

if TYPE_CHECKING:
    from tailrace.broker.keywords import BrokerSettings

_TIMEOUT_MS: Final = 30_000
_REPLICAS: Final = 3


def defaults(broker_count: int) -> dict[str, str]:
    """Settings of the brokers of a `TestCluster` that differ from the broker's defaults."""
    replicas = str(min(broker_count, _REPLICAS))
    return DEFAULTS | {
        "default.replication.factor": replicas,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": str(min(broker_count, 2)),
        "transaction.state.log.num.partitions": "1",
        # A broker that stops waits until the heartbeats of the others say that they know it.
        "broker.heartbeat.interval.ms": "100",
        # A follower would wait a second before it asks a leader again that was just elected.
        "replica.fetch.backoff.ms": "20",
        # A replica gets in sync by a fetch after it was unfenced, which the last one before delays.
        "replica.fetch.wait.max.ms": "100",
        # Leaders stay where the test has put them.
        "auto.leader.rebalance.enable": "false",
    }


class TestCluster:
    """Brokers and a controller in this process; runs within a `with` block.

    The ids of the brokers are 1, 2, 3. Settings have Kafka's names, and are those of all nodes;
    `of_brokers` has others for single brokers, such as `{1: {"broker.rack": "a"}}`. Without `data`
    the directory is a temporary one, which is removed at the end of the block. Methods may be
    called on any thread, and block until the cluster has done it. `security` and `users` are those
    of `TestBroker`, for the listeners of the brokers, by which they reach each other too.

    Raises:
        ConfigError: settings that do not exist or are out of range, all of them.
        TypeError: `data` is neither a path nor None, or `settings` is no mapping.
        ValueError: `brokers` is not from 1 to 9, `of_brokers` names another broker, there is no
            such `security`, or it has no logins and there are users.
        MissingExtraError: certificates need the package cryptography.
    """

    __test__ = False
    """No class of tests, whatever its name."""

    def __init__(
        self,
        data: str | Path | None = None,
        *,
        brokers: int = 3,
        security: SecurityProtocol = "PLAINTEXT",
        users: Mapping[str, str] | None = None,
        settings: Mapping[str, object] | None = None,
        of_brokers: Mapping[int, Mapping[str, object]] | None = None,
        **more_settings: "Unpack[BrokerSettings]",
    ) -> None:
        if not isinstance(data, str | Path | None):
            raise TypeError(f"data is {kind_of(data)}; it has to be the path of a directory")
        if brokers not in range(1, 10):
            raise ValueError(f"brokers is {brokers!r}; a cluster in one process has from 1 to 9")
        self._clock = BrokerClock()
        self._faults = RequestFaults()
        self._secured = Secured(security, users, settings_texts(settings, more_settings))
        self._process = ClusterProcess(
            None if data is None else str(data),
            defaults(brokers) | self._secured.broker_settings,
            of_brokers={each: settings_texts(own) for each, own in (of_brokers or {}).items()},
            broker_count=brokers,
            clock=self._clock,
            faults=self._faults,
            listener=security,
        )

    def __enter__(self) -> Self:
        self._process.open()
        for request in self._secured.scram_requests():
            answer = self._process.run(self._ask(request, AlterUserScramCredentialsResponse))
            for result in answer.results:
                _check(f"create user {result.user}", result.error_code, result.error_message)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.close()

    @property
    def bootstrap_servers(self) -> str:
        """HOST:PORT of each broker, for `bootstrap.servers` of any client; always the same."""
        return ",".join(each.port.address for each in self._process.brokers.values())

    def client_settings(
        self,
        client: ClientNames = "kafka",
        *,
        user: str | None = None,
        mechanism: str | None = None,
    ) -> dict[str, object]:
        """Settings with which a client reaches the cluster; see `TestBroker.client_settings`."""
        return self._secured.client_settings(
            self.bootstrap_servers, client=client, user=user, mechanism=mechanism
        )

    @property
    def broker_ids(self) -> tuple[int, ...]:
        """The ids of all brokers."""
        return tuple(self._process.brokers)

    @property
    def running_ids(self) -> tuple[int, ...]:
        """The ids of the brokers that run, those that are cut off too."""
        return tuple(each.id for each in self._process.brokers.values() if each.is_running)

    def directory(self, broker: int) -> Path:
        """The log directory of a broker, for `tailrace.open_log` and the `tailrace` command."""
        return Path(self._process.broker(broker).directory)

    # -- life ---------------------------------------------------------------------------------

    def start(self, broker: int) -> None:
        """Start a broker on its port and its directory; returns when all know that it serves.

        Its replicas may still fetch what they lack: see `wait_until_in_sync`.

        Raises:
            RuntimeError: it is running, or the controller is not.
        """
        process, node = self._process, self._process.broker(broker)
        if node.is_running:
            raise RuntimeError(f"broker {broker} is running already")
        _ = process.controller

        async def start() -> None:
            await node.start()
            await process.until(
                lambda: process.is_in_service(broker), f"broker {broker} to be in service"
            )

        process.run(start())

    def stop(self, broker: int) -> None:
        """Stop a broker in order, as after SIGTERM: others lead its partitions before."""
        node = self._process.broker(broker)

        async def stop() -> None:
            was_running = node.is_running
            await node.stop()
            # Its session lasts on, and the next start would be refused until that has ended.
            if was_running:
                await self._process.end_session(broker)

        self._process.run(stop())

    def kill(self, broker: int, *, fenced: bool = True) -> None:
        """End a broker as after kill -9; port, directory and faults stay for the next `start`.

        The controller fences it at once, so that this returns when other brokers lead. Without
        `fenced` it does so as in production, `broker.session.timeout.ms` later (9000).
        """
        node = self._process.broker(broker)

        async def kill() -> None:
            was_running = node.is_running
            node.kill()
            if fenced and was_running:
                await self._process.end_session(broker)

        self._process.run(kill())

    def restart(self, broker: int) -> None:
        """Start a broker again; stops in order before, if it is running."""
        self.stop(broker)
        self.start(broker)

    def cut_off(self, broker: int, *, fenced: bool = True, silent: bool = False) -> None:
        """Let a running broker reach nobody, and be reached by nobody, until `reconnect`.

        Its connections end, and new ones are refused. With `silent` nothing passes instead, as
        when a cable is pulled, so clients and followers wait for their timeouts. The controller
        fences it as in `kill`. The broker itself runs on: it believes to lead what it led.
        """
        node = self._process.broker(broker)

        async def cut() -> None:
            _ = node.running
            assert node.network is not None
            node.network.cut(is_silent=silent)
            if fenced:
                await self._process.end_session(broker)

        self._process.run(cut())

    def reconnect(self, broker: int) -> None:
        """End `cut_off`; returns when the broker is in service again."""
        process, node = self._process, self._process.broker(broker)

        async def mend() -> None:
            _ = node.running
            assert node.network is not None
            node.network.mend()
            await process.until(
                lambda: process.is_in_service(broker), f"broker {broker} to be in service"
            )

        process.run(mend())

    def kill_controller(self) -> None:
        """End the controller as after kill -9; brokers serve on, and nothing can be changed."""
        self._process.on_loop(self._process.kill_controller)

    def start_controller(self) -> None:
        """Start the controller again; returns when all brokers that run follow it.

        Raises:
            RuntimeError: it is running.
        """
        process = self._process

        async def start() -> None:
            await process.start_controller()
            await process.until(process.is_settled, "brokers to follow the controller")

        process.run(start())

    # -- topics and leaders -------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replication_factor: int | None = None,
        replicas: Sequence[Sequence[int]] | None = None,
        configs: Mapping[str, object] | None = None,
    ) -> None:
        """Create a topic, and return when its logs are there and all brokers know it.

        By default with three replicas. `replicas` has the brokers of each partition instead, the
        preferred leader first: `[[1, 2, 3], [2, 3, 1]]`.

        Raises:
            RefusedRequestError: it exists, or name, number, brokers or a setting are invalid.
        """
        # The controller refuses a request that has both.
        is_placed = replicas is not None
        topic = CreatableTopic(
            name=name,
            num_partitions=-1 if is_placed else partitions,
            replication_factor=-1
            if is_placed or replication_factor is None
            else replication_factor,
            assignments=tuple(
                CreatableReplicaAssignment(partition_index=number, broker_ids=tuple(brokers))
                for number, brokers in enumerate(replicas or ())
            ),
            configs=tuple(
                CreatableTopicConfig(name=setting, value=text)
                for setting, text in settings_texts(configs).items()
            ),
        )
        request = CreateTopicsRequest(topics=(topic,), timeout_ms=_TIMEOUT_MS)

        async def create() -> None:
            (result,) = (await self._ask(request, CreateTopicsResponse)).topics
            _check(f"create topic {name}", result.error_code, result.error_message)
            await self._process.until(self._process.is_settled, "brokers to know the topic")
            for each in self._process.brokers.values():
                if each.is_running:
                    await each.running.replicas.new_logs.wait_for_all()

        self._process.run(create())

    def leader_of(self, topic: str, partition: int = 0) -> int | None:
        """The id of the broker that leads a partition, as the controller has it; None: none does.

        Raises:
            LookupError: there is no such topic or partition.
        """
        state = self._state(topic, partition)
        return None if state.leader < 0 else state.leader

    def replicas_of(self, topic: str, partition: int = 0) -> tuple[int, ...]:
        """The ids of the brokers that have a partition, the preferred leader first."""
        return tuple(self._state(topic, partition).replicas)

    def in_sync(self, topic: str, partition: int = 0) -> tuple[int, ...]:
        """The ids of the replicas in sync, as the controller has them."""
        return tuple(self._state(topic, partition).isr)

    def move_leader(self, topic: str, partition: int, broker: int) -> None:
        """Make a replica that is in sync the leader, and return when all brokers know it.

        It becomes the preferred one too, so that the partition goes back to it after a restart only
        if somebody asks for that.

        Raises:
            RefusedRequestError: it is no replica, or not in sync.
            LookupError: there is no such topic or partition.
        """
        self._process.broker(broker)

        async def move() -> None:
            state = self._process.partition(TopicPartition(topic, partition))
            what = f"move the leader of {topic}-{partition} to {broker}"
            if broker not in state.replicas:
                raise RefusedRequestError(
                    what, ErrorCode.INVALID_REPLICA_ASSIGNMENT, "it is no replica"
                )
            # Kafka elects the first replica, so the order is changed before.
            order = (broker, *(each for each in state.replicas if each != broker))
            changed = ReassignablePartition(partition_index=partition, replicas=order)
            reassign = AlterPartitionReassignmentsRequest(
                timeout_ms=_TIMEOUT_MS,
                topics=(ReassignableTopic(name=topic, partitions=(changed,)),),
            )
            answer = await self._ask(reassign, AlterPartitionReassignmentsResponse)
            _check(what, answer.error_code, answer.error_message)
            for found in answer.responses[0].partitions:
                _check(what, found.error_code, found.error_message)
            elect = ElectLeadersRequest(
                topic_partitions=(TopicPartitions(topic=topic, partitions=(partition,)),),
                timeout_ms=_TIMEOUT_MS,
            )
            elected = await self._ask(elect, ElectLeadersResponse)
            _check(what, elected.error_code, None)
            for result in elected.replica_election_results[0].partition_result:
                if result.error_code != ErrorCode.ELECTION_NOT_NEEDED:
                    _check(what, result.error_code, result.error_message)
            await self._process.until(self._process.is_settled, "brokers to know the leader")

        self._process.run(move())

    def wait_until_in_sync(self, topic: str | None = None, *, timeout_s: float = 30.0) -> None:
        """Wait until all replicas of a topic, or of all topics, are in sync, and all brokers know.

        It blocks, so a test on an event loop calls it with `asyncio.to_thread`.

        Raises:
            TimeoutError: they are not after `timeout_s` seconds; the message names them.
        """
        process = self._process

        def lacking() -> list[str]:
            found = []
            for each in process.image.topics.values():
                for number, state in each.partitions.items() if topic in (None, each.name) else ():
                    missing = sorted(set(state.replicas) - set(state.isr))
                    if missing or state.leader < 0:
                        found.append(f"{each.name}-{number} (without {missing})")
            return found

        self._process.run(
            process.until(
                lambda: not lacking() and process.is_settled(),
                lambda: f"replicas in sync of {', '.join(lacking()) or 'all topics'}",
                timeout_s=timeout_s,
            )
        )

    def log(
        self, topic: str, partition: int | None = None, *, broker: int | None = None
    ) -> TopicLog:
        """The records of a topic, or of one partition, as they lie in the files of the leaders.

        With `broker` as they lie in those of one broker, which may be down.
        """
        if broker is None:
            return TopicLog(LeadersLogs(self._process), topic, partition)
        return TopicLog(self._process.broker(broker), topic, partition)

    # -- faults -------------------------------------------------------------------------------

    def fail(
        self, *apis: str, error: str, times: int | None = None, broker: int | None = None
    ) -> Fault:
        """Answer requests with an error; as `TestBroker.fail`, by all brokers or by one.

        Requests of other brokers meet it as those of clients do: followers send Fetch too.
        """
        return self._faults_of(broker).set(Fail(error_code(error)), apis, times=times)

    def delay(
        self, *apis: str, seconds: float, times: int | None = None, broker: int | None = None
    ) -> Fault:
        """Let requests wait; as `TestBroker.delay`, see `fail`."""
        return self._faults_of(broker).set(delay_of(seconds), apis, times=times)

    def drop(
        self,
        *apis: str,
        times: int | None = None,
        handled: bool = False,
        broker: int | None = None,
    ) -> Fault:
        """Close the connection on requests; as `TestBroker.drop`, see `fail`."""
        return self._faults_of(broker).set(Drop(handled), apis, times=times)

    def corrupt(self, *apis: str, times: int | None = None, broker: int | None = None) -> Fault:
        """Send wrong bytes in responses; as `TestBroker.corrupt`, see `fail`."""
        return self._faults_of(broker).set(Corrupt(), apis, times=times)

    def heal(self) -> None:
        """Remove all faults of requests; brokers that are cut off stay so."""
        for each in (self._faults, *(node.faults for node in self._process.brokers.values())):
            each.clear()

    # -- the clock ----------------------------------------------------------------------------

    def advance(self, by: timedelta | float) -> None:
        """Move the clock of all nodes on; as `TestBroker.advance`.

        No broker is fenced by it: their heartbeats count as if they had come meanwhile.

        Raises:
            ValueError: the time is negative or not finite, or the year 9999 would be over.
        """
        seconds, process = checked_seconds(by), self._process

        async def advance() -> None:
            self._clock.advance(seconds)
            if process.has_controller:
                process.controller.node.prolong_sessions(int(seconds * 1000))
            await let_timers_fire()
            for each in process.brokers.values():
                if each.is_running:
                    await each.running.finish_due_jobs()

        process.run(advance())

    def set_time(self, now: datetime) -> None:
        """Set the time of day of all nodes; as `TestBroker.set_time`.

        Raises:
            ValueError: `now` names no zone.
        """
        self._clock.set(checked_time(now))

    async def _ask(self, request: Message, response: type[M]) -> M:
        """Ask a broker that is reached; it forwards to the controller."""
        _ = self._process.controller
        for each in self._process.brokers.values():
            if each.is_reached:
                return await each.ask(request, response)
        raise RuntimeError("no broker is running that is not cut off")

    def _state(self, topic: str, partition: int) -> PartitionRecord:
        name = TopicPartition(topic, partition)
        return self._process.on_loop(lambda: self._process.partition(name))

    def _faults_of(self, broker: int | None) -> RequestFaults:
        return self._faults if broker is None else self._process.broker(broker).faults


def _check(what: str, code: int, message: str | None) -> None:
    """Raises RefusedRequestError where `code` is an error."""
    if code:
        raise RefusedRequestError(what, code, message)
