"""Parse the bounds of a range: the six options of offsets and timestamps; pure.

Not here: what that is in a log (`tailrace.spark.offsets`).
"""

from collections.abc import Callable

from tailrace.model import SpecialTimestamp, TopicPartition
from tailrace.spark.options.given import GivenOptions, is_count
from tailrace.spark.options.values import EARLIEST, LATEST, Bound, Point, PointKind

_EXAMPLE = '{"topic": {"0": 23, "1": 170}}'


def parse_bound(given: GivenOptions, side: str, *, default: Point, refused: Point | None) -> Bound:
    """One end, `starting` or `ending`.

    A timestamp for all goes before one by partition, and that before offsets. `refused` is the end
    of the log that makes no sense here, if there is one.
    """
    names = (f"{side}Timestamp", f"{side}OffsetsByTimestamp", f"{side}Offsets")
    named = given.named(names)
    if not named:
        return Bound(option=names[-1], everywhere=default)
    option = named[0]
    if option == names[0]:
        timestamp = given.number(option)
        return Bound(option=option, everywhere=Point(PointKind.TIMESTAMP, timestamp))
    if option == names[1]:
        return _json_bound(given, option, _timestamp_point)
    text = (given.text(option) or "").strip()
    point = _end_of_log(text)
    if point is None:
        return _json_bound(given, option, lambda value: _offset_point(value, refused))
    if point == refused:
        given.fault(option, f"{text!r} is not possible when reading a batch")
    return Bound(option=option, everywhere=point)


def _json_bound(
    given: GivenOptions, option: str, point_of: Callable[[object], Point | str]
) -> Bound:
    of_partition: dict[TopicPartition, Point] = {}
    of_topic: dict[str, Point] = {}
    for topic, values in given.json_object(option, _EXAMPLE).items():
        if isinstance(values, str):
            values = {"": values}  # noqa: PLW2901 - the short form says the long one
        if not isinstance(values, dict):
            given.fault(option, f"{topic!r} has no offsets by partition like {_EXAMPLE}")
            continue
        for number, value in values.items():
            point = point_of(value)
            if isinstance(point, str):
                given.fault(option, f"{topic}-{number}: {point}" if number else point)
            elif not number:
                of_topic[topic] = point
            elif number.isascii() and number.isdigit():
                of_partition[TopicPartition(topic, int(number))] = point
            else:
                given.fault(option, f"{topic!r} has {number!r} in place of a partition number")
    return Bound(option=option, of_partition=of_partition, of_topic=of_topic)


def _timestamp_point(value: object) -> Point | str:
    if is_count(value):
        return Point(PointKind.TIMESTAMP, int(str(value)))
    return f"{value!r} is not a time in milliseconds since 1970"


def _offset_point(value: object, refused: Point | None) -> Point | str:
    point: Point | None
    match value:
        case str():
            point = _end_of_log(value)
        case SpecialTimestamp.EARLIEST:
            point = EARLIEST
        case SpecialTimestamp.LATEST:
            point = LATEST
        case int() if is_count(value):
            point = Point(PointKind.OFFSET, value)
        case _:
            point = None
    if point is None:
        return f"{value!r} is not an offset"
    if point == refused:
        return f"{value!r} ({point.kind.value}) is not possible here when reading a batch"
    return point


def _end_of_log(text: str) -> Point | None:
    return {"earliest": EARLIEST, "latest": LATEST}.get(text.strip().lower())
