"""Small requests: how long an answer takes, and what a request costs the broker.

Each is compared with a bare asyncio echo of the same sizes in the same run, so a ratio says what
a log costs on top of a socket. The broker has loaded its kernels.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from benchmarks.macro.brokers import BrokerProcess, serving
from benchmarks.macro.echo import EchoProcess, echo
from benchmarks.macro.groups import commit_frame, wait_for_coordinator
from benchmarks.macro.load import build_batch, fetch_frame, produce_frame
from benchmarks.macro.requester import Job, Result, run_job
from benchmarks.measure import Bench, Figure, interleave, resident_bytes

TOPIC = "requests"
GROUP = "requests"
COUNT = 20_000
QUICK_COUNT = 640
ONE_RECORD_BYTES = 180
"""Room for a batch of one record, not of two."""
CONNECTIONS = 1_000
CPU_LIMIT_US = 15.0
"""Most of a small produce request, when 16 come at once."""
PEER = "asyncio echo"


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """One kind of request."""

    name: str
    frame: bytes
    at_once: int = 1
    cost: int = 1
    """By how much fewer of them are sent, because each takes longer."""


def loads() -> list[Load]:
    """The kinds of requests that are measured."""
    small = produce_frame(TOPIC, build_batch(ONE_RECORD_BYTES))
    return [
        Load(name="produce of one record", frame=small),
        Load(name="produce of one record, 16 at once", frame=small, at_once=16),
        Load(name="produce of 16 KB", frame=produce_frame(TOPIC, build_batch(16 * 1024)), cost=4),
        Load(name="fetch of one batch", frame=fetch_frame(TOPIC, offset=10, bytes_max=100)),
        Load(name="commit of one offset", frame=commit_frame(GROUP, TOPIC)),
        Load(name="commit of one offset, 16 at once", frame=commit_frame(GROUP, TOPIC), at_once=16),
    ]


def measure_requests(bench: Bench) -> list[Figure]:
    """Times and CPU of each kind, and the cost of a thousand connections."""
    figures = []
    with serving(bench.directory / "data") as broker:
        broker.create_topic(TOPIC)
        wait_for_coordinator(broker.address, GROUP)
        for load in loads():
            bench.say(f"requests: {load.name}")
            figures += _measure(bench, broker, load)
        bench.say(f"requests: {CONNECTIONS} connections")
        figures += _measure_connections(bench, broker, loads()[0])
    return figures


def job_of(load: Load, process: BrokerProcess | EchoProcess, count: int) -> Job:
    """The job of a load for a process."""
    host, port = process.address
    return Job(
        host=host,
        port=port,
        process_id=process.process_id,
        frames=(load.frame.hex(),),
        count=count // load.cost,
        at_once=load.at_once,
    )


def _measure(bench: Bench, broker: BrokerProcess, load: Load) -> list[Figure]:
    count = bench.scaled(COUNT, quick=QUICK_COUNT)
    job = job_of(load, broker, count)
    answer_bytes = len(bytes.fromhex(run_job(replace(job, count=load.at_once * 8)).answer))
    with echo(request_bytes=len(load.frame), answer_bytes=answer_bytes) as process:
        found = interleave(
            bench,
            {
                "ours": partial(run_job, job),
                "peer": partial(run_job, job_of(load, process, count)),
            },
        )
    return figures_of(load.name, found, peer_name=PEER)


def figures_of(
    name: str,
    found: Mapping[str, list[Result]],
    *,
    peer_name: str,
    aims: Mapping[str, float] | None = None,
) -> list[Figure]:
    """The quantiles and the CPU of one kind of request, ours and the peer's."""
    values: dict[str, Callable[[Result], float]] = {
        "p50": lambda result: result.p50_us,
        "p99": lambda result: result.p99_us,
        "p99.9": lambda result: result.p999_us,
        "CPU": lambda result: result.cpu_us,
    }
    return [
        Figure(
            name=f"{name}, {what}",
            unit="us",
            ours=tuple(map(value, found["ours"])),
            peer_name=peer_name,
            peer=tuple(map(value, found["peer"])),
            aim=(aims or {}).get(what),
        )
        for what, value in values.items()
    ]


def _measure_connections(bench: Bench, broker: BrokerProcess, load: Load) -> list[Figure]:
    connections = bench.scaled(CONNECTIONS, quick=20)
    count = bench.scaled(COUNT, quick=QUICK_COUNT)
    job = job_of(load, broker, count)
    before = resident_bytes(broker.process_id)
    found = interleave(
        bench,
        {
            "alone": partial(run_job, job),
            "idle": partial(run_job, replace(job, idle_connections=connections)),
            "active": partial(run_job, replace(job, active_connections=connections)),
        },
    )
    after = resident_bytes(broker.process_id)
    alone = found["alone"]

    def figure(name: str, kind: str, value: Callable[[Result], float]) -> Figure:
        return Figure(
            name=f"{load.name}, {name}",
            unit="us",
            ours=tuple(map(value, found[kind])),
            peer_name="one connection",
            peer=tuple(map(value, alone)),
        )

    return [
        figure(f"beside {connections} idle connections, p50", "idle", lambda run: run.p50_us),
        figure(f"beside {connections} idle connections, CPU", "idle", lambda run: run.cpu_us),
        figure(f"of {connections} connections, CPU", "active", lambda run: run.cpu_us),
        Figure(
            name=f"memory that {connections} connections leave",
            unit="MB",
            ours=(max(after - before, 1) / 1e6,),
            peer_name="input buffers",
            peer=(connections * 65_536 / 1e6,),
        ),
    ]
