"""Answers of any content, in virtual time: a consumer raises its own errors, and reads on."""

import random

import pytest

from tailrace.errors import TailraceError
from tailrace.protocol.fields import Message
from tailrace.protocol.messages.api_versions import ApiVersionsRequest
from tailrace.testing import Outside
from tailrace.testing.cluster import Request, ScriptedNode
from tailrace.testing.script import Fault
from tests.unit.client.admin.answers import plausible
from tests.unit.client.consumer.leaders import Leaders, offsets
from tests.unit.client.consumer.stage import T0, T1

SEEDS = range(40)


class LyingLeaders(Leaders):
    """Leaders of which one answer in four says anything, in fields that fit its version."""

    chance: random.Random | None = None
    """None: all answers are right."""

    def act(self, node: ScriptedNode, request: Request, fault: Fault | None) -> Message | None:
        """Answer as a broker does, or anything."""
        answer = super().act(node, request, fault)
        chance = self.chance
        if chance is None or isinstance(request.body, ApiVersionsRequest) or chance.random() < 0.75:
            return answer
        found: Message = plausible(request.api.response, request.version, chance)
        return found


@pytest.mark.parametrize("seed", SEEDS)
async def test_any_answer_ends_in_records_or_in_an_error_of_ours(
    outside: Outside, seed: int
) -> None:
    """Nothing is returned that is not in the log, and right answers are read to the end."""
    chance = random.Random(seed)
    cluster = LyingLeaders(outside, nodes=2, partitions=2)
    for place in (T0, T1):
        cluster.followers[place] = {1, 2}
        for _ in range(10):
            cluster.logs[place].write(2)
    settings = {"group_id": "g", "enable_auto_commit": False, "isolation_level": "read_committed"}
    async with cluster.consumer(**settings, client_rack="b", metadata_max_age_ms=500) as consumer:
        consumer.assign([T0, T1])
        cluster.chance = chance
        for _ in range(40):
            try:
                match chance.randrange(4):
                    case 0:
                        await consumer.end_offsets([T0, T1], timeout=0.2)
                    case 1:
                        consumer.seek(T0, (chance.randrange(20), 0))
                    case _:
                        offsets(await consumer.poll(0.1))
            except TailraceError as error:
                assert str(error)  # noqa: PT017 - any of them may come
        cluster.chance = None
        found: set[tuple[int, int]] = set()
        begin = outside.loop.time()
        is_begun = False
        while len(found) < 40:
            assert outside.loop.time() < begin + 60, f"{len(found)} of 40 records came"
            try:
                if not is_begun:
                    consumer.seek(T0, 0)
                    consumer.seek(T1, 0)
                    is_begun = True
                records = await consumer.poll(1)
            except TailraceError:
                # It was found before the answers were right.
                continue
            assert all(each.value == b"%d" % each.offset for each in records)
            found |= {(each.partition, each.offset) for each in records}
