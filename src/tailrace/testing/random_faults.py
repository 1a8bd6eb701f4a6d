"""`RandomFaults`: faults of a `SimulatedCluster` by its seed, of which none may lose a record.

Invariant: without `tailrace.durability=sync` an acknowledged record may be on no device. So a
replica in sync of each partition lives, which the controller hears; else what was acknowledged
would be gone, as in Kafka. `may_go` keeps such faults out.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from tailrace.testing.machines import CLIENTS, CONTROLLER
from tailrace.testing.simulated import SimulatedCluster

PROCESSES: Final = ("kill", "power", "stop")
DISKS: Final = ("full", "slow disk")
LINKS: Final = ("hold", "hold one way", "cut", "delay")
CLOCKS: Final = ("clock",)
CONTROLLERS: Final = (
    "kill controller",
    "power controller",
    "crash controller",
    "stop controller",
    "full controller",
    "slow controller",
    "clock controller",
)
"""Faults of the controller; a crash is at a change of its disk."""
FAULTS: Final = (*PROCESSES, *DISKS, *LINKS, *CLOCKS, *CONTROLLERS)
MENDED: Final = ("start", "start", "mend", "mend")
"""These are as likely as faults, so that a cluster works now and then."""

CHANGES_MAX: Final = 12
"""A crash of the controller is in one of this number of next changes of its disk."""
FORWARD_MS: Final = 12 * 3_600_000
BACK_MS: Final = 3_000_000
"""A clock is set by this at most: the offsets of a group and a producer's id expire after
a day, and a record is refused that is an hour ahead of its broker."""


class RandomFaults:
    """Makes faults of some kinds, and mends some of them."""

    def __init__(self, cluster: SimulatedCluster, kinds: Sequence[str]) -> None:
        unknown = set(kinds) - {*FAULTS, *self.more_kinds}
        if unknown:
            raise ValueError(f"kinds={sorted(unknown)}: {', '.join(FAULTS)} are possible")
        self.cluster = cluster
        self.kinds = tuple(kinds)
        is_durable = cluster.settings.get("tailrace.durability") == "sync"
        self.is_careful = "power" in kinds and not is_durable
        """Whether an acknowledged record may be on no device, so that not all may lose power."""
        own = ("start controller",) if cluster.controller_machine is not None else ()
        self._mended = (*MENDED, *own)

    more_kinds: tuple[str, ...] = ()
    """Kinds of a class that is made of this one."""

    async def go_on(self, seconds: float) -> None:
        """Make two faults in a second of virtual time, for some seconds."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + seconds
        while loop.time() < end_s:
            await self.cluster.pass_time(self.cluster.chance.expovariate(2.0))
            self.fault()

    def fault(self) -> None:
        """Make one fault, or mend something."""
        cluster, chance = self.cluster, self.cluster.chance
        kind = chance.choice((*self.kinds, *self._mended))
        broker_id = chance.choice(cluster.brokers)
        match kind:
            case "start":
                cluster.start(broker_id)
            case "start controller":
                cluster.start(CONTROLLER)
            case "mend":
                self._mend()
            case "hold" | "hold one way" | "cut":
                self._break_link(kind)
            case "delay":
                # With 0.3 s no heartbeat is answered in time, and the controller hears nobody.
                long_s = 0.1 if self.is_careful else 0.3
                cluster.delay(chance.choice([0.0, 0.1, long_s]))
            case "kill" | "power" | "stop" | "full" | "slow disk" | "clock":
                self._break_machine(kind, broker_id)
            case _ if kind in CONTROLLERS:
                self._break_machine(kind.removesuffix(" controller"), cluster.controller_id)
            case _:
                self.more(kind, broker_id)

    def more(self, kind: str, broker_id: int) -> None:
        """Make a fault of `more_kinds`."""
        raise NotImplementedError(kind)

    # -- what may be ---------------------------------------------------------------------------

    def may_go(self, broker_id: int) -> bool:
        """Whether this broker may lose its power, or be taken for one that has.

        Without `tailrace.durability=sync` a replica in sync of each partition must live without it.
        One that the controller does not hear lives for nobody: it elects another, and in the end
        the last leader that it knows, with whatever that has left. Nor can it tell a kill from a
        loss of power, so both count where there is either.
        """
        cluster = self.cluster
        return not self.is_careful or (
            cluster.machines[broker_id].is_serving
            and all(
                any(
                    cluster.machines[each].is_serving and self.is_heard(each)
                    for each in cluster.isr(name)
                    if each != broker_id
                )
                for name in cluster.partitions()
                # Of the others none could be lost with it.
                if broker_id in cluster.state(name).replicas
            )
        )

    def is_heard(self, broker_id: int) -> bool:
        """Whether the controller gets what the broker sends."""
        cluster = self.cluster
        return broker_id == cluster.controller_id or not cluster.link(broker_id, CONTROLLER).silent

    # -- faults -------------------------------------------------------------------------------

    def _break_machine(self, kind: str, node_id: int) -> None:
        cluster, chance, machine = self.cluster, self.cluster.chance, self.cluster.machine(node_id)
        if machine.running is None or (
            node_id != CONTROLLER and not self._may_break(kind, node_id)
        ):
            return
        match kind:
            case "kill":
                cluster.kill(node_id)
            case "power":
                cluster.power_off(node_id)
            case "stop":
                cluster.stop(node_id)
            case "full":
                cluster.fill_disk(node_id)
            case "crash":
                cluster.crash_at_change(
                    chance.randrange(CHANGES_MAX), loses_power=chance.random() < 0.5
                )
            case "slow disk" | "slow":
                # Slower, and a controller would hear nobody in time, as with long delays.
                long_s = 0.2 if node_id == cluster.controller_id else 0.5
                cluster.slow_disk(node_id, chance.choice([0.0, 0.02, long_s]))
            case _:
                cluster.set_clock(
                    node_id,
                    chance.choice([0, 1000, -1000, 60_000, -60_000, FORWARD_MS, -BACK_MS]),
                )

    def _may_break(self, kind: str, broker_id: int) -> bool:
        # Another fault may come before the change of the disk in which it crashes.
        if kind == "crash" and self.is_careful:
            return False
        return kind not in {"kill", "power", "stop", "full", "crash"} or self.may_go(broker_id)

    def _break_link(self, kind: str) -> None:
        cluster, chance = self.cluster, self.cluster.chance
        one, other = chance.choice([*cluster.links])
        if kind == "cut":
            cluster.cut(one, other)
        elif cluster.controller_id in {one, other} and not all(
            self.may_go(each) for each in {one, other} - {cluster.controller_id, CLIENTS}
        ):
            return
        elif kind == "hold":
            cluster.hold(one, other)
        else:
            cluster.hold(one, other, sender=chance.choice((one, other)))

    def _mend(self) -> None:
        """Mend one of all that is broken."""
        broken = self.broken()
        if broken:
            self.cluster.chance.choice(broken)()

    def broken(self) -> list[Callable[[], None]]:
        """The calls that mend each thing that is broken."""
        cluster = self.cluster

        def release(one: int, other: int) -> Callable[[], None]:
            return lambda: cluster.release(one, other)

        def make_room(node_id: int) -> Callable[[], None]:
            return lambda: cluster.make_room(node_id)

        own = () if cluster.controller_machine is None else (CONTROLLER,)
        return [
            *(release(*nodes) for nodes, link in cluster.links.items() if link.silent),
            *(
                make_room(each)
                for each in (*cluster.machines, *own)
                if cluster.machine(each).is_full
            ),
        ]
