"""`tailrace.testing.SimulatedCluster`, as those use it who test their own programs."""

import asyncio
import os
import subprocess
import sys

import pytest

from tailrace.model import TopicPartition
from tailrace.testing import MemoryFiles, SimulatedCluster
from tailrace.testing.random_faults import RandomFaults

T_0 = TopicPartition("t", 0)
CONTROLLER = SimulatedCluster.CONTROLLER


async def send_all(cluster: SimulatedCluster) -> list[bytes]:
    """The program of docs/testing.md: what it has sent and knows to be there."""
    values = [b"%d" % number for number in range(20)]
    await cluster.create_topic("orders", configs={"min.insync.replicas": 2})
    async with cluster.producer(delivery_timeout_ms=600_000) as producer:
        for value in values:
            await producer.send("orders", value)
            await cluster.pass_time(0.1)
    return values


async def orders_survive(cluster: SimulatedCluster) -> None:
    """The story of docs/testing.md."""
    sending = asyncio.ensure_future(send_all(cluster))
    await cluster.cause_faults(seconds=3)
    sent = await sending
    await cluster.heal()
    assert cluster.values("orders") == sent


@pytest.mark.parametrize("controller_id", [CONTROLLER, 1])
@pytest.mark.parametrize("seed", range(5))
def test_no_order_is_lost(seed: int, controller_id: int) -> None:
    """A program whose sends are awaited loses none in random faults."""
    SimulatedCluster(seed, controller_id=controller_id).run(orders_survive)


def test_a_run_is_the_same_each_time() -> None:
    """A seed gives the same story."""
    first, second = SimulatedCluster(1), SimulatedCluster(1)
    first.run(orders_survive)
    second.run(orders_survive)
    assert first.story == second.story
    assert len(first.story) > 2


PRINT_CALLBACKS = """
import hashlib
from tailrace.testing import SimulatedCluster
from tests.simulation.test_simulated_cluster import orders_survive

ran = hashlib.sha256()

async def story(cluster):
    loop = cluster.outside.loop

    def run(callback, arguments):
        function = getattr(callback, "func", callback)
        ran.update(f"{loop.time()} {getattr(function, '__qualname__', '')}".encode())
        callback(*arguments)

    loop.around = run
    await orders_survive(cluster)

SimulatedCluster(5).run(story)
print(ran.hexdigest())
"""


def test_a_run_is_the_same_in_each_process() -> None:
    """Every callback at the same time, whatever the order of sets and the speed of the machine."""
    printed = {
        subprocess.run(
            [sys.executable, "-c", PRINT_CALLBACKS],
            capture_output=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(printed) == 1


def test_an_error_has_the_seed_and_the_story() -> None:
    """A story that fails says how it can be replayed, and its error stays what it is."""

    async def story(cluster: SimulatedCluster) -> None:
        cluster.kill(2)
        raise KeyError("order")

    with pytest.raises(KeyError) as raised:
        SimulatedCluster(9).run(story)
    [note] = raised.value.__notes__
    assert "SimulatedCluster(seed=9)" in note
    assert "kill 2" in note


def test_a_leader_without_power_is_replaced() -> None:
    """Acknowledged records are on the next leader, in virtual time alone."""

    async def story(cluster: SimulatedCluster) -> None:
        await cluster.create_topic("t", replicas=[[1, 2, 3]])
        async with cluster.producer() as producer:
            await producer.send("t", b"one")
            cluster.power_off(1)
            await producer.send("t", b"two")
        assert cluster.state(T_0).leader in {2, 3}
        await cluster.heal()
        assert [cluster.values("t", broker_id=each) for each in cluster.brokers] == [
            [b"one", b"two"]
        ] * 3

    SimulatedCluster(brokers=3).run(story)


def test_a_broker_can_be_the_controller_too() -> None:
    """Without it records go on; nothing is decided, and nobody is fenced, until it is back."""

    async def story(cluster: SimulatedCluster) -> None:
        await cluster.create_topic("t", replicas=[[2, 3, 1]], configs={"min.insync.replicas": 1})
        cluster.power_off(CONTROLLER)
        assert cluster.machines[1].running is None
        assert cluster.controller_node is None
        async with cluster.producer(acks=1) as producer:
            await producer.send("t", b"one")
        await cluster.pass_time(20)
        assert cluster.isr(T_0) == {1, 2, 3}
        await cluster.heal()
        assert cluster.values("t", broker_id=1) == [b"one"]
        assert not any(each.fenced for each in cluster.image.brokers.values())

    SimulatedCluster(controller_id=1).run(story)


def test_the_controller_is_in_a_broker_that_there_is() -> None:
    """Another number is refused."""
    with pytest.raises(ValueError, match="controller_id=4 is no broker"):
        SimulatedCluster(controller_id=4)


def test_a_client_can_be_killed() -> None:
    """Nothing comes from its process any more, and the cluster serves others."""

    async def story(cluster: SimulatedCluster) -> None:
        await cluster.create_topic("t")
        runtime = cluster.client_runtime()
        producer = cluster.producer(runtime)
        await producer.send("t", b"one")
        cluster.kill_client(runtime)
        await producer.close(0)
        async with cluster.consumer() as consumer:
            consumer.assign([T_0])
            consumer.seek(T_0, 0)
            assert [each.value for each in await consumer.poll(1.0)] == [b"one"]

    SimulatedCluster().run(story)


def test_a_kind_of_fault_that_is_unknown_is_refused() -> None:
    """The message has the kinds that are possible."""

    async def story(cluster: SimulatedCluster) -> None:
        with pytest.raises(ValueError, match="crash controller"):
            RandomFaults(cluster, ["earthquake"])

    SimulatedCluster().run(story)


def test_a_second_broker_with_an_id_is_refused() -> None:
    """While the first is there another process with its id gets into no cluster."""

    async def story(cluster: SimulatedCluster) -> None:
        epoch = cluster.image.brokers[1].broker_epoch
        twin = cluster._broker_machine(1, port=0)
        twin.start()
        await cluster.pass_time(20)
        assert twin.running is None
        assert cluster.image.brokers[1].broker_epoch == epoch
        assert cluster.machines[1].is_serving
        twin.give_up()
        await twin.rest()

    SimulatedCluster().run(story)


def test_a_controller_with_an_older_copy_of_its_log_is_refused() -> None:
    """Brokers that have more do not follow it, and with its own log all is there again."""

    async def story(cluster: SimulatedCluster) -> None:
        machine = cluster.machine(CONTROLLER)
        await cluster.create_topic("t")
        copy: MemoryFiles = machine.files.crash(keep_unsynced=True)
        await cluster.create_topic("u")
        await cluster.pass_time(1)
        cluster.kill(CONTROLLER)
        own, machine.files = machine.files, copy
        cluster.start(CONTROLLER)
        await cluster.pass_time(10)
        for each in cluster.machines.values():
            assert each.running is not None
            assert each.running.failed.is_set()
            assert "restored from an older copy" in (each.running.end_reason or "")
        cluster.kill(CONTROLLER)
        machine.files = own
        await cluster.heal()
        async with cluster.admin() as admin:
            assert {"t", "u"} <= {each.name for each in await admin.list_topics()}

    SimulatedCluster().run(story)


def test_a_second_story_is_refused() -> None:
    """Its machines are of the time of the first one, and would wait for a minute in vain."""

    async def nothing(_: SimulatedCluster) -> None:
        pass

    cluster = SimulatedCluster(1)
    cluster.run(nothing)
    with pytest.raises(RuntimeError, match="a SimulatedCluster runs one story; make another one"):
        cluster.run(nothing)
