"""Helpers for properties of repeated requests: a client, and two brokers that are compared.

Both brokers get the same requests. At one they have one client id, so that a request may repeat the
one before. At the other each request has a client id of its own, so that none does.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from uuid import UUID

from tailrace.broker.broker import RunningBroker
from tailrace.protocol.apis import APIS, ApiKey
from tailrace.protocol.fields import Message
from tailrace.protocol.frames import encode_request
from tailrace.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tailrace.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from tailrace.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from tailrace.protocol.messages.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from tailrace.testing import DiskFault, Outside, Peer, virtual_runtime
from tests.unit.broker.brokers import connect, running

TOPICS = ("first", "second")

_BEHIND_CLIENT_ID = 10 + len("client-000000000")
"""Bytes of a request up to the end of the client id, by which a repetition is known."""


@dataclass(slots=True, kw_only=True)
class Link:
    """The connection of the client to one broker, and its answers."""

    outside: Outside
    broker: RunningBroker
    repeats: bool
    answers: list[object]
    peer: Peer | None = None
    """None before the first request, and after the connection was closed."""
    ids: dict[int, UUID] = field(default_factory=dict)
    """Ids of the topics, by their places in `TOPICS`."""
    _sent: int = 0

    def open_peer(self) -> Peer:
        """The connection, made if there is none."""
        if self.peer is None:
            self.peer = self.operator()
        return self.peer

    def operator(self) -> Peer:
        """A connection for requests that are not compared."""
        return connect(self.outside, self.broker)

    def note_closed(self, answer: str = "closed") -> None:
        """Add to the answers that the broker has closed the connection."""
        self.peer = None
        self.answers.append(answer)

    def frame(
        self,
        api: ApiKey,
        request: Message,
        version: int,
        *,
        end: bytes = b"",
        edit: tuple[int, int] | None = None,
    ) -> bytes:
        """The bytes of the next request, with `end` behind it.

        `edit` is a position behind the client id, and what the byte there is changed by.
        """
        self._sent += 1
        frame = encode_request(
            APIS[api],
            request,
            version=version,
            correlation_id=self._sent,
            client_id=f"client-{0 if self.repeats else self._sent:09}",
        )
        body = bytearray(frame[4:] + end)
        if edit is not None:
            position, change = edit
            position += _BEHIND_CLIENT_ID
            if position < len(body):
                body[position] ^= change
        return len(body).to_bytes(4, "big") + body

    async def create(
        self, topic: int, *, partition_count: int = 1, configs: Mapping[str, str] | None = None
    ) -> None:
        """Make a topic and its logs; one of that name is deleted before."""
        if topic in self.ids:
            gone = DeleteTopicsRequest(
                topics=(DeleteTopicState(name=TOPICS[topic]),), timeout_ms=1000
            )
            await self.operator().ask(ApiKey.DELETE_TOPICS, gone, DeleteTopicsResponse)
        wanted = CreatableTopic(
            name=TOPICS[topic],
            num_partitions=partition_count,
            replication_factor=1,
            configs=tuple(
                CreatableTopicConfig(name=name, value=value)
                for name, value in (configs or {}).items()
            ),
        )
        asked = CreateTopicsRequest(topics=(wanted,))
        answer = await self.operator().ask(ApiKey.CREATE_TOPICS, asked, CreateTopicsResponse)
        self.ids[topic] = answer.topics[0].topic_id
        await self.broker.replicas.new_logs.wait_for_all()

    async def delete_records(self, topic: int, offset: int) -> None:
        """Have the log of a topic begin at an offset; -1 is its end."""
        partition = DeleteRecordsPartition(partition_index=0, offset=offset)
        named = DeleteRecordsTopic(name=TOPICS[topic], partitions=(partition,))
        asked = DeleteRecordsRequest(topics=(named,), timeout_ms=1000)
        await self.operator().ask(ApiKey.DELETE_RECORDS, asked, DeleteRecordsResponse)

    async def configure(self, topics: Iterable[str], name: str, value: str) -> None:
        """Give topics a setting."""
        config = IncrementalAlterableConfig(name=name, config_operation=0, value=value)
        asked = IncrementalAlterConfigsRequest(
            resources=tuple(
                IncrementalAlterConfigsResource(
                    resource_type=2, resource_name=topic, configs=(config,)
                )
                for topic in topics
            )
        )
        await self.operator().ask(
            ApiKey.INCREMENTAL_ALTER_CONFIGS, asked, IncrementalAlterConfigsResponse
        )

    @contextmanager
    def failing(self, operation: str, error: int) -> Iterator[None]:
        """The disk refuses an operation on segment files meanwhile."""
        fault = DiskFault(operation=operation, path_part=".log", error=error)
        self.outside.files.faults.append(fault)
        yield
        self.outside.files.faults.remove(fault)


Play = Callable[[Link], Awaitable[object]]
"""Sends the requests, and returns what is compared besides the answers and the disk."""


def compare(play: Play, settings: dict[str, str] | None = None) -> None:
    """Compare the broker on which requests repeat with the one on which they do not."""
    answers, played, disk = _outcome(play, settings, repeats=True)
    answers_due, played_due, disk_due = _outcome(play, settings, repeats=False)
    assert answers == answers_due
    assert played == played_due
    assert disk == disk_due


def _outcome(
    play: Play, settings: dict[str, str] | None, *, repeats: bool
) -> tuple[list[object], object, object]:
    """The answers, what `play` has returned, and all that is on the disk in the end."""
    answers: list[object] = []

    async def scenario(outside: Outside) -> object:
        async with running(outside, settings) as broker:
            return await play(
                Link(outside=outside, broker=broker, repeats=repeats, answers=answers)
            )

    with virtual_runtime() as outside:
        played = outside.run(scenario(outside))
        return answers, played, outside.files.state()
