"""The log of a controller of our own says who serves, who leads, and what nobody leads."""

import logging
import re

import pytest

from tailrace.broker.controller.log_lines import NAMED_MAX
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tailrace.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from tailrace.testing import Outside
from tests.unit.broker.controller.own_clusters import T_0, OwnCluster, own_cluster

LINES = "tailrace.broker.controller"


@pytest.fixture(autouse=True)
def at_info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger=LINES)


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The lines of the controller so far, which are forgotten."""
    found = [each.getMessage() for each in caplog.records if each.name.startswith(LINES)]
    caplog.clear()
    return found


async def fenced(cluster: OwnCluster, broker_id: int) -> None:
    """Return when the controller has fenced a broker."""
    await cluster.until(lambda image: image.brokers[broker_id].fenced)


async def test_each_step_of_a_broker_has_a_line(
    outside: Outside, caplog: pytest.LogCaptureFixture
) -> None:
    """It registers, serves, hands over and is fenced as it stops."""
    async with own_cluster(outside, 1) as cluster:
        said(caplog)
        await cluster.start(2)
        lines = said(caplog)
        assert re.fullmatch(r"broker_registered broker=2 epoch=\d+ addresses=memory:\d+", lines[0])
        assert lines[1:] == ["broker_unfenced broker=2"]
        await cluster.add_topic(replicas=(2, 1))
        await cluster.stop(2)
        assert said(caplog) == [
            "broker_hands_over broker=2",
            "leaders_elected partitions=1 named=t-0:2>1",
            "broker_fenced broker=2",
        ]


async def test_a_killed_broker_leaves_partitions_without_leaders(
    outside: Outside, caplog: pytest.LogCaptureFixture
) -> None:
    """The lines say whose session ended, and what is not served, until the broker is back."""
    async with own_cluster(outside, 1, 2) as cluster:
        await cluster.add_topic(replicas=(1, 2))
        await cluster.add_topic("u", replicas=(2,))
        said(caplog)
        cluster.kill(2)
        await fenced(cluster, 2)
        ended, fencing, missing = said(caplog)
        assert ended.startswith("broker_session_ended broker=2 session_ms=9000 ")
        assert fencing == "broker_fenced broker=2"
        assert missing.startswith("leaders_missing partitions=1 named=u-0:2>-1 ")
        await cluster.start(2)
        # To Kafka's rules it is an unclean one (KIP-966), but no other replica has more.
        assert said(caplog)[-1] == "leaders_elected partitions=1 named=u-0:-1>2"


async def test_an_unclean_election_has_a_line_of_its_own(
    outside: Outside, caplog: pytest.LogCaptureFixture
) -> None:
    """It is a warning, since records may be lost by it."""
    async with own_cluster(outside, 1, 2) as cluster:
        await cluster.add_topic(replicas=(2, 1))
        cluster.kill(1)
        await fenced(cluster, 1)
        cluster.kill(2)
        await fenced(cluster, 2)
        await cluster.start(1)
        assert cluster.state().leader == -1
        said(caplog)
        asked = ElectLeadersRequest(
            election_type=1,
            topic_partitions=(TopicPartitions(topic=T_0.topic, partitions=(0,)),),
            timeout_ms=1000,
        )
        answer = await cluster.peer(1).ask(ApiKey.ELECT_LEADERS, asked, ElectLeadersResponse)
        assert answer.error_code == ErrorCode.NONE
        [line] = said(caplog)
        assert line.startswith("leaders_elected_unclean partitions=1 named=t-0:-1>1 consequence=")


async def test_a_broker_of_many_partitions_has_few_lines(
    outside: Outside, caplog: pytest.LogCaptureFixture
) -> None:
    """They have the number of partitions, and name the first ones."""
    async with own_cluster(outside, 1, 2) as cluster:
        topic = CreatableTopic(
            name="t",
            num_partitions=-1,
            replication_factor=-1,
            assignments=tuple(
                CreatableReplicaAssignment(partition_index=each, broker_ids=(2, 1))
                for each in range(40)
            ),
        )
        await cluster.peer(1).ask(
            ApiKey.CREATE_TOPICS, CreateTopicsRequest(topics=(topic,)), CreateTopicsResponse
        )
        said(caplog)
        cluster.kill(2)
        await fenced(cluster, 2)
        lines = said(caplog)
        assert len(lines) == 3
        named = ",".join(f"t-{each}:2>1" for each in range(NAMED_MAX))
        assert lines[-1] == f"leaders_elected partitions=40 named={named},..."


async def test_a_controller_that_was_paused_fences_nobody(
    outside: Outside, caplog: pytest.LogCaptureFixture
) -> None:
    """Heartbeats could not reach it meanwhile; a broker that stays silent is fenced later."""
    async with own_cluster(outside, 1, 2) as cluster:
        await cluster.add_topic(replicas=(1, 2))
        epoch = cluster.state().leader_epoch
        said(caplog)
        outside.clock.pause(30)
        await outside.pass_time(8)
        [line] = said(caplog)
        assert re.match(r"controller_paused for_ms=3\d{4} ", line)
        assert cluster.state().leader_epoch == epoch
        cluster.kill(2)
        await outside.pass_time(11)
        assert cluster.image.brokers[2].fenced
