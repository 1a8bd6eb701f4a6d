"""Observers that know a later epoch of the quorum than their controller."""

import asyncio

import pytest

from tailrace.broker.controller.log_answers import EPOCH_TAKEN_MAX
from tailrace.cluster.metadata.quorum_state import EPOCHS_SKIPPED_MAX
from tailrace.offline.metadata_state import END, metadata_state
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.fetch import PartitionData
from tailrace.records.batch import read_batches
from tailrace.testing import Outside
from tests.unit.broker.brokers import batch, produce
from tests.unit.broker.controller.own_clusters import (
    CONTROLLER,
    OwnCluster,
    cluster_of_both,
    follow,
    own_cluster,
)

LOG = "data/__cluster_metadata-0"


async def test_it_leads_above_an_epoch_that_an_observer_knows(outside: Outside) -> None:
    """The log has all records of the observer, so that the epoch of another copy does no harm."""
    async with own_cluster(outside) as cluster:
        node, peer = cluster.node, cluster.ask()
        offset, last_epoch = node.watermark, node.epoch
        known = last_epoch + 12_345
        found = await follow(peer, epoch=known, offset=offset, last_epoch=last_epoch)
        assert found.error_code == ErrorCode.FENCED_LEADER_EPOCH
        epoch = found.current_leader.leader_epoch
        assert known < epoch == node.epoch
        # The observer goes on in that epoch, which begins with a batch of its own.
        found = await follow(peer, epoch=epoch, offset=offset, last_epoch=last_epoch)
        assert found.error_code == ErrorCode.NONE
        assert isinstance(found.records, memoryview)
        [(_, first)] = read_batches(found.records)
        assert (first.is_control, first.leader_epoch, first.base_offset) == (True, epoch, offset)
        assert found.high_watermark == offset + 1
        # Nobody knows more: nothing begins again.
        found = await follow(peer, epoch=epoch - 1, offset=offset + 1, last_epoch=epoch)
        assert (found.error_code, node.epoch) == (ErrorCode.INVALID_REQUEST, epoch)
        cluster.kill_controller()
        await cluster.start_controller()
        assert cluster.node.epoch > epoch


@pytest.mark.parametrize(
    ("epochs_ahead", "offset_ahead", "last_ahead"),
    [
        # It has a record more; or its last one is of an epoch that is not in the log.
        (5, 1, 0),
        (5, 0, 2),
        (5, 0, -1),
        # It is damaged.
        (EPOCHS_SKIPPED_MAX + 1, 0, 0),
        (EPOCH_TAKEN_MAX, 0, 0),
    ],
)
async def test_an_observer_of_another_history_changes_nothing(
    outside: Outside, epochs_ahead: int, offset_ahead: int, last_ahead: int
) -> None:
    """An older copy of a log does not become the newest by asking for it."""
    async with own_cluster(outside) as cluster:
        cluster.kill_controller()
        await cluster.start_controller()
        node = cluster.node
        epoch, offset = node.epoch, node.watermark
        found = await follow(
            cluster.ask(),
            epoch=epoch + epochs_ahead,
            offset=offset + offset_ahead,
            last_epoch=epoch + last_ahead,
        )
        assert found.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
        assert found.current_leader.leader_epoch == epoch
        assert (node.epoch, node.watermark) == (epoch, offset)


async def test_decisions_go_on_while_the_epoch_rises(outside: Outside) -> None:
    """Changes before and after it are in one log, which brokers follow, and a kill takes none."""
    async with own_cluster(outside, 1, 2) as cluster:
        await cluster.add_topic("first", replicas=(1, 2))
        node = cluster.node
        asked = {"offset": node.watermark, "last_epoch": node.epoch}
        known = node.epoch + 5000
        answers = await asyncio.gather(
            cluster.add_topic("before", replicas=(1, 2)),
            follow(cluster.ask(), epoch=known, **asked),
            follow(cluster.ask(), epoch=known - 1, **asked),
            cluster.add_topic("after", replicas=(2, 1)),
        )
        assert node.epoch > known
        for each in answers[1:3]:
            assert isinstance(each, PartitionData)
            assert each.error_code == ErrorCode.FENCED_LEADER_EPOCH
            assert each.current_leader.leader_epoch == node.epoch
        assert (await produce(cluster.peer(1), "before", batch(b"one"))).error_code == 0
        await cluster.wait(lambda: observed(cluster, 1) == observed(cluster, 2) == end(cluster))
        before, epoch = cluster.image, node.epoch
        cluster.kill_controller()
        read = metadata_state(cluster.disks[CONTROLLER], LOG, END, on_skip=lambda _: None)
        assert read.image.topics.keys() == before.topics.keys()
        await cluster.start_controller()
        assert cluster.image == before
        assert cluster.node.epoch > epoch


def end(cluster: OwnCluster) -> int:
    return cluster.node.watermark


def observed(cluster: OwnCluster, broker_id: int) -> int:
    """The end of a broker's copy of the log; -1 before it knows the controller's epoch."""
    found = cluster.brokers[broker_id].statistics().metadata
    assert found is not None
    return found.high_watermark if found.epoch == cluster.node.epoch else -1


async def test_the_epoch_of_a_node_of_both_roles_rises(outside: Outside) -> None:
    """Its own broker serves on, and so do the others."""
    async with cluster_of_both(outside, 2) as cluster:
        await cluster.add_topic(replicas=(1, 2))
        node = cluster.node
        known = node.epoch + 3
        await follow(cluster.ask(), epoch=known, offset=node.watermark, last_epoch=node.epoch)
        await cluster.add_topic("u", replicas=(1, 2))
        assert (await produce(cluster.peer(1), "u", batch(b"one"))).error_code == 0
        found = cluster.brokers[1].statistics().metadata
        assert found is not None
        assert known < node.epoch == found.epoch


async def test_a_log_that_is_put_back_is_followed_at_once(
    outside: Outside, caplog: pytest.LogCaptureFixture
) -> None:
    """An older copy may have begun any number of epochs meanwhile, and one start is enough."""
    async with own_cluster(outside, 1, 2) as cluster:
        older = cluster.disks[CONTROLLER].crash(keep_unsynced=True)
        await cluster.add_topic(replicas=(1, 2))
        await cluster.wait(lambda: observed(cluster, 1) == observed(cluster, 2) == end(cluster))
        cluster.kill_controller()
        own, cluster.disks[CONTROLLER] = cluster.disks[CONTROLLER], older
        for _ in range(5):
            await cluster.start_controller()
            cluster.kill_controller()
        caplog.clear()
        await cluster.start_controller()
        seen = cluster.node.epoch
        # They have more, and end. What they know of the epoch is on their disks.
        for each in cluster.brokers.values():
            await asyncio.wait_for(each.failed.wait(), 60)
            assert "restored from an older copy" in (each.end_reason or "")
        # The controller says so once for each of them.
        for broker_id in (1, 2):
            assert caplog.text.count(f"observer_differs observer={broker_id} ") == 1
        cluster.kill_controller()
        for broker_id in (1, 2):
            cluster.kill(broker_id)
        cluster.disks[CONTROLLER] = own
        await cluster.start_controller()
        assert cluster.node.epoch < seen
        for broker_id in (1, 2):
            await cluster.start(broker_id)
        assert cluster.node.epoch > seen
        await cluster.add_topic("u", replicas=(1, 2))
        assert cluster.image.topic_ids.keys() >= {"t", "u"}
        leader = cluster.peer(cluster.state().leader)
        assert (await produce(leader, "t", batch(b"one"))).error_code == 0
