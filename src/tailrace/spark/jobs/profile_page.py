"""A profile as a page, with the rates, sizes, keys and compression of each topic; or as lines."""

from collections.abc import Iterator
from typing import Final

from tailrace.spark.jobs import report_html as html
from tailrace.spark.jobs.charts import BYTES, COUNTS, Bars, Columns, bars, columns, moment
from tailrace.spark.jobs.profile import LogProfile, Profile
from tailrace.spark.jobs.sketches import DISTINCT_ERROR, TimeHistogram

_TOPICS_MAX: Final = 200
"""Topics with charts; the largest come first, and the table has all."""
_ROWS_MAX: Final = 5000
_HITTERS_SHOWN: Final = 20
_COLUMNS_MAX: Final = 200
"""Bars of a chart over time; buckets share a bar where there are more."""
_SHOWN_BYTES: Final = 60
"""Bytes of a key that the page shows."""

_UNITS: Final = {60_000: "minute", 3_600_000: "hour", 86_400_000: "day"}


def profile_page(profile: Profile) -> str:
    """One HTML file that says it all."""
    topics = profile.topics()
    ordered = sorted(topics.items(), key=lambda each: -each[1].counters.stored_bytes)
    drawn = ordered[:_TOPICS_MAX]
    return html.render(
        "profile.html",
        title="Profile",
        subject=profile.source,
        totals=[
            ("topics", len(topics)),
            ("partitions", len(profile.partitions)),
            ("records", sum(each.counters.records for each in topics.values())),
            ("stored", html.size(sum(each.counters.stored_bytes for each in topics.values()))),
            ("seconds", f"{profile.seconds:.1f}"),
        ],
        by_size=bars(
            [
                (name, each.counters.stored_bytes, html.size(each.counters.stored_bytes))
                for name, each in drawn
            ],
            axis="bytes stored",
            quantity=BYTES,
        ),
        partitions=_partitions(profile),
        topics=[_topic(name, each, profile) for name, each in drawn],
        rows_max=_ROWS_MAX,
    )


def profile_lines(profile: Profile) -> Iterator[str]:
    """A line of plain text for each topic, the largest first."""
    ordered = sorted(profile.topics().items(), key=lambda each: -each[1].counters.stored_bytes)
    for name, each in ordered:
        counters = each.counters
        ratio = counters.content_bytes / max(counters.stored_bytes, 1)
        yield (
            f"{name}: {counters.records} records in {counters.batches} batches, "
            f"{counters.stored_bytes} bytes stored, {ratio:.2f} bytes of content for each; "
            f"{'' if each.keys.is_exact else 'about '}{each.keys.count()} keys, "
            f"{counters.null_keys} records without one, {counters.tombstones} tombstones, "
            f"{counters.out_of_order} out of order; {moment(each.oldest)} to {moment(each.newest)}"
        )


def _partitions(profile: Profile) -> list[tuple[object, ...]]:
    return [
        (
            str(partition),
            each.counters.records,
            html.size(each.counters.stored_bytes),
            _distinct(each),
            html.share(each.superseded, each.counters.records),
            each.counters.tombstones,
            html.share(each.counters.out_of_order, each.counters.records),
            moment(each.oldest),
            moment(each.newest),
            each.counters.damaged,
        )
        for partition, each in profile.partitions.items()
    ]


def _topic(name: str, found: LogProfile, profile: Profile) -> dict[str, object]:
    """Return the values for a topic's part of the template."""
    return {
        "name": name,
        "facts": _facts(
            found,
            superseded=sum(
                each.superseded
                for partition, each in profile.partitions.items()
                if partition.topic == name
            ),
        ),
        "rates": _rates(found.times),
        "sizes": _sizes(found),
        "codecs": _codecs(found),
        "hitters": _hitters(found),
        "hitters_error": found.hitters.error,
    }


def _facts(found: LogProfile, *, superseded: int) -> list[tuple[str, object]]:
    counters = found.counters
    records = counters.records
    return [
        ("records", records),
        ("batches", counters.batches),
        ("records per batch", f"{records / max(counters.batches, 1):.1f}"),
        ("stored", html.size(counters.stored_bytes)),
        ("keys and values", html.size(counters.content_bytes)),
        ("distinct keys", _distinct(found)),
        ("superseded", html.share(superseded, records)),
        ("without a key", html.share(counters.null_keys, records)),
        ("tombstones", html.share(counters.tombstones, records)),
        ("oldest", moment(found.oldest)),
        ("newest", moment(found.newest)),
        ("out of order", html.share(counters.out_of_order, records)),
        ("without a time", counters.without_time),
        ("in the future", counters.in_future),
        ("control batches", counters.control_batches),
        ("transactional batches", counters.transactional_batches),
    ]


def _rates(times: TimeHistogram) -> list[tuple[str, Columns]]:
    buckets = times.buckets()
    if not buckets:
        return []
    width = times.width_ms
    first = buckets[0].start_ms
    # Stretches without records are drawn too.
    span = (buckets[-1].start_ms - first) // width + 1
    step = -(-span // _COLUMNS_MAX)
    records, size = ([0] * -(-span // step) for _ in range(2))
    for each in buckets:
        number = (each.start_ms - first) // width // step
        records[number] += each.records
        size[number] += each.bytes
    unit = _UNITS.get(width, f"{width // 86_400_000} day")
    unit = unit if step == 1 else f"{step} {unit}s"
    return [
        (
            f"{name} over time",
            columns(
                values,
                start_ms=first,
                step_ms=step * width,
                axis=f"{name.lower()} per {unit}",
                quantity=quantity,
            ),
        )
        for name, values, quantity in (("Records", records, COUNTS), ("Bytes", size, BYTES))
    ]


def _sizes(found: LogProfile) -> Bars:
    classes = found.size_classes.tolist()
    used = [number for number, count in enumerate(classes) if count]
    values = [
        (
            "0 B" if not number else f"from {html.size(1 << number - 1)}",
            classes[number],
            html.count(classes[number]),
        )
        for number in range(min(used, default=0), max(used, default=-1) + 1)
    ]
    return bars(values, axis="records of that size", quantity=COUNTS)


def _hitters(found: LogProfile) -> Bars:
    keyed = max(found.counters.records - found.counters.null_keys, 1)
    values = [
        (
            _key(each.value),
            each.count_min,
            f"{html.count(each.count_min)}, {html.share(each.count_min, keyed)}",
        )
        for each in found.hitters.top(_HITTERS_SHOWN)
    ]
    return bars(values, axis="records with that key", quantity=COUNTS)


def _codecs(found: LogProfile) -> list[tuple[object, ...]]:
    return [
        (
            name,
            use.batches,
            use.records,
            html.size(use.stored_bytes),
            html.size(use.content_bytes),
            f"{use.content_bytes / use.stored_bytes:.2f}" if use.stored_bytes else "-",
        )
        for name, use in sorted(found.codecs.items())
    ]


def _distinct(found: LogProfile) -> str:
    told = html.count(found.keys.count())
    return told if found.keys.is_exact else f"about {told} (±{100 * DISTINCT_ERROR:.1f} %)"


def _key(value: bytes) -> str:
    """A key as text where it is some, else as hexadecimal digits."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        text = f"0x{value.hex()}"
    return text if len(text) <= _SHOWN_BYTES else f"{text[:_SHOWN_BYTES]}…"
