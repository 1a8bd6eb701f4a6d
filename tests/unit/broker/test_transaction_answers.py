"""Our broker's answers to transactional producers are Apache Kafka's, in every state."""

from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from tailrace.coordinator.transactions.records import TransactionCodec
from tailrace.model import TRANSACTIONS_TOPIC, AppendOrigin, TopicPartition
from tailrace.protocol.apis import api_of
from tailrace.protocol.errors import ErrorCode
from tailrace.records.builder import BatchBuilder
from tailrace.testing import DiskFault, Outside, Peer
from tests.unit.broker.brokers import connect, create_topic, running
from tests.unit.broker.transaction_answers import (
    ANSWERS,
    HELD,
    LIVE,
    STATES,
    Cell,
    answers,
    cells,
    seeds,
    why_other,
)
from tests.unit.broker.transactional import NOW, find

if TYPE_CHECKING:
    from tailrace.protocol.fields import Message

ONE = {"transaction.state.log.num.partitions": "1", "offsets.topic.num.partitions": "1"}
PAUSE_S = 0.01


@asynccontextmanager
async def with_a_lost_partition(outside: Outside) -> AsyncIterator[Peer]:
    """A broker whose partition `HELD` takes no markers, and whose log has the records of cells."""
    async with running(outside, ONE) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, LIVE.topic, partitions=2)
        for kind in (0, 1):
            await find(peer, kind)
        builder = BatchBuilder()
        for record in seeds(cells()):
            key, value = TransactionCodec().encode(record)
            builder.append(key, value, timestamp=NOW)
        broker.replicas.find(TopicPartition(TRANSACTIONS_TOPIC, 0)).append(
            memoryview(bytearray(builder.build())), now_ms=NOW, origin=AppendOrigin.COORDINATOR
        )
    async with running(outside, ONE | {"log.dirs": "data,lost"}) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, HELD.topic)
        assert outside.files.exists("lost/held-0")
        for kind in (0, 1):
            await find(peer, kind)
        outside.files.faults.append(DiskFault(operation="write", path_part="lost/held-0"))
        yield peer


def groups(expected: Iterable[str]) -> Iterator[list[Cell]]:
    """The cells of these lines; those of a state that are refused, and change nothing, together."""
    known = {cell.label: cell for cell in cells()}
    refused: dict[str, list[Cell]] = defaultdict(list)
    for line in expected:
        label, error, _, afterwards = line.rsplit("\t", 3)
        cell = known[label]
        status = STATES[cell.state].status
        is_as_before = status is None or afterwards.startswith(f"{status.label} ")
        if error != ErrorCode.NONE.name and is_as_before and why_other(line) is None:
            refused[cell.state].append(cell)
        else:
            yield [cell]
    yield from refused.values()


async def ask(outside: Outside, peer: Peer, group: list[Cell]) -> list[str]:
    """The lines of a group."""
    run = answers(group)
    response: Message | None = None
    while True:
        try:
            asked = run.send(response)
        except StopIteration as end:
            lines: list[str] = end.value
            return lines
        if asked is None:
            response = None
            await outside.pass_time(PAUSE_S)
        else:
            api = api_of(type(asked.request))
            response = await peer.ask(api.key, asked.request, api.response, version=asked.version)


async def test_every_request_in_every_state_is_answered_as_kafka_does(outside: Outside) -> None:
    """Error, producer and state afterwards; an answer is another one only for a written reason."""
    expected = ANSWERS.read_text().splitlines()[1:]
    async with with_a_lost_partition(outside) as peer:
        found = [line for group in groups(expected) for line in await ask(outside, peer, group)]
    assert len(found) == len(expected)
    assert {line for line in expected if why_other(line) is None} - {*found} == set()
