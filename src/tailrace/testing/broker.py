"""`TestBroker`: a broker for the tests of programs that use Kafka, on real sockets.

    with TestBroker() as broker:
        broker.create_topic("orders", partitions=3)
        broker.fail("Produce", error="NOT_LEADER_OR_FOLLOWER", times=1)
        ...the program under test, with broker.bootstrap_servers
        assert broker.log("orders").values() == [b"one", b"two"]

It runs in the process of the test, on a thread of its own. The fixture `tailrace_broker` of
`tailrace.pytest_plugin` gives one; docs/testing.md explains both.

Not here: the broker for programs, `tailrace.Broker`, which has no faults; several brokers with
replicas (`broker_cluster`); clusters of which the test writes the script (`cluster`).
"""

import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self, Unpack

from tailrace.config import settings_texts
from tailrace.errors import kind_of
from tailrace.kernels.encoding import choose_partition
from tailrace.model import OFFSETS_TOPIC, Acks, TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsResponse,
)
from tailrace.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tailrace.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from tailrace.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tailrace.records.builder import BatchBuilder
from tailrace.testing.broker_clock import BrokerClock, let_timers_fire
from tailrace.testing.broker_process import BrokerProcess, RefusedRequestError
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

DEFAULTS: Final = {
    # The first member of a group would wait 3 s for others.
    "group.initial.rebalance.delay.ms": "0",
    # Kafka's 50 partitions take a tenth of a second to create.
    "offsets.topic.num.partitions": "1",
}
"""Settings of a `TestBroker` that differ from the broker's defaults."""

_BY_NAME_PRODUCE: Final = 12
"""The last version of Produce that names topics."""
_BY_NAME_OFFSET_FETCH: Final = 9
"""Likewise."""
_TIMEOUT_MS: Final = 30_000
_NOT_READY: Final = {
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}
"""Errors of a coordinator that still reads its log after a start."""
_READY_PAUSE_S: Final = 0.01
"""Pause before it is asked again."""


class TestBroker:
    """A broker in this process, with faults, kills and a clock; runs within a `with` block.

    Settings have Kafka's names, as those of `tailrace.Broker`. Without `data` the log directory is
    a temporary one, which is removed at the end of the block. Methods may be called on any thread,
    and block until the broker has done it.

    `security` is the protocol of its listener: with SSL it makes an authority and certificates, and
    with SASL it has `users`, with their passwords by name, who log in by PLAIN and SCRAM.
    `client_settings` has what a client needs.

    Raises:
        ConfigError: settings that do not exist or are out of range, all of them.
        TypeError: `data` is neither a path nor None, or `settings` is no mapping.
        ValueError: there is no such `security`, or it has no logins and there are users.
        MissingExtraError: certificates need the package cryptography.
    """

    __test__ = False
    """No class of tests, whatever its name."""

    def __init__(
        self,
        data: str | Path | None = None,
        *,
        security: SecurityProtocol = "PLAINTEXT",
        users: Mapping[str, str] | None = None,
        settings: Mapping[str, object] | None = None,
        **more_settings: "Unpack[BrokerSettings]",
    ) -> None:
        if not isinstance(data, str | Path | None):
            raise TypeError(f"data is {kind_of(data)}; it has to be the path of a directory")
        self._clock = BrokerClock()
        self._faults = RequestFaults()
        self._secured = Secured(security, users, settings_texts(settings, more_settings))
        self._process = BrokerProcess(
            None if data is None else str(data),
            DEFAULTS | self._secured.broker_settings,
            clock=self._clock,
            around=self._faults.around,
            listener=security,
        )
        self._keyless: Counter[str] = Counter()
        """Records without key and partition that `produce` has written, by topic."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def bootstrap_servers(self) -> str:
        """HOST:PORT for `bootstrap.servers` of any client; the same after a restart."""
        return self._process.bootstrap_servers

    def client_settings(
        self,
        client: ClientNames = "kafka",
        *,
        user: str | None = None,
        mechanism: str | None = None,
    ) -> dict[str, object]:
        """Settings with which a client reaches the broker, encrypts and logs in.

        Certificates are in them as PEM. A client's own is there if the broker asks for one, by
        `ssl.client.auth`; its principal is `User:CN=client`.

        Args:
            client: whose names they have: `kafka` for Java's and Tailrace's clients, `librdkafka`
                for confluent-kafka too, `python` for keywords of kafka-python and aiokafka.
            user: who logs in; the first of the users if it is None.
            mechanism: how; the first that the broker offers if it is None.

        Raises:
            ValueError: there is no such user.
            RuntimeError: the broker was not started yet.
        """
        return self._secured.client_settings(
            self.bootstrap_servers, client=client, user=user, mechanism=mechanism
        )

    @property
    def directory(self) -> Path:
        """The log directory, for `tailrace.open_log` and the `tailrace` command."""
        return Path(self._process.directory)

    def start(self) -> None:
        """Start, on the port and the directory of the last start if there was one.

        Raises:
            RuntimeError: it is running.
        """
        self._process.start()
        for request in self._secured.scram_requests():
            for result in self._process.ask(request, AlterUserScramCredentialsResponse).results:
                if result.error_code:
                    raise RefusedRequestError(
                        f"create user {result.user}", result.error_code, result.error_message
                    )

    def stop(self) -> None:
        """Stop in order, as after SIGTERM; port, directory and faults stay for the next `start`."""
        self._process.stop()

    def kill(self) -> None:
        """End as after kill -9; port, directory and faults stay for the next `start`.

        Nothing is flushed, no file is closed in order and no request is answered. What the broker
        had written stays, because the page cache outlives a process.
        """
        self._process.kill()

    def restart(self) -> None:
        """Start again on the same port and directory; stops in order before, if it is running."""
        self._process.stop()
        self.start()

    def close(self) -> None:
        """End it, and remove its directory if that is temporary."""
        self._process.close()

    def create_topic(
        self, name: str, *, partitions: int = 1, configs: Mapping[str, object] | None = None
    ) -> None:
        """Create a topic with its folders; `configs` has Kafka's topic settings.

        Raises:
            RefusedRequestError: it exists, or name, number or a setting is invalid.
        """
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            configs=tuple(
                CreatableTopicConfig(name=setting, value=text)
                for setting, text in settings_texts(configs).items()
            ),
        )
        request = CreateTopicsRequest(topics=(topic,), timeout_ms=_TIMEOUT_MS)
        (result,) = self._process.ask(request, CreateTopicsResponse).topics
        if result.error_code:
            raise RefusedRequestError(
                f"create topic {name}", result.error_code, result.error_message
            )
        self._process.wait_for_logs()

    def produce(
        self,
        topic: str,
        value: str | bytes | None,
        *,
        key: str | bytes | None = None,
        partition: int | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        timestamp_ms: int | None = None,
    ) -> TopicPartition:
        """Append one record, and return its partition.

        Texts are encoded as UTF-8. Without `partition` it follows from the key as in all clients;
        records without a key go to the partitions in turn. Without `timestamp_ms` it is the
        broker's time. A topic that does not exist is created, with one partition.

        Raises:
            RefusedRequestError: the broker refuses the record.
        """
        count = self._process.partition_count(topic)
        if count is None:
            self.create_topic(topic)
            count = 1
        key = _encoded(key)
        if partition is None and key is not None:
            partition = choose_partition(key, count)
        elif partition is None:
            partition = self._keyless[topic] % count
            self._keyless[topic] += 1
        builder = BatchBuilder()
        builder.append(
            key,
            _encoded(value),
            timestamp=self._clock.now_ms() if timestamp_ms is None else timestamp_ms,
            headers=headers,
        )
        data = PartitionProduceData(index=partition, records=builder.build())
        request = ProduceRequest(
            acks=Acks.ALL,
            timeout_ms=_TIMEOUT_MS,
            topic_data=(TopicProduceData(name=topic, partition_data=(data,)),),
        )
        response = self._process.ask(request, ProduceResponse, version=_BY_NAME_PRODUCE)
        (result,) = response.responses[0].partition_responses
        if result.error_code:
            raise RefusedRequestError(
                f"produce to {topic}-{partition}", result.error_code, result.error_message
            )
        return TopicPartition(topic, partition)

    def log(self, topic: str, partition: int | None = None) -> TopicLog:
        """The records of a topic, or of one of its partitions, as they lie in the files.

        A record that was acknowledged is there, and so is one that was not acknowledged yet.
        """
        return TopicLog(self._process, topic, partition)

    def committed_offsets(self, group: str) -> dict[TopicPartition, int]:
        """The committed offsets of a consumer group, by topic and partition.

        Raises:
            RefusedRequestError: the group's coordinator is not ready.
        """
        if self._process.partition_count(OFFSETS_TOPIC) is None:
            return {}
        request = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=group, topics=None),))
        deadline = time.monotonic() + _TIMEOUT_MS / 1000
        while True:
            (result,) = self._process.ask(
                request, OffsetFetchResponse, version=_BY_NAME_OFFSET_FETCH
            ).groups
            if result.error_code not in _NOT_READY or time.monotonic() > deadline:
                break
            time.sleep(_READY_PAUSE_S)
        if result.error_code:
            raise RefusedRequestError(f"committed offsets of {group}", result.error_code)
        return {
            TopicPartition(topic.name, each.partition_index): each.committed_offset
            for topic in result.topics
            for each in topic.partitions
        }

    def fail(self, *apis: str, error: str, times: int | None = None) -> Fault:
        """Answer requests of these APIs with an error, and do nothing of what they ask.

        The error is where the API has its error codes: for each partition in Produce, once in
        JoinGroup. A request that has no place for it, such as Metadata without topics, is answered
        as usual and does not count.

        Args:
            apis: Kafka's names, such as `Produce`; all that the broker serves if there are none.
            error: Kafka's name, such as `NOT_LEADER_OR_FOLLOWER`.
            times: how many requests it meets; None for all, until it is removed.

        Raises:
            ConfigError: there is no such API or error; `times` is below 1.
        """
        return self._faults.set(Fail(error_code(error)), apis, times=times)

    def delay(self, *apis: str, seconds: float, times: int | None = None) -> Fault:
        """Let requests of these APIs wait before the broker looks at them; see `fail`.

        Later requests of the same connection wait too. The wait ends early when the clock is
        advanced, or the fault removed.
        """
        return self._faults.set(delay_of(seconds), apis, times=times)

    def drop(self, *apis: str, times: int | None = None, handled: bool = False) -> Fault:
        """Close the connection on requests of these APIs; see `fail`.

        With `handled` the broker does what is asked, and closes the connection instead of
        answering, so that the client cannot know.
        """
        return self._faults.set(Drop(handled), apis, times=times)

    def corrupt(self, *apis: str, times: int | None = None) -> Fault:
        """Send wrong bytes in the responses of these APIs; see `fail`.

        In records the first byte after the header of the first batch of a partition is inverted,
        so that its CRC does not match. A response without records is inverted after its header.
        """
        return self._faults.set(Corrupt(), apis, times=times)

    def heal(self) -> None:
        """Remove all faults; requests that are delayed go on."""
        self._faults.clear()

    def advance(self, by: timedelta | float) -> None:
        """Move the broker's clock on, by a timedelta or by seconds.

        Timers that are due then have fired when this returns, and periodic jobs such as retention
        have run: each once, however often it would have run meanwhile. Compaction has not. The
        clocks of clients do not move.

        Raises:
            ValueError: the time is negative or not finite, or the year 9999 would be over.
        """
        seconds = checked_seconds(by)
        if not self._process.is_running:
            self._clock.advance(seconds)
            return
        running = self._process.running

        async def advance() -> None:
            self._clock.advance(seconds)
            await let_timers_fire()
            await running.finish_due_jobs()

        self._process.run(advance())

    def set_time(self, now: datetime) -> None:
        """Set the broker's time of day, which does not move from now on, except by `advance`.

        Clients keep their own clocks, and the broker refuses records that are more than an hour
        ahead of its own (`message.timestamp.after.max.ms`).

        Raises:
            ValueError: `now` names no zone.
        """
        self._clock.set(checked_time(now))


def checked_seconds(by: timedelta | float) -> float:
    """The seconds that a clock is moved on by.

    Raises:
        ValueError: the time is negative or not finite.
    """
    seconds = by.total_seconds() if isinstance(by, timedelta) else by
    if not (math.isfinite(seconds) and seconds >= 0):
        raise ValueError(f"a clock advances by 0 seconds or more, and not by {seconds}")
    return seconds


def checked_time(now: datetime) -> int:
    """A time of day in milliseconds since 1970-01-01 UTC.

    Raises:
        ValueError: `now` names no zone.
    """
    if now.tzinfo is None:
        raise ValueError(f"{now!r} names no zone; give it a tzinfo")
    return round(now.timestamp() * 1000)


def _encoded(text: str | bytes | None) -> bytes | None:
    return text.encode() if isinstance(text, str) else text
