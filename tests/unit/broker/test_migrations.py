"""A live cluster moves from two brokers to two others, by `client.migration`, in virtual time."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import pytest

from tailrace.client.admin import AsyncAdmin
from tailrace.client.migration.moving import (
    BatchBegun,
    BatchMoved,
    Emptied,
    Ending,
    Event,
    Progress,
    RevertedError,
    StalledError,
    Stopping,
    Unregistered,
    Waiting,
    cancel_migration,
    migrate,
)
from tailrace.client.migration.plan import Order
from tailrace.model import TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.testing import Outside
from tests.unit.broker.brokers import batch, produce
from tests.unit.broker.clusters import Cluster, running_cluster
from tests.unit.broker.test_throttles import SMALL_FETCHES

ORDER = Order(source=(1, 2), target=(3, 4))
NAMES = [TopicPartition(topic, 0) for topic in ("a", "b", "c")]
RECORD = b"x" * 10_000
RATE = 20_000


@dataclass
class Operator:
    """Runs moves, and notes what is reported."""

    cluster: Cluster
    admin: AsyncAdmin
    events: list[Event] = field(default_factory=list)
    on_event: Callable[[Event], None] = lambda _: None
    is_stopping: bool = False

    async def migrate(self, order: Order = ORDER, *, retires: bool = False) -> Ending:
        """Run a move."""

        def report(event: Event) -> None:
            self.events.append(event)
            self.on_event(event)

        steps = migrate(
            self.admin._call(),
            order,
            report=report,
            is_stopping=lambda: self.is_stopping,
            retires=retires,
        )
        return await self.admin._run(steps)

    async def cancel(self, order: Order = ORDER) -> list[TopicPartition]:
        """Put back what is under way."""
        moves = await self.admin._run(cancel_migration(self.admin._call(), order))
        return [each.partition for each in moves]

    def of(self, kind: type[Any]) -> list[Any]:
        """The events of a kind."""
        return [each for each in self.events if isinstance(each, kind)]

    def replicas(self, name: TopicPartition) -> tuple[int, ...]:
        return self.cluster.state(name).replicas

    def throttles(self) -> list[str]:
        """The settings of throttles that there are."""
        return [
            f"{resource} {name}"
            for resource, settings in self.cluster.controller.image.configs.items()
            for name in settings
            if "throttled" in name
        ]


@asynccontextmanager
async def operator(outside: Outside, *, count: int = 5) -> AsyncIterator[Operator]:
    """Two brokers with three topics, whose leader is broker 1, and two new ones."""
    async with running_cluster(outside, 1, 2) as cluster:
        for each in (3, 4):
            await cluster.start(each, SMALL_FETCHES)
        for name in NAMES:
            await cluster.add_topic(name.topic, replicas=(1, 2))
            for _ in range(count):
                answer = await produce(cluster.peer(1), name.topic, batch(RECORD))
                assert answer.error_code == ErrorCode.NONE
        ports = [each.endpoint[1] for each in cluster.brokers.values()]
        servers = ",".join(f"memory:{each}" for each in ports)
        async with AsyncAdmin(bootstrap_servers=servers, runtime=outside.runtime) as admin:
            yield Operator(cluster, admin)


async def test_everything_moves(outside: Outside) -> None:
    """With the order of replicas, all records, leaders, and without a throttle at the end."""
    async with operator(outside) as at:
        assert await at.migrate(Order(source=(1, 2), target=(3, 4), throttle=10**9)) is Ending.DONE
        for name in NAMES:
            state = at.cluster.state(name)
            assert (state.replicas, set(state.isr), state.leader) == ((3, 4), {3, 4}, 3)
            assert {at.cluster.end(each, name) for each in (3, 4)} == {5}
            assert not state.adding_replicas
        (begun,) = at.of(BatchBegun)
        assert [each.partition for each in begun.moves] == NAMES
        assert at.throttles() == []
        last = at.of(Progress)[-1]
        assert (last.partitions, last.partitions_total, last.left_s) == (3, 3, 0.0)
        assert last.bytes == last.bytes_total > 6 * 5 * len(RECORD)
        # Again, there is nothing to do.
        assert await at.migrate() is Ending.DONE
        assert len(at.of(BatchBegun)) == 1


async def test_a_move_begins_with_its_throttle_and_is_kept_to_it(outside: Outside) -> None:
    """Replicas of the leaders, and those that copy; the rates of all brokers of a move."""
    async with operator(outside, count=20) as at:
        seen: list[list[str]] = []
        at.on_event = lambda event: (
            seen.append(at.throttles()) if isinstance(event, BatchBegun) else None
        )
        began = outside.loop.time()
        order = Order(source=(1, 2), target=(3, 4), throttle=RATE, partitions_max=1)
        await at.migrate(order)
        # 200 kB to each of two, three times, of which one answer may exceed the rate.
        assert outside.loop.time() - began > 15
        assert len(seen) == 3
        for each in seen:
            assert len([line for line in each if "replicas" in line]) == 2
            assert len([line for line in each if "rate" in line]) == 8
        assert at.throttles() == []


async def test_old_brokers_are_unregistered_when_they_have_stopped(outside: Outside) -> None:
    """One after the other; the command ends after the last."""
    async with operator(outside) as at:
        run = asyncio.ensure_future(at.migrate(retires=True))
        await at.cluster.until(lambda: bool(at.of(Emptied)))
        assert [each.id for each in at.of(Emptied)[0].brokers] == [1, 2]
        await at.cluster.stop(1)
        await at.cluster.until(lambda: 1 not in at.cluster.controller.image.brokers)
        await outside.pass_time(5)
        assert not run.done()
        await at.cluster.stop(2)
        assert await run is Ending.DONE
        assert [each.broker for each in at.of(Unregistered)] == [1, 2]
        assert set(at.cluster.controller.image.brokers) == {3, 4}


async def test_a_broker_that_has_got_partitions_is_not_retired(outside: Outside) -> None:
    """A topic that was created on it while it was to stop is moved first."""
    async with operator(outside) as at:
        run = asyncio.ensure_future(at.migrate(retires=True))
        await at.cluster.until(lambda: bool(at.of(Emptied)))
        await at.cluster.add_topic("late", replicas=(2, 1))
        await at.cluster.stop(1)
        await at.cluster.stop(2)
        await at.cluster.until(lambda: bool(at.of(Waiting)))
        assert "no broker leads late-0" in at.of(Waiting)[-1].reason
        assert set(at.cluster.controller.image.brokers) == {1, 2, 3, 4}
        await at.cluster.start(1)
        await at.cluster.start(2)
        await at.cluster.until(lambda: at.replicas(TopicPartition("late", 0)) == (4, 3))
        await at.cluster.until(lambda: len(at.of(Emptied)) == 2)
        await at.cluster.stop(1)
        await at.cluster.stop(2)
        assert await run is Ending.DONE


async def test_a_stop_finishes_the_batch(outside: Outside) -> None:
    """Nothing is left half, and a later run does the rest."""
    async with operator(outside) as at:
        order = Order(source=(1, 2), target=(3, 4), throttle=RATE, partitions_max=2)

        def stop(event: Event) -> None:
            at.is_stopping = at.is_stopping or isinstance(event, BatchBegun)

        at.on_event = stop
        assert await at.migrate(order) is Ending.STOPPED
        assert [at.replicas(each) for each in NAMES] == [(3, 4), (3, 4), (1, 2)]
        assert at.throttles() == []
        assert len(at.of(Stopping)) == 1
        assert at.of(BatchMoved)
        at.is_stopping, at.on_event = False, lambda _: None
        assert await at.migrate(order) is Ending.DONE
        assert [at.replicas(each) for each in NAMES] == [(3, 4)] * 3


async def test_a_run_continues_after_one_that_was_interrupted(outside: Outside) -> None:
    """It finds the batch in the cluster, and removes a throttle that it does not have itself."""
    async with operator(outside, count=50) as at:
        order = Order(source=(1, 2), target=(3, 4), throttle=RATE, partitions_max=2)
        run = asyncio.ensure_future(at.migrate(order))
        await at.cluster.until(lambda: bool(at.of(Progress)))
        run.cancel()
        with suppress(asyncio.CancelledError):
            await run
        assert at.throttles()
        assert at.cluster.state(NAMES[0]).adding_replicas == (3, 4)
        at.events.clear()
        began = outside.loop.time()
        assert await at.migrate() is Ending.DONE
        assert outside.loop.time() - began < 20
        assert [each.is_continued for each in at.of(BatchBegun)] == [True, False]
        assert [at.replicas(each) for each in NAMES] == [(3, 4)] * 3
        assert at.throttles() == []


async def test_what_moves_can_be_put_back(outside: Outside) -> None:
    """The old brokers have it as before, and the throttle is gone."""
    async with operator(outside, count=50) as at:
        order = Order(source=(1, 2), target=(3, 4), throttle=RATE, partitions_max=2)
        run = asyncio.ensure_future(at.migrate(order))
        await at.cluster.until(lambda: bool(at.of(Progress)))
        run.cancel()
        with suppress(asyncio.CancelledError):
            await run
        assert await at.cancel() == NAMES[:2]
        assert [at.replicas(each) for each in NAMES] == [(1, 2)] * 3
        assert not at.cluster.state(NAMES[0]).adding_replicas
        assert at.throttles() == []
        assert await at.cancel() == []


async def test_a_run_waits_for_a_new_broker_that_dies(outside: Outside) -> None:
    """It says which one, and ends when that is back and has everything."""
    async with operator(outside, count=50) as at:
        run = asyncio.ensure_future(at.migrate(Order(source=(1, 2), target=(3, 4), throttle=RATE)))
        await at.cluster.until(lambda: bool(at.of(Progress)))
        at.cluster.kill(4)
        await at.cluster.until(lambda: bool(at.of(Waiting)))
        assert "broker 4 is away, and 3 partitions wait for it: start it" in (
            at.of(Waiting)[-1].reason
        )
        await at.cluster.start(4)
        assert await run is Ending.DONE
        assert [at.replicas(each) for each in NAMES] == [(3, 4)] * 3


async def test_a_run_ends_when_nothing_moves_for_long(outside: Outside) -> None:
    """The error says why, and what to do; the batch stays with the controllers."""
    async with operator(outside, count=50) as at:
        run = asyncio.ensure_future(at.migrate(Order(source=(1, 2), target=(3, 4), throttle=RATE)))
        await at.cluster.until(lambda: bool(at.of(Progress)))
        at.cluster.kill(4)
        with pytest.raises(StalledError, match=r"for 10 minutes: broker 4 is away.*again"):
            await run
        assert at.cluster.state(NAMES[0]).adding_replicas == (3, 4)


async def test_topics_come_and_go_meanwhile(outside: Outside) -> None:
    """One that was deleted is left out, and one that was created moves too."""
    async with operator(outside) as at:

        def change(event: Event) -> None:
            if isinstance(event, BatchMoved) and len(at.of(BatchMoved)) == 1:
                at.cluster.controller.add_topic("new", assignments=[[2, 1]])
                deletion.append(asyncio.ensure_future(at.admin.delete_topics(["b"])))

        deletion: list[asyncio.Future[Any]] = []
        at.on_event = change
        order = Order(source=(1, 2), target=(3, 4), partitions_max=1)
        assert await at.migrate(order) is Ending.DONE
        (await deletion[0]).results()
        assert at.replicas(TopicPartition("new", 0)) == (4, 3)
        assert at.cluster.controller.image.topic("b") is None


async def test_a_topic_is_deleted_while_it_moves(outside: Outside) -> None:
    """The others of its batch move on."""
    async with operator(outside, count=50) as at:
        order = Order(source=(1, 2), target=(3, 4), throttle=RATE)
        run = asyncio.ensure_future(at.migrate(order))
        await at.cluster.until(lambda: bool(at.of(Progress)))
        (await at.admin.delete_topics(["a"])).results()
        assert await run is Ending.DONE
        assert [at.replicas(each) for each in NAMES[1:]] == [(3, 4)] * 2
        assert at.throttles() == []


async def test_a_move_that_somebody_else_ends_is_an_error(outside: Outside) -> None:
    """To begin it again would be a quarrel between two operators."""
    async with operator(outside, count=50) as at:
        order = Order(source=(1, 2), target=(3, 4), throttle=RATE)
        run = asyncio.ensure_future(at.migrate(order))
        await at.cluster.until(lambda: bool(at.of(Progress)))
        cancelled = await at.admin.alter_partition_reassignments(dict.fromkeys(NAMES))
        cancelled.results()
        with pytest.raises(RevertedError, match="a-0, b-0, c-0 do not move"):
            await run


async def test_a_run_waits_for_controllers(outside: Outside) -> None:
    """Nothing can be asked of them, and what moves continues."""
    async with operator(outside, count=50) as at:
        run = asyncio.ensure_future(at.migrate(Order(source=(1, 2), target=(3, 4), throttle=RATE)))
        await at.cluster.until(lambda: bool(at.of(Progress)))
        at.cluster.controller.kill()
        await outside.pass_time(120)
        assert at.of(Waiting)
        at.cluster.controller.move(100)
        assert await run is Ending.DONE
        assert [at.replicas(each) for each in NAMES] == [(3, 4)] * 3


async def test_a_throttle_below_what_producers_send_is_noticed(outside: Outside) -> None:
    """The copies would never be in sync; without a throttle they are."""
    async with operator(outside) as at:

        async def send() -> None:
            peer = at.cluster.peer(1)
            while True:
                await produce(peer, "a", batch(RECORD))
                await outside.pass_time(0.1)

        sending = asyncio.ensure_future(send())
        run = asyncio.ensure_future(at.migrate(Order(source=(1, 2), target=(3, 4), throttle=RATE)))
        await at.cluster.until(lambda: bool(at.of(Waiting)) or run.done())
        reason = at.of(Waiting)[-1].reason
        assert "a-0" in reason
        assert "20.0 kB/s" in reason
        assert reason.endswith("run again with a larger --throttle")
        run.cancel()
        with suppress(asyncio.CancelledError):
            await run
        assert await at.migrate() is Ending.DONE
        sending.cancel()
        assert at.replicas(NAMES[0]) == (3, 4)


async def test_what_is_under_way_keeps_its_throttle(outside: Outside) -> None:
    """Also in a run that finds a new broker dead, and gives up or is asked to stop."""
    async with operator(outside, count=50) as at:
        order = Order(source=(1, 2), target=(3, 4), throttle=RATE)
        run = asyncio.ensure_future(at.migrate(order))
        await at.cluster.until(lambda: bool(at.of(Progress)))
        run.cancel()
        with suppress(asyncio.CancelledError):
            await run
        at.cluster.kill(4)
        await at.cluster.controller.until(lambda image: image.brokers[4].fenced)
        at.is_stopping = True
        before = at.throttles()
        with pytest.raises(StalledError, match="broker 4 of --to is fenced"):
            await at.migrate(order)
        assert at.throttles() == before
        assert await at.cancel() == NAMES
        # The dead broker keeps its rate, which counts for nothing.
        assert not any("replicas" in each for each in at.throttles())
        assert [at.replicas(each) for each in NAMES] == [(1, 2)] * 3
