"""A few seconds of chaos keep every promise, and each broken promise would be found."""

from contextlib import suppress
from typing import Any

import pytest

from tailrace import Producer
from tailrace.errors import FatalError
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.testing.real_cluster import real_cluster
from tailrace.testing.script import FaultKind
from tests.chaos.load import TOPIC, Load
from tests.chaos.run import run
from tests.chaos.verdict import End, Found, Told, value_of, violations

SECONDS = 3


def told(number: int, end: End, *, offset: int = -1, transaction: int = -1) -> Told:
    """A record of the producer `p` in partition 0."""
    return Told(
        producer="p",
        number=number,
        end=end,
        partition=0,
        offset=offset,
        transaction=transaction,
    )


def log(*numbers: int) -> dict[int, list[Found]]:
    """Partition 0 with these records of `p`, from offset 0."""
    return {0: [Found(offset, value_of("p", n, 20)) for offset, n in enumerate(numbers)]}


GOOD = [
    told(0, End.ACKNOWLEDGED, offset=0, transaction=0),
    told(1, End.ACKNOWLEDGED, offset=1, transaction=0),
    told(2, End.FAILED),
    told(3, End.NEVER_SENT),
    told(4, End.ACKNOWLEDGED),
]

BROKEN = {
    "lost": (GOOD, log(0, 1, 2), "('p', 4) was acknowledged, and is not there"),
    "doubled": (GOOD, log(0, 1, 2, 4, 4), "('p', 4) is there 2 times"),
    "a failed one doubled": (GOOD, log(0, 1, 2, 2, 4), "('p', 2) is there 2 times"),
    "elsewhere": (GOOD, log(2, 0, 1, 4), "('p', 0) is not at offset 0 of partition 0"),
    "sent all the same": (GOOD, log(0, 1, 3, 4), "('p', 3) was said not to be sent"),
    "out of order": (GOOD, log(0, 1, 4, 2), "('p', 2) stands after 4 at offset 3"),
    "nobody's": (GOOD, log(0, 1, 4, 9), "('p', 9) is there, and nobody sent it"),
    "no end": ([told(0, End.NOT_ENDED)], log(), "('p', 0) has no outcome"),
    "torn": (
        [told(0, End.FAILED, transaction=3), told(1, End.FAILED, transaction=3)],
        log(1),
        "transaction ('p', 3) is there in part",
    ),
}


@pytest.mark.parametrize("records", [(0, 1, 4), (0, 1, 2, 4)])
def test_a_log_that_keeps_the_promises_is_faultless(records: tuple[int, ...]) -> None:
    """A failed record may be in the log or not; neither is a fault."""
    assert violations(GOOD, log(*records)) == []


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_promise_is_found(case: str) -> None:
    """Each kind of damage to the log is reported with the record concerned."""
    records, found, expected = BROKEN[case]
    assert any(expected in each for each in violations(records, found))


@pytest.mark.parametrize(
    ("trouble", "end"),
    [
        ({"how": FaultKind.DELAY, "delay_s": 1.0}, End.ACKNOWLEDGED),
        ({"how": FaultKind.ERROR, "error": ErrorCode.TRANSACTION_ABORTABLE}, End.NEVER_SENT),
        ({"how": FaultKind.ERROR, "error": ErrorCode.PRODUCER_FENCED}, End.FAILED),
    ],
)
def test_a_transaction_has_the_end_that_its_producer_told(
    trouble: dict[str, Any], end: End
) -> None:
    """A late commit is asked for again, and one that may be retried was not committed."""
    with real_cluster() as cluster:
        cluster.create_topic(TOPIC)
        settings = {
            "bootstrap.servers": cluster.bootstrap,
            "transactional.id": "transactional",
            "max.block.ms": 500,
            "request.timeout.ms": 20_000,
        }
        load = Load("transactional", settings, seed=1)
        with Producer(settings) as producer:
            load._send_transaction(producer, 0)
            cluster.script.add(ApiKey.END_TXN, **trouble)
            with suppress(FatalError):
                load._send_transaction(producer, 1)
    assert {each.end for each in load.told() if each.transaction == 1} == {end}


@pytest.mark.wire
def test_a_broker_that_is_killed_and_cut_off_loses_nothing() -> None:
    """Every record of every kind of producer has an outcome, and the log agrees with it."""
    counts, faults = run(SECONDS, seed=7)
    assert not faults
    assert counts["acknowledged"] > 100
    assert counts["restarts"] + counts["frames disturbed"] + counts["cuts"] > 1
