"""A profile as a page, with the rates, sizes, keys and compression of each topic; or as lines."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from tailrace.spark.jobs import report_html as html
from tailrace.spark.jobs.profile import LogProfile, Profile
from tailrace.spark.jobs.sketches import DISTINCT_ERROR, TimeHistogram

_TOPICS_MAX: Final = 200
"""Topics with charts; the largest come first, and the table has all."""
_ROWS_MAX: Final = 5000
_HITTERS_SHOWN: Final = 20
_COLUMNS_MAX: Final = 300
"""Bars of a chart over time; buckets share a bar where there are more."""
_SHOWN_BYTES: Final = 60
"""Bytes of a key that the page shows."""
_YEAR_10000_MS: Final = 253_402_300_800_000

_UNITS: Final = {60_000: "minute", 3_600_000: "hour", 86_400_000: "day"}


def profile_page(profile: Profile) -> str:
    """One HTML file that says it all."""
    topics = profile.topics()
    ordered = sorted(topics.items(), key=lambda each: -each[1].counters.stored_bytes)
    parts = [
        html.facts(
            [
                ("topics", len(topics)),
                ("partitions", len(profile.partitions)),
                ("records", sum(each.counters.records for each in topics.values())),
                ("stored", html.size(sum(each.counters.stored_bytes for _, each in ordered))),
                ("seconds", f"{profile.seconds:.1f}"),
            ]
        ),
        html.heading("Topics by size"),
        html.bars(
            [
                (name, each.counters.stored_bytes, html.size(each.counters.stored_bytes))
                for name, each in ordered[:_TOPICS_MAX]
            ]
        ),
        html.heading("Partitions"),
        _partitions(profile),
    ]
    for name, each in ordered[:_TOPICS_MAX]:
        of_topic = [p for partition, p in profile.partitions.items() if partition.topic == name]
        parts += _topic(name, each, superseded=sum(p.superseded for p in of_topic))
    when = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return html.page("Profile", f"{profile.source}; {when}", parts)


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
            f"{counters.out_of_order} out of order; {_time(each.oldest)} to {_time(each.newest)}"
        )


def _partitions(profile: Profile) -> html.Markup:
    rows = (
        (
            str(partition),
            each.counters.records,
            html.size(each.counters.stored_bytes),
            _distinct(each),
            html.share(each.superseded, each.counters.records),
            each.counters.tombstones,
            html.share(each.counters.out_of_order, each.counters.records),
            _time(each.oldest),
            _time(each.newest),
            each.counters.damaged,
        )
        for partition, each in profile.partitions.items()
    )
    headings = (
        "partition", "records", "stored", "distinct keys", "superseded", "tombstones",
        "out of order", "oldest", "newest", "damaged",
    )  # fmt: skip
    return html.table(headings, rows, rows_max=_ROWS_MAX)


def _topic(name: str, found: LogProfile, *, superseded: int) -> Iterator[html.Markup]:
    counters = found.counters
    records = counters.records
    yield html.heading(name)
    yield html.facts(
        [
            ("records", records),
            ("batches", counters.batches),
            ("records per batch", f"{records / max(counters.batches, 1):.1f}"),
            ("stored", html.size(counters.stored_bytes)),
            ("keys and values", html.size(counters.content_bytes)),
            ("distinct keys", _distinct(found)),
            ("superseded", html.share(superseded, records)),
            ("without a key", html.share(counters.null_keys, records)),
            ("tombstones", html.share(counters.tombstones, records)),
            ("oldest", _time(found.oldest)),
            ("newest", _time(found.newest)),
            ("out of order", html.share(counters.out_of_order, records)),
            ("without a time", counters.without_time),
            ("in the future", counters.in_future),
            ("control batches", counters.control_batches),
            ("transactional batches", counters.transactional_batches),
        ]
    )
    yield from _rates(found.times)
    yield html.heading("Bytes of key and value", level=3)
    yield html.bars(_sizes(found))
    yield html.heading("Compression", level=3)
    yield _codecs(found)
    hitters = found.hitters.top(_HITTERS_SHOWN)
    if hitters:
        yield html.heading("Keys that come most", level=3)
        keyed = max(records - counters.null_keys, 1)
        if found.hitters.error:
            low = html.count(found.hitters.error)
            yield html.paragraph(f"Counts are too low by at most {low}.")
        yield html.bars(
            [
                (
                    _key(each.value),
                    each.count_min,
                    f"{html.count(each.count_min)}, {html.share(each.count_min, keyed)}",
                )
                for each in hitters
            ]
        )


def _rates(times: TimeHistogram) -> Iterator[html.Markup]:
    buckets = times.buckets()
    if not buckets:
        return
    width = times.width_ms
    first = buckets[0].start_ms
    # Stretches without records are drawn too.
    span = (buckets[-1].start_ms - first) // width + 1
    step = -(-span // _COLUMNS_MAX)
    counted = [[0, 0] for _ in range(-(-span // step))]
    for each in buckets:
        totals = counted[(each.start_ms - first) // width // step]
        totals[0] += each.records
        totals[1] += each.bytes
    unit = _UNITS.get(width, f"{width // 86_400_000} day")
    unit = unit if step == 1 else f"{step} {unit}s"
    labels = [_time(first + number * step * width) for number in range(len(counted))]
    for name, index, shown in (("Records", 0, html.count), ("Bytes", 1, html.size)):
        yield html.heading(f"{name} per {unit}", level=3)
        yield html.columns(
            [
                (label, row[index], shown(row[index]))
                for label, row in zip(labels, counted, strict=True)
            ]
        )


def _sizes(found: LogProfile) -> list[tuple[str, float, str]]:
    classes = found.size_classes.tolist()
    used = [number for number, count in enumerate(classes) if count]
    return [
        (
            "none" if not number else f"from {html.size(1 << number - 1)}",
            classes[number],
            html.count(classes[number]),
        )
        for number in range(min(used, default=0), max(used, default=-1) + 1)
    ]


def _codecs(found: LogProfile) -> html.Markup:
    rows = (
        (
            name,
            use.batches,
            use.records,
            html.size(use.stored_bytes),
            html.size(use.content_bytes),
            f"{use.content_bytes / use.stored_bytes:.2f}" if use.stored_bytes else "-",
        )
        for name, use in sorted(found.codecs.items())
    )
    headings = ("codec", "batches", "records", "stored", "keys and values", "ratio")
    return html.table(headings, rows, rows_max=_ROWS_MAX)


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


def _time(timestamp_ms: int | None) -> str:
    if timestamp_ms is None:
        return "-"
    if timestamp_ms >= _YEAR_10000_MS:
        return f"{timestamp_ms} ms"
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
