"""Streams and jobs into a topic, exactly once, whose processes or broker are killed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.protocol.apis import ApiKey
from tailrace.testing.proxy import Direction, Proxy
from tests.chaos.brokers import Killable, behind_proxy
from tests.kills.backups import put_back
from tests.kills.copying import (
    POINTS,
    SETTINGS,
    Point,
    kill_at_random,
    kill_broker_at,
    kill_broker_at_random,
    kill_driver_at,
    kill_task_at,
)
from tests.kills.drivers import Drivers, Victim
from tests.kills.stages import lose_shuffle_files
from tests.kills.versions import kill_job_at

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

QUICK = {Point(ApiKey.PRODUCE, Direction.ANSWER), Point(ApiKey.END_TXN, Direction.ANSWER)}
"""The points of `make test`: rows without a note, and a note with half a commit."""


@pytest.fixture(scope="module")
def reached(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[tuple[Killable, Proxy]]:
    """A broker, ours if `--kafka` names none, and the proxy by which all clients reach it."""
    with behind_proxy(
        tmp_path_factory.mktemp("behind"),
        kafka=request.config.getoption("--kafka"),
        settings=SETTINGS,
    ) as found:
        yield found


@pytest.mark.slow
def test_a_killed_stream_writes_each_record_once(
    drivers: Drivers,
    victim: Victim,
    seed: int,
    reached: tuple[Killable, Proxy],
    tmp_path: Path,
) -> None:
    """At a random moment, and sometimes once more when it goes on."""
    kill_at_random(drivers, reached[1].address, victim, seed=seed, folder=tmp_path)


@pytest.mark.parametrize(
    "point",
    [pytest.param(each, marks=[] if each in QUICK else [pytest.mark.slow]) for each in POINTS],
    ids=str,
)
def test_a_driver_that_dies_at_a_request_has_each_record_written_once(
    point: Point, drivers: Drivers, reached: tuple[Killable, Proxy], tmp_path: Path
) -> None:
    """The broker never gets the request, or nobody hears its answer."""
    kill_driver_at(point, drivers, reached[1], folder=tmp_path)


@pytest.mark.parametrize(
    "point",
    [
        Point(ApiKey.END_TXN, Direction.ANSWER),
        *(
            pytest.param(Point(api, direction), marks=pytest.mark.slow)
            for api, direction in (
                (ApiKey.PRODUCE, Direction.REQUEST),
                (ApiKey.PRODUCE, Direction.ANSWER),
                (ApiKey.END_TXN, Direction.REQUEST),
            )
        ),
    ],
    ids=str,
)
def test_a_job_that_is_run_again_for_a_version_has_each_record_written_once(
    point: Point, drivers: Drivers, reached: tuple[Killable, Proxy], tmp_path: Path
) -> None:
    """Its driver died at a request, or its success was not heard of; the next version follows."""
    kill_job_at(point, drivers, reached[1], folder=tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "process", [Victim.WORKER, Victim.EXECUTOR], ids=lambda each: each.value, scope="session"
)
@pytest.mark.parametrize("point", POINTS, ids=str)
def test_a_task_that_dies_at_a_request_has_each_record_written_once(
    point: Point,
    process: Victim,
    drivers: Drivers,
    reached: tuple[Killable, Proxy],
    tmp_path: Path,
) -> None:
    """Spark tries the task again; its twin, and the driver, lose their connections meanwhile."""
    kill_task_at(point, drivers, reached[1], process, folder=tmp_path)


@pytest.mark.slow
def test_a_stage_that_is_run_again_has_each_record_written_once(
    seed: int, drivers: Drivers, reached: tuple[Killable, Proxy], tmp_path: Path
) -> None:
    """Tasks of its first attempt live on, and end before and after those of the second."""
    lose_shuffle_files(drivers, reached[1].address, seed=seed, folder=tmp_path)


@pytest.mark.slow
def test_a_checkpoint_that_is_put_back_writes_no_record_twice(
    seed: int, drivers: Drivers, reached: tuple[Killable, Proxy], tmp_path: Path
) -> None:
    """The query refuses it if a batch was noted since, and says how to go on."""
    put_back(drivers, reached[1].address, seed=seed, folder=tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS, ids=str)
def test_a_broker_that_dies_at_a_request_has_each_record_written_once(
    point: Point, drivers: Drivers, reached: tuple[Killable, Proxy], tmp_path: Path
) -> None:
    """It never gets the request, or has done what it asks and cannot say so."""
    kill_broker_at(point, drivers, *reached, folder=tmp_path)


@pytest.mark.slow
def test_a_killed_broker_has_each_record_written_once(
    seed: int, drivers: Drivers, reached: tuple[Killable, Proxy], tmp_path: Path
) -> None:
    """The query fails while the broker is away, and is started again."""
    kill_broker_at_random(drivers, *reached, seed=seed, folder=tmp_path)
