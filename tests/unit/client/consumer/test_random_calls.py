"""Random calls of a consumer in virtual time, from a seed: all that it returns is in the log."""

import random

import pytest

from tailrace.client.consumer import ConsumerRecord
from tailrace.testing import Outside
from tests.unit.client.consumer.stage import T0, T1, on_stage

SEEDS = range(12)


@pytest.mark.parametrize("seed", SEEDS)
async def test_positions_and_records_fit_the_log(outside: Outside, seed: int) -> None:
    """Whatever is called in between, a poll returns the log from the position on, without gaps."""
    chance = random.Random(seed)
    written = {T0: 0, T1: 0}
    expected = {T0: 0, T1: 0}
    paused: set[object] = set()
    async with on_stage(outside) as stage:
        await stage.topic(partitions=2)
        async with stage.consumer(max_poll_records=7, max_partition_fetch_bytes=300) as consumer:
            consumer.assign([T0, T1])

            def check(records: list[ConsumerRecord]) -> None:
                for each in records:
                    place = each.topic_partition
                    assert place not in paused
                    assert each.offset == expected[place]
                    assert int(each.value) == each.offset
                    expected[place] += 1

            for _ in range(120):
                place = chance.choice((T0, T1))
                match chance.randrange(8):
                    case 0:
                        count = chance.randrange(1, 40)
                        await stage.fill(count, partition=place.partition, start=written[place])
                        written[place] += count
                    case 1:
                        expected[place] = chance.randrange(written[place] + 1)
                        consumer.seek(place, expected[place])
                    case 2:
                        consumer.pause(place)
                        paused.add(place)
                    case 3:
                        consumer.resume(place)
                        paused.discard(place)
                    case 4:
                        consumer.seek_to_end(place)
                        assert await consumer.position(place) == written[place]
                        expected[place] = written[place]
                    case 5:
                        for partition, rows in _by_partition(
                            await consumer.poll_columns(0.1, columns=["partition", "offset"])
                        ).items():
                            start = expected[(T0, T1)[partition]]
                            assert rows == list(range(start, start + len(rows)))
                            expected[(T0, T1)[partition]] += len(rows)
                    case 6 if expected != written and not paused:
                        check([await anext(consumer)])
                    case _:
                        check(await consumer.poll(0.1))
            consumer.resume(T0, T1)
            paused.clear()
            while expected != written:
                records = await consumer.poll(60)
                assert records, "records are missing"
                check(records)


def _by_partition(table: object) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    columns = table.to_pydict()  # type: ignore[attr-defined]
    for partition, offset in zip(columns["partition"], columns["offset"], strict=True):
        found.setdefault(partition, []).append(offset)
    return found
