"""`parse_options`: from Spark's strings to one frozen value; names and meanings are Spark's.

Not here: anything that has to look at a topic. That the offsets fit the partitions is found out by
`tailrace.spark.offsets`, when the partitions are known.

Invariant: all faults of one call are reported together, before Spark starts a job.
"""

import json
from collections.abc import Callable, Mapping

from tailrace.client.config import CLIENT_SETTINGS, parse_client_config
from tailrace.config import field_values
from tailrace.errors import ConfigError
from tailrace.model import SpecialTimestamp, TopicPartition
from tailrace.schemas.config import REGISTRY_SETTINGS, parse_registry_config
from tailrace.schemas.formats import FORMATS
from tailrace.spark.options import names
from tailrace.spark.options.given import GivenOptions, is_count, name_faults
from tailrace.spark.options.topic_pattern import TopicPatternError, topic_regex
from tailrace.spark.options.values import (
    EARLIEST,
    LATEST,
    Bound,
    ColumnFormat,
    DecodingOptions,
    Partitions,
    Pattern,
    Point,
    PointKind,
    RateLimits,
    Selection,
    SourceOptions,
    Topics,
)

CLIENT_OPTIONS = {f"kafka.{each.name}": each.name for each in CLIENT_SETTINGS}
"""Options for the client of brokers, and the names of its settings."""

REGISTRY_OPTIONS = {
    f"schemaRegistry.{each.name}": each.name
    for each in REGISTRY_SETTINGS
    if each.name != "schema.registry.url"
}
"""Options for the client of a schema registry, and the names of its settings."""


def parse_options(given: Mapping[str, str], *, is_stream: bool = False) -> SourceOptions:
    """The options of one `load()`, of a batch or of a stream; names in any case.

    Raises:
        ConfigError: unknown names, bad values and conflicts, all of them.
    """
    read = GivenOptions(given)
    known = (*names.KNOWN, *CLIENT_OPTIONS, *REGISTRY_OPTIONS)
    # Unknown names come first: they are mostly the cause of the other faults.
    read.faults[:0] = name_faults(read.texts, known, harmless=names.HARMLESS, refused=names.REFUSED)
    options = SourceOptions(
        **field_values(SourceOptions, read.values),
        directories=_directories(read),
        selection=_selection(read),
        starting=parse_bound(
            read,
            "starting",
            default=LATEST if is_stream else EARLIEST,
            refused=None if is_stream else LATEST,
        ),
        ending=_ending(read, is_stream=is_stream),
        columns=_columns(read),
        corruption_report=_corruption_report(read),
        decoding=_decoding(read),
        limits=_limits(read),
        client_settings=_client_settings(read),
    )
    # Files have no coordinator that could keep the offsets.
    if options.group_id is not None and options.directories:
        read.fault("groupId", "only brokers have consumer groups; leave it out")
    if read.faults:
        raise ConfigError(read.faults)
    return options


def parse_job_options(given: Mapping[str, str]) -> SourceOptions:
    """The options of a job, which reads keys and values as they are stored.

    Raises:
        ConfigError: as `parse_options`, or a format is given.
    """
    options = parse_options(given)
    # Jobs keep bytes; a column of types would be lost on the way to an archive or a topic.
    if options.decoding.formats:
        raise ConfigError(
            [
                f"{column}Format: a job reads keys and values as they are stored; leave it out"
                for column in options.decoding.formats
            ]
        )
    return options


def _client_settings(read: GivenOptions) -> dict[str, str]:
    # Quotas and logs of the broker go by it.
    found = {"client.id": "tailrace-spark"} | {
        setting: value
        for option, setting in CLIENT_OPTIONS.items()
        if (value := read.text(option)) is not None
    }
    # Without brokers these settings are never used, and a fault of theirs would only confuse.
    if read.text("kafka.bootstrap.servers"):
        try:
            parse_client_config(found)
        except ConfigError as error:
            read.faults += [f"kafka.{fault}" for fault in error.faults]
    # `SourceOptions.bootstrap` has them.
    found.pop("bootstrap.servers", None)
    return found


def _directories(read: GivenOptions) -> tuple[str, ...]:
    """The directories that `path` or `paths` names; a fault unless exactly one store is named."""
    choices = ("path", "paths", "kafka.bootstrap.servers")
    named = [name for name in choices if read.text(name)]
    if len(named) != 1:
        read.fault(
            ", ".join(choices),
            f"give exactly one, data directories or a broker; there {_are(named)}",
        )
        return ()
    text = read.text(named[0]) or ""
    match named[0]:
        case "path":
            return (text,)
        case "paths":
            try:
                parsed = json.loads(text)
            except (ValueError, RecursionError):
                parsed = None
            if (
                isinstance(parsed, list)
                and parsed
                and all(isinstance(p, str) and p for p in parsed)
            ):
                # Twice the same directory is no partition in two directories.
                return tuple(dict.fromkeys(parsed))
            read.fault("paths", f"{text!r} is not a JSON list of directories")
    return ()


def _selection(read: GivenOptions) -> Selection:
    # Spark's source refuses several too, and has no default.
    chosen = read.named(names.SELECTIONS)
    if len(chosen) != 1:
        read.fault(
            ", ".join(names.SELECTIONS),
            f"give exactly one, which topics to read; there {_are(chosen)}",
        )
        return Topics(())
    text = read.text(chosen[0]) or ""
    match chosen[0]:
        case "subscribe":
            # As Spark's source: it trims them, drops empty ones, and reads each once.
            topics = tuple(dict.fromkeys(filter(None, map(str.strip, text.split(",")))))
            if not topics:
                read.fault("subscribe", f"{text!r} names no topic")
            return Topics(topics)
        case "subscribePattern":
            try:
                topic_regex(text)
            except TopicPatternError as error:
                read.fault(
                    "subscribePattern", f"{text!r} is not a regular expression of Java: {error}"
                )
            return Pattern(text)
        case _:
            return Partitions(tuple(_assigned(read)))


def _assigned(read: GivenOptions) -> list[TopicPartition]:
    example = '{"topic": [0, 1]}'
    faults_before = len(read.faults)
    found = []
    for topic, numbers in read.json_object("assign", example).items():
        if isinstance(numbers, list) and all(map(is_count, numbers)):
            # Once each, as a topic that is named twice is read once.
            found += [TopicPartition(topic, each) for each in sorted(set(numbers))]
        else:
            read.fault("assign", f"{topic!r} has no list of partition numbers like {example}")
    if not found and len(read.faults) == faults_before:
        read.fault("assign", "no partition is named")
    return found


def _ending(read: GivenOptions, *, is_stream: bool) -> Bound:
    if is_stream:
        # As in Spark's source. To ignore them would leave the user waiting for the end of the
        # query.
        for name in read.named(names.ENDINGS):
            read.fault(name, "a stream has no end; read a batch instead")
        return Bound(option="endingOffsets", everywhere=LATEST)
    return parse_bound(read, "ending", default=LATEST, refused=EARLIEST)


def _columns(read: GivenOptions) -> tuple[str, ...]:
    errors = tuple(
        error for column, error in names.ERRORS.items() if read.values[f"{column}Format"]
    )
    known = (*names.COLUMNS, *names.HEADERS, *names.METADATA, *errors)
    headers = names.HEADERS if read.values["includeHeaders"] else ()
    metadata = names.METADATA if read.values["includeMetadata"] else ()
    chosen = read.words("columns")
    for name in chosen:
        if name and name not in known:
            read.fault("columns", f"no column {name!r}; there are: {', '.join(known)}")
    # Named columns win over the options that add some: they say all that is wanted.
    return chosen or (*names.COLUMNS, *headers, *metadata, *errors)


def _decoding(read: GivenOptions) -> DecodingOptions:
    formats, files = {}, {"key": "keySchemaFile", "value": "schemaFile"}
    registry = _registry(read)
    for column, file_option in files.items():
        subject_option = f"{column}Subject"
        named = [name for name in (file_option, subject_option) if read.text(name)]
        name = str(read.values[f"{column}Format"])
        if not name:
            for each in named:
                read.fault(each, f"it needs {column}Format")
            continue
        form = FORMATS[name]
        if len(named) > 1:
            read.fault(", ".join(named), "give one of them")
        elif form.is_plain and file_option not in named:
            read.fault(f"{column}Format", f"{name} needs {file_option}: values name no schema")
        elif registry is None and file_option not in named:
            read.fault(f"{column}Format", f"{name} needs schemaRegistry or {file_option}")
        formats[column] = ColumnFormat(
            form=form,
            schema_file=read.text(file_option) or None,
            subject=read.text(subject_option) or None,
        )
    if not formats:
        for each in read.named(("schemaRegistry", "mode")):
            read.fault(each, "it needs valueFormat or keyFormat")
    is_strict = read.values["mode"] == "failfast"
    return DecodingOptions(formats=formats, registry=registry, is_strict=is_strict)


def _registry(read: GivenOptions) -> dict[str, str] | None:
    url = read.text("schemaRegistry")
    given = {
        setting: value
        for option, setting in REGISTRY_OPTIONS.items()
        if (value := read.text(option)) is not None
    }
    # Settings without the registry are a slip: the user believes that it is asked.
    if not url:
        for setting in given:
            read.fault(f"schemaRegistry.{setting}", "it needs schemaRegistry, the URL")
        return None
    found = {"schema.registry.url": url} | given
    try:
        parse_registry_config(found)
    except ConfigError as error:
        read.faults += [
            "schemaRegistry" + fault.removeprefix("schema.registry.url")
            if fault.startswith("schema.registry.url")
            else f"schemaRegistry.{fault}"
            for fault in error.faults
        ]
    return found


def _corruption_report(read: GivenOptions) -> str | None:
    report = read.corruption_report()
    if read.values["onCorruption"] == "skip" and read.values["kafka.bootstrap.servers"]:
        read.fault("onCorruption", "only files can be searched for what is sound after damage")
    return report


def _limits(read: GivenOptions) -> RateLimits:
    most, least = (
        read.number_or_none("maxOffsetsPerTrigger"),
        read.number_or_none("minOffsetsPerTrigger"),
    )
    # Such a stream would wait for a batch that is too large to be planned.
    if most is not None and least is not None and least > most:
        read.fault("minOffsetsPerTrigger", f"{least} is more than maxOffsetsPerTrigger, {most}")
    return RateLimits(
        offsets_max=most,
        offsets_min=least,
        bytes_max=read.number_or_none("maxBytesPerTrigger"),
        trigger_delay_ms=read.duration_ms("maxTriggerDelay"),
    )


def _are(named: list[str]) -> str:
    return f"are {', '.join(named)}" if named else "is none"


_EXAMPLE = '{"topic": {"0": 23, "1": 170}}'


def parse_bound(given: GivenOptions, side: str, *, default: Point, refused: Point | None) -> Bound:
    """One end, `starting` or `ending`.

    A timestamp for all goes before one by partition, and that before offsets. `refused` is the end
    of the log that makes no sense here, if there is one.
    """
    names = (f"{side}Timestamp", f"{side}OffsetsByTimestamp", f"{side}Offsets")
    named = given.named(names)
    if not named:
        # Faults are then about the option that most people use.
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
        # Spark refuses it too: a batch from the end of the log on would never have a row.
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
            # Python takes digits of all scripts for numbers.
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
