"""`MetadataFetch` from seeds: elections, lost records, snapshots, faults and restarts in any order.

Whatever happens, each image that is published is the state that the quorum had committed at its
offset, and the last one is that of the end.
"""

import random
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from tailrace.client.nodes import Node
from tailrace.cluster.metadata.batches import RecordToWrite
from tailrace.cluster.metadata.image import MetadataImage
from tailrace.cluster.metadata.replay import MetadataReplay
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.fetch import FetchResponse
from tailrace.protocol.metadata_records import PartitionRecord, TopicRecord
from tailrace.records.batch import read_batches
from tailrace.testing import Outside
from tailrace.testing.controller import ScriptedController
from tailrace.testing.script import FaultKind
from tailrace.values import replace
from tests.unit.broker.kraft.metadata_followers import MetadataFollower
from tests.unit.cluster.metadata_logs import setting
from tests.unit.cluster.test_metadata_image import differing

if TYPE_CHECKING:
    from tailrace.testing.metadata_log import LogBatch

STEPS = 40


class History:
    """Every record that the quorum has committed, also those that its log has in a snapshot."""

    def __init__(self, quorum: ScriptedController) -> None:
        self._quorum = quorum
        self._batches: list[LogBatch] = []

    def note(self) -> None:
        """Keep the batches that are committed now."""
        end = self._batches[-1].next_offset if self._batches else 0
        log = self._quorum.log
        self._batches += [
            each for each in log.batches if each.offset >= end and each.next_offset <= log.watermark
        ]

    def image_at(self, end: int) -> MetadataImage:
        """The state of all records below an offset."""
        replay = MetadataReplay()
        for each in self._batches:
            if each.next_offset <= end:
                replay.see_all(batch for _, batch in read_batches(memoryview(each.data)))
        assert replay.next_offset == end
        return replay.image


def spoiled(answer: FetchResponse) -> FetchResponse:
    """The answer with a damaged record, if it has one."""
    [topic] = answer.responses
    [part] = topic.partitions
    if not part.records:
        return answer
    assert isinstance(part.records, bytes)
    records = part.records[:-1] + bytes([part.records[-1] ^ 8])
    return replace(
        answer, responses=(replace(topic, partitions=(replace(part, records=records),)),)
    )


async def act(chance: random.Random, quorum: ScriptedController, history: History) -> None:
    """Do one thing to the quorum."""
    name = f"t{chance.randrange(30)}"
    match chance.choice(["set", "set", "set", "topic", "hold", "release", "lead", "cut", "fault"]):
        case "set":
            quorum.append([setting(chance.randrange(1000), name)])
        case "topic" if quorum.image.topic(name) is None:
            topic_id = UUID(int=chance.getrandbits(128))
            parts = (
                PartitionRecord(topic_id=topic_id, partition_id=each, replicas=(1,))
                for each in range(chance.randint(1, 4))
            )
            quorum.append([RecordToWrite(TopicRecord(name=name, topic_id=topic_id), 0)])
            quorum.append([RecordToWrite(each, 0) for each in parts])
        case "hold":
            quorum.hold_commits()
        case "release":
            quorum.release_commits()
        case "lead":
            history.note()
            next_leader = chance.choice(list(quorum.nodes))
            quorum.move(next_leader, loses_uncommitted=chance.random() < 0.5)
        case "cut":
            quorum.release_commits()
            history.note()
            quorum.snapshot(cuts=chance.random() < 0.7)
        case "fault":
            quorum.script.add(
                chance.choice([ApiKey.FETCH, ApiKey.FETCH, ApiKey.FETCH_SNAPSHOT]),
                chance.choice(
                    [FaultKind.CUT, FaultKind.CUT_AFTER, FaultKind.LOSE, FaultKind.LOSE_REPLY]
                ),
                times=chance.randint(1, 2),
            )
            quorum.script.add(ApiKey.FETCH, FaultKind.EDIT, edit=spoiled, times=2)
            quorum.script.add(ApiKey.FETCH, FaultKind.ERROR, error=ErrorCode.UNKNOWN_SERVER_ERROR)


@pytest.mark.parametrize("seed", range(30))
async def test_any_history_of_a_quorum_is_followed(outside: Outside, seed: int) -> None:
    """Offsets only grow, images are those of the committed records, and changes name all of it."""
    chance = random.Random(seed)
    quorum = ScriptedController(outside, nodes=3)
    quorum.commit_delay_s = chance.choice([0.0, 0.05])
    quorum.start()
    history = History(quorum)
    # The levels of the features: without them there is no cluster, and nothing is published.
    await outside.pass_time(0.1)
    follower = MetadataFollower(
        outside, quorum, snapshot_bytes=chance.choice([300, 5000]), segment_bytes=2000
    )
    servers = [Node(-1 - n, quorum.host, each.port) for n, each in enumerate(quorum.nodes.values())]
    sizes = {
        "bytes_max": chance.choice([200, 1 << 20]),
        "snapshot_bytes_max": chance.choice([150, 1 << 20]),
    }
    starts: list[int] = []
    for _ in range(3):
        starts.append(len(follower.published))
        async with follower.running(*servers, **sizes):
            for _ in range(STEPS):
                await act(chance, quorum, history)
                history.note()
                await outside.pass_time(chance.choice([0.0, 0.01, 0.3]))
            if chance.random() < 0.7:
                quorum.script.heal()
                quorum.release_commits()
                history.note()
                await follower.until_equal()
    quorum.script.heal()
    quorum.release_commits()
    history.note()
    async with follower.running(*servers, **sizes):
        starts.append(len(follower.published))
        await follower.until_equal()
    await quorum.close()
    before: MetadataImage | None = None
    for number, (image, change, offset) in enumerate(follower.published):
        assert image == history.image_at(offset + 1)
        if number in starts:
            assert change.topics is None
        else:
            assert before is not None
            assert offset > follower.published[number - 1][2]
            differs = differing(before, image)
            assert change.topics is None or (differs.topics or frozenset()) <= change.topics
            assert change.configs is None or (differs.configs or frozenset()) <= change.configs
        before = image
    assert follower.published
