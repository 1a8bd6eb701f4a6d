"""Kafka's metadata log among the partitions: the broker neither shows nor changes it."""

import json

import pytest

from tailrace.cluster.store import FILE
from tailrace.model import METADATA_TOPIC
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from tailrace.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from tailrace.storage import names
from tailrace.testing import MemoryFiles, Outside, Peer, virtual_runtime
from tests.kraft import METADATA_FOLDER, ROOT, STRANGERS, kraft_directory, not_ours
from tests.unit.broker.brokers import (
    batch,
    connect,
    create_topic,
    fetch,
    fetch_request,
    produce,
    running,
)
from tests.unit.broker.test_configs import alter_all, describe, resource, set_to
from tests.unit.broker.test_delete_records import delete_records

METADATA_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
UNIQUE = "0f" * 16
"""Part of the name that a broker gives to a folder it deletes."""
EAGER = {
    "log.retention.ms": "1",
    "log.retention.check.interval.ms": "1000",
    "log.initial.task.delay.ms": "0",
    "log.cleanup.policy": "compact,delete",
    "log.cleaner.backoff.ms": "1000",
    "log.cleaner.min.cleanable.ratio": "0",
    "log.roll.ms": "1",
    "log.segment.delete.delay.ms": "0",
}


async def delete_topic(peer: Peer, name: str) -> ErrorCode:
    """The broker's answer to a DeleteTopics request for one topic."""
    request = DeleteTopicsRequest(topics=(DeleteTopicState(name=name),))
    response = await peer.ask(ApiKey.DELETE_TOPICS, request, DeleteTopicsResponse)
    return ErrorCode(response.responses[0].error_code)


async def topics_of(peer: Peer, *wanted: str) -> dict[str | None, ErrorCode]:
    """The topics that Metadata lists, all or those wanted, with their errors."""
    asked = tuple(MetadataRequestTopic(name=name) for name in wanted) or None
    request = MetadataRequest(topics=asked, allow_auto_topic_creation=True)
    response = await peer.ask(ApiKey.METADATA, request, MetadataResponse)
    return {topic.name: ErrorCode(topic.error_code) for topic in response.topics}


def adopted(files: MemoryFiles) -> None:
    """Leave an image as a broker has written it that took the metadata log for a topic."""
    topic = {"name": METADATA_TOPIC, "id": METADATA_ID, "partitions": [0], "configs": {}}
    content = {"version": 1, "next_producer_id": 7, "deleted_topics": [], "topics": [topic]}
    files.open(f"{ROOT}/{FILE}", create=True).close()
    files.overwrite(f"{ROOT}/{FILE}", json.dumps(content).encode())


@pytest.mark.parametrize("was_adopted", [False, True])
@pytest.mark.parametrize("is_killed", [False, True])
def test_a_broker_at_work_leaves_the_files_of_others(*, was_adopted: bool, is_killed: bool) -> None:
    """Start, retention, cleaner, topics that come and go and a stop change none of their bytes."""
    files = kraft_directory()
    if was_adopted:
        adopted(files)
    before = not_ours(files)
    assert before.keys() >= set(STRANGERS)
    assert METADATA_FOLDER in {path.rpartition("/")[0] for path in before}

    async def work(outside: Outside) -> None:
        async with running(outside, EAGER) as broker:
            peer = connect(outside, broker)
            await create_topic(peer, "ours")
            for topic in ("ours", "events"):
                assert (await produce(peer, topic, batch(b"v"))).error_code == ErrorCode.NONE
            await outside.pass_time(300)
            assert await delete_topic(peer, "ours") == ErrorCode.NONE
            assert await delete_topic(peer, "other") == ErrorCode.NONE
            await outside.pass_time(300)

    with virtual_runtime(files=files) as outside:
        outside.loop.run_until_complete(work(outside))
    if is_killed:
        files.remove(f"{ROOT}/{names.CLEAN_SHUTDOWN}")
        with virtual_runtime(files=files) as outside:
            outside.loop.run_until_complete(work_again(outside))
    assert not_ours(files) == before
    assert METADATA_TOPIC not in files.content(f"{ROOT}/{FILE}").decode()


async def work_again(outside: Outside) -> None:
    """A start that recovers, and a stop."""
    async with running(outside, EAGER):
        await outside.pass_time(300)


@pytest.mark.parametrize("was_adopted", [False, True])
def test_clients_cannot_reach_the_metadata_log(*, was_adopted: bool) -> None:
    """It is not listed, and each request for it gets the error that Kafka answers."""
    files = kraft_directory()
    if was_adopted:
        adopted(files)

    async def ask(outside: Outside) -> None:
        async with running(outside, {"auto.create.topics.enable": "true"}) as broker:
            peer = connect(outside, broker)
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            name = METADATA_TOPIC
            assert set(await topics_of(peer)) == {"__consumer_offsets", "events", "other"}
            assert await topics_of(peer, name) == {name: unknown}
            created = await create_topic(peer, name)
            assert created.error_code == ErrorCode.INVALID_REQUEST
            assert created.error_message == f"Creation of internal topic {name} is prohibited."
            assert (await produce(peer, name, batch(b"v"))).error_code == unknown
            assert (await fetch(peer, fetch_request(name, 0))).error_code == unknown
            assert (await delete_records(peer, name, 1)).error_code == unknown
            assert (await describe(peer, name)).error_code == unknown
            (altered,) = await alter_all(peer, resource(set_to("retention.ms", "1"), name=name))
            assert altered.error_code == unknown
            assert await delete_topic(peer, name) == unknown

    before = not_ours(files)
    with virtual_runtime(files=files) as outside:
        outside.loop.run_until_complete(ask(outside))
    assert not_ours(files) == before


def test_a_metadata_log_under_a_delete_name_stays() -> None:
    """Its owner can still rename it back; a deleted partition beside it goes."""
    files = kraft_directory()
    moved = f"{METADATA_FOLDER}.{UNIQUE}-delete"
    files.rename(METADATA_FOLDER, moved)
    files.rename(f"{ROOT}/other-0", f"{ROOT}/other-0.{UNIQUE}-delete")
    before = not_ours(files)
    with virtual_runtime(files=files) as outside:
        outside.loop.run_until_complete(work_again(outside))
    assert files.is_directory(moved)
    assert not files.is_directory(f"{ROOT}/other-0.{UNIQUE}-delete")
    assert not_ours(files) == before


CHECKPOINTS = (
    names.RECOVERY_POINTS,
    names.LOG_START_OFFSETS,
    names.HIGH_WATERMARKS,
    names.CLEANER_OFFSETS,
)


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_checkpoints_keep_the_lines_of_partitions_that_are_not_served(name: str) -> None:
    """Lines of the metadata log and of a missing partition stay when ours are written."""
    files = kraft_directory()
    path = f"{ROOT}/{name}"
    strangers = {f"{METADATA_TOPIC} 0 42", "gone 3 17"}
    served = set(files.content(path).decode().splitlines()[2:])
    lines = ["0", str(len(served | strangers)), *sorted(served | strangers)]
    files.overwrite(path, ("\n".join(lines) + "\n").encode())

    async def work(outside: Outside) -> None:
        async with running(outside, EAGER) as broker:
            peer = connect(outside, broker)
            kept = {"retention.ms": "-1"}
            await create_topic(peer, "ours", configs={**kept, "cleanup.policy": "compact"})
            await create_topic(peer, "cut", configs={**kept, "cleanup.policy": "delete"})
            # The compacted one gets segments, the other one only a start inside of its first.
            for topic, step_ms in (("ours", 1000), ("cut", 0)):
                for number in range(5):
                    timestamp = 1_700_000_000_000 + step_ms * number
                    await produce(peer, topic, batch(b"v", timestamp=timestamp))
            await delete_records(peer, "cut", 2)
            await outside.pass_time(300)

    with virtual_runtime(files=files) as outside:
        outside.loop.run_until_complete(work(outside))
    left = files.content(path).decode().splitlines()
    assert strangers <= set(left[2:])
    assert left[1] == str(len(left) - 2)
    assert any(line.startswith(("ours 0 ", "cut 0 ")) for line in left[2:])
