"""Two brokers lead and follow in turns over a network with faults, with their real followers.

Each leads from the log in which it has followed. The leader's high watermark is what the other has,
so everything below it is acknowledged, and each of the two may be elected.
"""

import errno
from random import Random

from hypothesis import example, given
from hypothesis import strategies as st

from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.fetch import FetchRequest, FetchResponse
from tailrace.storage.log import Log
from tailrace.testing import DiskFault, MemoryFiles, Outside, virtual_runtime
from tailrace.values import replace
from tests.unit.broker.leaders import Follower, ScriptedLeader, content, place

STEPS = 120
NAMES = [place(0), place(1)]


class Broker:
    """One log for each partition, which leads or follows."""

    def __init__(self, outside: Outside, files: MemoryFiles, *, is_durable: bool) -> None:
        self.files = files
        runtime = replace(outside.runtime, files=files)
        self.follower = Follower(
            replace(outside, files=files, runtime=runtime), is_durable=is_durable, backoff_ms=200
        )
        self.leader = ScriptedLeader(outside)
        for name in NAMES:
            self.follower.partition(name, segment_bytes=700)

    def log(self, number: int) -> Log:
        return self.follower.log(NAMES[number])


class World:
    """Both brokers, and the elections of their partitions."""

    def __init__(self, seed: int, outside: Outside) -> None:
        self.chance, self.outside = Random(seed), outside
        is_durable = self.chance.random() < 0.3
        self.brokers = [Broker(outside, MemoryFiles(), is_durable=is_durable) for _ in range(2)]
        self.leads = [0, 1]
        self.epochs = [0, 0]
        self.acknowledged: list[list[bytes]] = [[], []]
        self.count = 0
        for number in range(2):
            self.elect(number)

    def elect(self, number: int) -> None:
        """The other broker, or the same, leads in the next epoch; both hear of it at once."""
        self.leads[number] = self.chance.randrange(2)
        self.epochs[number] += 1
        name, epoch = NAMES[number], self.epochs[number]
        led, other = self.brokers[self.leads[number]], self.brokers[1 - self.leads[number]]
        led.follower.following.stop([name])
        led.leader.logs[name] = led.log(number)
        led.log(number).epochs.assign(epoch, led.log(number).end_offset)  # type: ignore[arg-type]
        led.leader.lead(name, epoch=epoch)
        other.leader.logs.pop(name, None)
        other.follower.follow(led.leader, epoch=epoch, name=name)

    def write(self, number: int) -> None:
        led = self.brokers[self.leads[number]]
        partition = led.follower.partition(NAMES[number])
        # As Produce, which waits for it.
        if partition.takes_appends.is_set():
            self.count += 1
            values = [b"%d, %d" % (self.count, each) for each in range(self.chance.randint(1, 5))]
            led.leader.write(*values, name=NAMES[number])

    def note(self, number: int) -> None:
        """Records below the leader's high watermark stay there for good."""
        log = self.brokers[self.leads[number]].log(number)
        known = [
            each
            for each, batch in zip(content(log), log.batches(0), strict=True)
            if batch.last_offset < log.positions.high_watermark
        ]
        before = self.acknowledged[number]
        assert known[: len(before)] == before or before[: len(known)] == known
        self.acknowledged[number] = max(known, before, key=len)

    def spoil(self, broker: Broker) -> None:
        """One of the next answers is damaged, refused or lost."""
        kind, left = self.chance.randrange(4), [1]

        def spoiled(_: FetchRequest, answer: FetchResponse) -> FetchResponse | None:
            if not answer.responses or not left:
                return answer
            left.clear()
            if kind == 0:
                return None
            changes: dict[str, object] = {"error_code": ErrorCode.NOT_LEADER_OR_FOLLOWER}
            if kind == 1:
                changes = {"records": b"\0" * 70}
            elif kind == 2:
                return FetchResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
            (topic, *rest) = answer.responses
            parts = tuple(replace(each, **changes) for each in topic.partitions)  # type: ignore[arg-type]
            return replace(answer, responses=(replace(topic, partitions=parts), *rest))

        broker.leader.spoil = spoiled

    def step(self) -> None:
        number, broker = self.chance.randrange(2), self.chance.choice(self.brokers)
        match self.chance.choices(range(6), (10, 2, 3, 1, 1, 1))[0]:
            case 0:
                self.write(number)
            case 1:
                self.elect(number)
            case 2:
                self.spoil(broker)
            case 3:
                broker.leader.lose_sessions()
            case 4:
                self.outside.network.delay_s = self.chance.choice((0.0, 0.01, 0.3))
            case _:
                broker.files.faults.append(
                    DiskFault(operation="write", path_part=".log", error=errno.ENOSPC)
                )
                # Only a follower meets it: the scripted leader writes when there is room.
                self.outside.loop.call_later(0.3, broker.files.faults.clear)

    def heal(self) -> None:
        self.outside.network.delay_s = 0.0
        for broker in self.brokers:
            broker.files.faults.clear()
            broker.leader.spoil = lambda _, answer: answer
        for number in range(2):
            self.elect(number)


async def run(world: World) -> None:
    """Go through the steps, heal, and compare the logs."""
    chance = world.chance
    for _ in range(STEPS):
        if not any(each.files.faults for each in world.brokers):
            world.step()
        await world.outside.pass_time(chance.choice((0.001, 0.01, 0.1, 0.7)))
        for number in range(2):
            world.note(number)
    world.heal()
    await world.outside.pass_time(5)
    for number in range(2):
        world.note(number)
        one, other = (content(each.log(number)) for each in world.brokers)
        assert one == other
        assert one[: len(world.acknowledged[number])] == world.acknowledged[number]
    for each in world.brokers:
        assert each.follower.following.statistics().failed_count == 0
        await each.follower.following.close()
        await each.leader.close()


@given(st.integers(0, 2**32))
@example(0)
def test_logs_become_equal_whatever_the_network_does(seed: int) -> None:
    """Nothing below a high watermark is ever lost, and after the faults both logs are the same."""
    with virtual_runtime(seed=seed) as outside:

        async def start() -> None:
            await run(World(seed, outside))

        outside.run(start())
