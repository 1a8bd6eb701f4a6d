"""The exactly-once sink of Spark writes to Apache Kafka, and dies on the way.

A stream from topic to topic whose driver, tasks or broker are killed at requests that a proxy holds
at that moment, and at random; a job whose driver is killed, and that is run again; a stage that
Spark runs again; a checkpoint that is put back; and a task that outlives its job. Readers of
committed records then see each record once, in the order of its key, and no transaction is open.

`pytest tests/kills/test_exactly_once.py --kafka=VERSION` has all points and hundreds of kills.
"""

import re
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from itertools import pairwise

from compat.kafka import Kafka
from compat.processes import free_ports
from compat.report import Report
from compat.spark_drivers import spark_drivers
from tailrace import Admin
from tailrace.client.admin import NewTopic
from tailrace.client.producer import Producer
from tailrace.client.producer.errors import ProducerFencedError
from tailrace.errors import FatalError
from tailrace.protocol.apis import ApiKey
from tailrace.spark.sink.cluster import ClusterTransactions
from tailrace.spark.sink.commits import JobCommitter
from tailrace.spark.sink.ledger import NO_COUNT
from tailrace.spark.sink.written import TaskAttempt
from tailrace.testing.proxy import Direction, Proxy
from tests.kills.backups import put_back
from tests.kills.copying import (
    Point,
    kill_at_random,
    kill_broker_at,
    kill_broker_at_random,
    kill_driver_at,
    kill_task_at,
)
from tests.kills.drivers import Drivers, Victim
from tests.kills.stages import KINDS, lose_shuffle_files
from tests.kills.versions import kill_job_at

POINTS = [
    Point(ApiKey.PRODUCE, Direction.ANSWER),
    Point(ApiKey.TXN_OFFSET_COMMIT, Direction.ANSWER),
    Point(ApiKey.END_TXN, Direction.REQUEST),
    Point(ApiKey.END_TXN, Direction.ANSWER),
    Point(ApiKey.LIST_TRANSACTIONS, Direction.ANSWER),
]
"""Rows and offsets that nobody has noted, a note without a commit, and one with."""

TASK_POINTS = [
    (Victim.WORKER, Point(ApiKey.INIT_PRODUCER_ID, Direction.ANSWER)),
    (Victim.WORKER, Point(ApiKey.PRODUCE, Direction.ANSWER)),
    (Victim.EXECUTOR, Point(ApiKey.PRODUCE, Direction.REQUEST)),
]
"""Identities that another attempt takes over, with rows and without."""

BROKER_POINTS = [
    Point(ApiKey.PRODUCE, Direction.ANSWER),
    Point(ApiKey.END_TXN, Direction.REQUEST),
    Point(ApiKey.END_TXN, Direction.ANSWER),
]
"""Rows without a note, and a note with a commit that is not begun, or that is done."""

JOB_POINTS = [Point(ApiKey.END_TXN, direction) for direction in Direction]
"""A note, without a commit and with one."""


def check(report: Report, kafka: Kafka, *, version: str) -> None:
    """Have copies killed that go through a Kafka of this version, on a directory that is new."""
    port, controller_port = free_ports(2)
    with Proxy(f"127.0.0.1:{port}") as proxy:
        kafka.settings |= {
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": f"PLAINTEXT://{proxy.address}",
            "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        }
        with spark_drivers() as (drivers, folder), kafka:
            for title, kill in _deaths(drivers, kafka, proxy).items():
                # The name is part of those of topics.
                place = folder / re.sub(r"\W+", "-", title)
                place.mkdir()
                report.check(
                    f"{version}, {title}: each record is there once",
                    _faults(kill, folder=place),
                )
            report.check(
                f"{version}, a task outlives its job: it is fenced once, and opens nothing",
                _faults(_outlive, proxy.address),
            )
            report.check(
                f"{version}, a counter asked for one after: it is raised once",
                _faults(_count, proxy.address),
            )


def _deaths(drivers: Drivers, kafka: Kafka, proxy: Proxy) -> dict[str, Callable[..., None]]:
    """Each death, and the function that brings it about in a folder."""
    return {
        **{
            f"the driver dies {point}": partial(kill_driver_at, point, drivers, proxy)
            for point in POINTS
        },
        **{
            f"the {victim.value} of a task dies {point}": partial(
                kill_task_at, point, drivers, proxy, victim
            )
            for victim, point in TASK_POINTS
        },
        **{
            f"the broker dies {point}": partial(kill_broker_at, point, drivers, kafka, proxy)
            for point in BROKER_POINTS
        },
        **{
            f"the driver of a job dies {point}, and the job is run again": partial(
                kill_job_at, point, drivers, proxy
            )
            for point in JOB_POINTS
        },
        **{
            f"one {victim.value} dies at random": partial(
                kill_at_random, drivers, proxy.address, victim, seed=0
            )
            for victim in Victim
        },
        "the broker dies at random": partial(kill_broker_at_random, drivers, kafka, proxy, seed=0),
        **{
            f"a stage of a {kind} runs again": partial(
                lose_shuffle_files, drivers, proxy.address, seed=seed
            )
            for seed, kind in enumerate(KINDS)
        },
        "a checkpoint is put back": partial(put_back, drivers, proxy.address, seed=1),
    }


def _faults(kill: Callable[..., None], *arguments: object, **named: object) -> list[str]:
    try:
        kill(*arguments, **named)
    except AssertionError as error:
        return [str(error)]
    return []


def _outlive(bootstrap: str) -> None:
    """Have a task get its identity, and write only when its job is given up."""
    settings = {"bootstrap.servers": bootstrap}
    with (
        Admin(bootstrap_servers=bootstrap) as admin,
        closing(ClusterTransactions(settings)) as transactions,
    ):
        admin.create_topics([NewTopic("late", 1)]).results()
        job = JobCommitter("late", transactions)
        plan = job.begin()
        name, _ = plan.take_id(TaskAttempt(), transactions)
        assert plan.is_newest(transactions), "the token is not the newest"
        with Producer(settings | {"transactional.id": name}) as late:
            late.begin_transaction()
            for _ in range(2):
                job.abort()
            epoch = admin.describe_transactions([name]).result(name).producer_epoch
            assert epoch == 1, f"the identity was fenced {epoch} times"
            with suppress(ProducerFencedError):
                late.send("late", b"late").result()
                raise AssertionError("it has written behind the end of its job")
        assert not plan.is_newest(transactions), "its token is the newest"


def _count(bootstrap: str) -> None:
    """Have a counter raised by requests that are repeated, from nothing and later."""
    name = "tailrace-counted.commits"
    with closing(ClusterTransactions({"bootstrap.servers": bootstrap})) as transactions:
        before = transactions.count(name)
        assert before == NO_COUNT, "a counter that nobody has raised has a count"
        for epoch in range(3):
            transactions.raise_count_after(name, before)
            count = transactions.count(name)
            assert count.follows(before), f"{count} does not follow {before}"
            assert count.producer_epoch == epoch, f"{count} has another epoch than {epoch}"
            transactions.raise_count_after(name, before)
            assert transactions.count(name) == count, "it was raised twice"
            before = count
        with suppress(FatalError):
            transactions.raise_count_after(name, NO_COUNT)
            raise AssertionError("a counter has begun again")
        tickets = [transactions.raise_count("tailrace-counted.0") for _ in range(3)]
        assert all(later.follows(earlier) for earlier, later in pairwise(tickets)), tickets
