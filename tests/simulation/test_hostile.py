"""Brokers that answer nonsense: records end in clear errors and in time."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from tailrace.errors import TailraceError
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from tailrace.protocol.messages.find_coordinator import FindCoordinatorResponse
from tailrace.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tailrace.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    ProduceResponse,
)
from tailrace.testing.cluster import GARBAGE
from tailrace.testing.script import FaultKind
from tests.simulation.stage import Stage, check_empty, deliver, outcomes, play, with_fields

ALWAYS = 1 << 30
INT16, INT32, INT64 = (1 << 15) - 1, (1 << 31) - 1, (1 << 63) - 1

TIMES: dict[str, Any] = {
    "delivery_timeout_ms": 20_000,
    "request_timeout_ms": 5000,
    "max_block_ms": 20_000,
}
IN_TIME_S = 20.5


@contextmanager
def quiet(stage: Stage) -> Iterator[None]:
    """Check that no call of the loop raises meanwhile."""
    raised: list[dict[str, Any]] = []
    stage.outside.loop.set_exception_handler(lambda _, context: raised.append(context))
    yield
    assert not raised


class Nonsense(NamedTuple):
    """A broker's wrong answer to all requests of an API, and the error of records that follows."""

    api: ApiKey
    edit: Callable[[Any], Any]
    says: str
    """In the message of the records' errors."""


def offering(changed: dict[ApiKey, tuple[int, int] | None], says: str) -> Nonsense:
    """ApiVersions with other first and last versions, or without an API."""

    def edit(answer: ApiVersionsResponse) -> ApiVersionsResponse:
        found = []
        for each in answer.api_keys:
            versions = each.min_version, each.max_version
            first, last = changed.get(ApiKey(each.api_key), versions) or (1, 0)
            if changed.get(ApiKey(each.api_key), versions) is not None:
                found.append(ApiVersion(api_key=each.api_key, min_version=first, max_version=last))
        return replace(answer, api_keys=tuple(found))

    return Nonsense(ApiKey.API_VERSIONS, edit, says)


def metadata_with(says: str, **fields: Any) -> Nonsense:
    """Metadata with other fields."""
    return Nonsense(ApiKey.METADATA, lambda answer: replace(answer, **fields), says)


def topic_with(says: str, *numbers: int, **fields: Any) -> Nonsense:
    """Metadata whose topics have partitions with these numbers and fields."""

    def edited(topic: MetadataResponseTopic) -> MetadataResponseTopic:
        parts = (
            replace(
                MetadataResponsePartition(
                    error_code=0, partition_index=number, leader_id=1, leader_epoch=0
                ),
                **fields,
            )
            for number in numbers
        )
        return replace(topic, partitions=tuple(parts))

    def edit(answer: MetadataResponse) -> MetadataResponse:
        return replace(answer, topics=tuple(map(edited, answer.topics)))

    return Nonsense(ApiKey.METADATA, edit, says)


def brokers_with(says: str, **fields: Any) -> Nonsense:
    """Metadata whose brokers have other fields."""

    def edit(answer: MetadataResponse) -> MetadataResponse:
        return replace(answer, brokers=tuple(replace(each, **fields) for each in answer.brokers))

    return Nonsense(ApiKey.METADATA, edit, says)


def produced_with(says: str, **fields: Any) -> Nonsense:
    """Produce answered with other fields for each partition."""
    return Nonsense(ApiKey.PRODUCE, lambda answer: with_fields(answer, **fields), says)


def id_with(says: str, **fields: Any) -> Nonsense:
    """InitProducerId with other fields."""
    return Nonsense(ApiKey.INIT_PRODUCER_ID, lambda answer: replace(answer, **fields), says)


def named_otherwise(answer: ProduceResponse) -> ProduceResponse:
    """An answer about a topic that was not in the request."""
    return replace(answer, responses=tuple(replace(each, name="u") for each in answer.responses))


ERRORS = tuple(
    BatchIndexAndErrorMessage(batch_index=each - 5, batch_index_error_message="no")
    for each in range(25_000)
)

CASES = {
    "no Produce": offering({ApiKey.PRODUCE: None}, "no version of Produce"),
    "no Metadata": offering({ApiKey.METADATA: None}, "no version of Metadata"),
    "no InitProducerId": offering({ApiKey.INIT_PRODUCER_ID: None}, "no version of InitProducerId"),
    "nothing": offering(dict.fromkeys(ApiKey), "no version of Metadata"),
    "later Produce": offering({ApiKey.PRODUCE: (100, INT16)}, "no version of Produce"),
    "older Produce": offering({ApiKey.PRODUCE: (0, 2)}, "no version of Produce"),
    "later Metadata": offering({ApiKey.METADATA: (100, 101)}, "no version of Metadata"),
    "negative versions": offering({ApiKey.PRODUCE: (-9, -3)}, "no version of Produce"),
    "first after last": offering({ApiKey.PRODUCE: (9, 3)}, "no version of Produce"),
    "error in ApiVersions": Nonsense(
        ApiKey.API_VERSIONS,
        lambda answer: replace(answer, error_code=-1),
        "answered ApiVersions with an error",
    ),
    "no brokers": metadata_with("names no broker", brokers=()),
    "no topics": metadata_with("leaves it out", topics=()),
    "no partitions": topic_with("names none"),
    "negative partition": topic_with("gaps", -1, 0),
    "huge partition": topic_with("gaps", 0, INT32),
    "unknown leader": topic_with("no broker leads it", 0, 1, leader_id=77),
    "negative leader": topic_with("no broker leads it", 0, 1, leader_id=-77),
    "bootstrap node as leader": topic_with("no broker leads it", 0, 1, leader_id=-1),
    "negative ids": brokers_with("names no broker", node_id=-1),
    "no host": brokers_with("names no broker", host=""),
    "negative port": brokers_with("names no broker", port=-1),
    "huge port": brokers_with("names no broker", port=70_000),
    "wrong port": brokers_with("nobody listens", port=1),
    "negative id": id_with("id -1", producer_id=-1),
    "negative epoch": id_with("epoch -7", producer_epoch=-7),
    "unknown error in InitProducerId": id_with("12345", error_code=12345),
    "empty answer": Nonsense(
        ApiKey.PRODUCE, lambda answer: replace(answer, responses=()), "lacks t-0"
    ),
    "another topic": Nonsense(ApiKey.PRODUCE, named_otherwise, "lacks t-0"),
    "another partition": produced_with("lacks t-0", index=1),
    "negative partition in Produce": produced_with("lacks t-0", index=-1),
    "unknown error": produced_with("12345", error_code=12345),
    "negative error": produced_with("error -100", error_code=-100),
    "many record errors": produced_with("no", error_code=87, record_errors=ERRORS),
}


@pytest.mark.parametrize("case", CASES)
def test_nonsense_ends_in_a_clear_error_in_time(case: str) -> None:
    """Each record gets an error that names the fault, and the producer can be closed."""
    api, edit, says = CASES[case]

    async def main(stage: Stage) -> None:
        stage.cluster.script.add(api, FaultKind.EDIT, edit=edit, times=ALWAYS)
        with quiet(stage):
            async with stage.producer(**TIMES) as producer:
                receipts = stage.send(producer, 3, partition=0)
                await producer.flush()
                assert stage.now < IN_TIME_S
                assert "" not in outcomes(receipts)
                assert says in str(receipts[0].exception())
                check_empty(producer)
                assert sum(stage.cluster.counts.values()) < 1000

    play(main)


PASSING = {
    name: each
    for name, each in CASES.items()
    if each.api is ApiKey.METADATA or "lacks" in each.says or "names its versions" in each.says
}


@pytest.mark.parametrize("case", PASSING)
def test_nonsense_that_passes_is_survived(case: str) -> None:
    """Once a broker is itself again, each record is written once and in order."""
    api, edit, _ = PASSING[case]

    async def main(stage: Stage) -> None:
        stage.cluster.script.add(api, FaultKind.EDIT, edit=edit, times=3)
        with quiet(stage):
            await deliver(stage, 5, **TIMES)

    play(main)


def hinting(leader: int, epoch: int, *ends: NodeEndpoint) -> Nonsense:
    """Produce answered with a hint about a leader that there is not."""
    hint = LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
    part = produced_with("", error_code=6, current_leader=hint)
    return Nonsense(
        ApiKey.PRODUCE, lambda answer: replace(part.edit(answer), node_endpoints=ends), ""
    )


HINTS = {
    "unknown": hinting(77, 9),
    "nobody": hinting(-1, 9, NodeEndpoint(node_id=-1, host="node", port=1)),
    "no host": hinting(77, 9, NodeEndpoint(node_id=77, host="", port=1)),
    "negative port": hinting(77, 9, NodeEndpoint(node_id=77, host="node", port=-1)),
    "nobody listens": hinting(77, 9, NodeEndpoint(node_id=77, host="node", port=1)),
    "old epoch": hinting(1, -5, NodeEndpoint(node_id=1, host="node", port=1)),
    "last epoch": hinting(77, INT32, NodeEndpoint(node_id=77, host="node", port=1)),
}


@pytest.mark.parametrize("case", HINTS)
def test_a_hint_to_nowhere_ends_in_time(case: str) -> None:
    """Hints of leaders that there are not lead to no hang, and to an error that says so."""

    async def main(stage: Stage) -> None:
        stage.cluster.script.add(
            ApiKey.PRODUCE, FaultKind.EDIT, edit=HINTS[case].edit, times=ALWAYS
        )
        with quiet(stage):
            async with stage.producer(**TIMES) as producer:
                receipts = stage.send(producer, 2)
                await producer.flush()
                assert stage.now < IN_TIME_S
                assert outcomes(receipts) == ["DeliveryTimeoutError"] * 2
                check_empty(producer)
                assert sum(stage.cluster.counts.values()) < 1000

    play(main)


@pytest.mark.parametrize("offset", [-7, -1, INT64, INT64 - 1])
def test_the_brokers_offset_is_believed_only_where_it_can_be(offset: int) -> None:
    """An answer with any offset acknowledges the batch; a negative offset becomes -1."""
    edit = produced_with("", base_offset=offset).edit

    async def main(stage: Stage) -> None:
        stage.cluster.script.add(ApiKey.PRODUCE, FaultKind.EDIT, edit=edit)
        with quiet(stage):
            async with stage.producer() as producer:
                (receipt,) = stage.send(producer, 1)
                assert (await receipt).offset == max(offset, -1)
                summary = await producer.send_many("t", {"value": [b"x"], "partition": [0]})
                assert summary.acknowledged_count == 1

    play(main)


def test_bytes_behind_an_answer_break_the_connection_and_nothing_else() -> None:
    """The answer counts; surplus bytes after it close the connection."""

    async def main(stage: Stage) -> None:
        def edit(answer: ProduceResponse) -> ProduceResponse:
            for channel in stage.cluster.nodes[1].channels:
                stage.outside.loop.call_soon(channel.send, GARBAGE)
            return answer

        stage.cluster.script.add(ApiKey.PRODUCE, FaultKind.EDIT, edit=edit, times=3)
        with quiet(stage):
            await deliver(stage, 10, **TIMES)

    play(main)


@pytest.mark.parametrize("milliseconds", [-1, -INT32 - 1, INT32])
def test_throttling_without_end_is_no_hang(milliseconds: int) -> None:
    """However long a broker holds requests back, records end within delivery.timeout.ms."""

    async def main(stage: Stage) -> None:
        stage.cluster.throttle_ms = milliseconds
        with quiet(stage):
            async with stage.producer(**TIMES) as producer:
                await stage.send(producer, 1)[0]
                receipts = stage.send(producer, 3)
                await producer.flush()
                assert stage.now < IN_TIME_S
                late = ["DeliveryTimeoutError"] * 3
                assert outcomes(receipts) == (late if milliseconds > 0 else [""] * 3)

    play(main)


def coordinator_with(**fields: Any) -> Callable[[FindCoordinatorResponse], Any]:
    """FindCoordinator with other fields of the coordinator."""

    def edit(answer: FindCoordinatorResponse) -> FindCoordinatorResponse:
        found = tuple(replace(each, **fields) for each in answer.coordinators)
        return replace(answer, coordinators=found)

    return edit


COORDINATORS: dict[str, Callable[[FindCoordinatorResponse], Any]] = {
    "none": lambda answer: replace(answer, coordinators=()),
    "negative id": coordinator_with(node_id=-1),
    "no host": coordinator_with(host=""),
    "negative port": coordinator_with(port=-1),
    "huge port": coordinator_with(port=70_000),
    "nobody listens": coordinator_with(port=1, node_id=77),
    "unknown error": coordinator_with(error_code=12345),
}


@pytest.mark.parametrize("case", COORDINATORS)
def test_a_coordinator_that_is_nowhere_ends_the_call(case: str) -> None:
    """A transaction that finds no coordinator fails within max.block.ms, and says why."""

    async def main(stage: Stage) -> None:
        edit = COORDINATORS[case]
        stage.cluster.script.add(ApiKey.FIND_COORDINATOR, FaultKind.EDIT, edit=edit, times=ALWAYS)
        with quiet(stage):
            async with stage.producer(transactional_id="x", **TIMES) as producer:
                with pytest.raises(TailraceError):
                    async with producer.transaction():
                        pytest.fail("there is no coordinator")
                assert stage.now < IN_TIME_S
            assert sum(stage.cluster.counts.values()) < 1000

    play(main)


def test_nonsense_from_everywhere_is_survived() -> None:
    """Garbage, repeated and swapped answers to requests of all kinds lose and repeat nothing."""

    async def main(stage: Stage) -> None:
        for api in (ApiKey.API_VERSIONS, ApiKey.METADATA, ApiKey.INIT_PRODUCER_ID, ApiKey.PRODUCE):
            for how in (FaultKind.GARBAGE, FaultKind.TWICE):
                stage.cluster.script.add(api, how, times=2)
        with quiet(stage):
            async with stage.producer(batch_size=100, **TIMES) as producer:
                receipts = stage.send(producer, 6, size=90)
                await producer.flush()
                assert outcomes(receipts) == [""] * 6
                check_empty(producer)
        stage.check_log()

    play(main)
