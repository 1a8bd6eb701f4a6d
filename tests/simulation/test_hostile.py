"""Brokers that answer nonsense: records end in clear errors and in time, and nothing else breaks."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from tailrace.protocol.apis import ApiKey
from tailrace.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from tailrace.protocol.messages.find_coordinator import FindCoordinatorResponse
from tailrace.protocol.messages.init_producer_id import InitProducerIdResponse
from tailrace.protocol.messages.leadership import LeaderIdAndEpoch, NodeEndpoint
from tailrace.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tailrace.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceResponse,
)
from tailrace.testing.cluster import GARBAGE
from tailrace.testing.script import How
from tests.simulation.stage import Stage, check_empty, outcomes, play

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
    """Nothing is raised in a call of the loop meanwhile."""
    raised: list[dict[str, Any]] = []
    stage.outside.loop.set_exception_handler(lambda _, context: raised.append(context))
    yield
    assert not raised


class Nonsense(NamedTuple):
    """What a broker answers to all requests of an API, and what becomes of records."""

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


def metadata_with(says: str, **fields: object) -> Nonsense:
    """Metadata with other fields."""
    return Nonsense(ApiKey.METADATA, lambda answer: replace(answer, **fields), says)


def topic_with(says: str, *numbers: int, **fields: object) -> Nonsense:
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


def brokers_with(says: str, **fields: object) -> Nonsense:
    """Metadata whose brokers have other fields."""

    def edit(answer: MetadataResponse) -> MetadataResponse:
        return replace(answer, brokers=tuple(replace(each, **fields) for each in answer.brokers))

    return Nonsense(ApiKey.METADATA, edit, says)


def produced_with(says: str, **fields: object) -> Nonsense:
    """Produce answered with other fields for each partition."""

    def edit(answer: ProduceResponse) -> ProduceResponse:
        topics = (
            replace(
                topic,
                partition_responses=tuple(
                    replace(each, **fields) for each in topic.partition_responses
                ),
            )
            for topic in answer.responses
        )
        return replace(answer, responses=tuple(topics))

    return Nonsense(ApiKey.PRODUCE, edit, says)


def id_with(says: str, **fields: object) -> Nonsense:
    """InitProducerId with other fields."""
    return Nonsense(ApiKey.INIT_PRODUCER_ID, lambda answer: replace(answer, **fields), says)


def named_otherwise(answer: ProduceResponse) -> ProduceResponse:
    """An answer about a topic that was not in the request."""
    return replace(answer, responses=tuple(replace(each, name="u") for each in answer.responses))


ERRORS = tuple(
    BatchIndexAndErrorMessage(batch_index=each - 5, batch_index_error_message="no")
    for each in range(100_000)
)

CASES = {
    "no Produce": offering({ApiKey.PRODUCE: None}, "PRODUCE"),
    "no Metadata": offering({ApiKey.METADATA: None}, "METADATA"),
    "no InitProducerId": offering({ApiKey.INIT_PRODUCER_ID: None}, "INIT_PRODUCER_ID"),
    "nothing": offering(dict.fromkeys(ApiKey), "METADATA"),
    "later Produce": offering({ApiKey.PRODUCE: (100, INT16)}, "PRODUCE"),
    "older Produce": offering({ApiKey.PRODUCE: (0, 2)}, "PRODUCE"),
    "later Metadata": offering({ApiKey.METADATA: (100, 101)}, "METADATA"),
    "negative versions": offering({ApiKey.PRODUCE: (-9, -3)}, "PRODUCE"),
    "first after last": offering({ApiKey.PRODUCE: (9, 3)}, "PRODUCE"),
    "error in ApiVersions": Nonsense(
        ApiKey.API_VERSIONS, lambda answer: replace(answer, error_code=-1), "API_VERSIONS"
    ),
    "no brokers": metadata_with("names no broker", brokers=()),
    "no topics": metadata_with("leaves it out", topics=()),
    "unknown error in Metadata": metadata_with("12345", error_code=12345),
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
    "wrong port": brokers_with("refused", port=1),
    "odd host": brokers_with("", host="\0 x"),
    "negative id": id_with("producer id", producer_id=-1),
    "negative epoch": id_with("epoch", producer_epoch=-7),
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
    """Each record has an error that names what is wrong, and the producer can be closed."""
    api, edit, says = CASES[case]

    async def main(stage: Stage) -> None:
        stage.cluster.script.add(api, How.EDIT, edit=edit, times=ALWAYS)
        with quiet(stage):
            async with stage.producer(**TIMES) as producer:
                receipts = stage.send(producer, 3, partition=0)
                await producer.flush()
                assert stage.now < IN_TIME_S
                print(case, stage.now, outcomes(receipts), receipts[0].exception())
                assert "" not in outcomes(receipts)
                assert says in str(receipts[0].exception())
                check_empty(producer)
                assert sum(stage.cluster.counts.values()) < 1000

    play(main)
