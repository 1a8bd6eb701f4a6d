"""Expressions of `subscribePattern`: the topics that Spark's connector selects, and ours.

    the table of our tests    each expression in a batch and a stream of the connector and of ours,
                              over the network and from Kafka's files
    many others, by chance    what `java.util.regex` finds in the same names, unless we refuse it

Spark and its connector are those of the benchmarks.
"""

import json
import os
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from confluent_kafka import Producer
from pyspark.sql import SparkSession

from compat.artifacts import KAFKA, class_path, connector_jars
from compat.clients import WAIT_SECONDS
from compat.kafka import Kafka, run_java
from compat.processes import bound_to_us, run
from compat.report import Report
from compat.topics import create_topics
from tailrace.spark import session
from tailrace.spark.java import find_java
from tailrace.spark.options.topic_pattern import TopicPatternError, topic_regex
from tests.unit.spark.test_topic_pattern import SELECTED, TOPICS

EXPRESSIONS_BY_CHANCE = 40_000
SPARK_SECONDS_MAX = 900
_PROGRAM = Path(__file__).with_name("Patterns.java")

_PARTS = (
    "a", "b", "x", "A", "Z", "1", ".", r"\.", "-", "_", "*", "+", "?", "*?", "++", "{2}", "{0,}",
    "{,2}", "{", "}", "]", "|", "(", "(?:", "(?i)", "(?i:", "(?-i)", "(?<n>", "(?=", "(?!", "(?<=",
    "(?>", "(?s)", "(?x)", "(?u)", ")", ")", ")", "[", "[^", "&&", "[a-c", "-z", r"\d", r"\w",
    r"\W", r"\S", r"\p{Lower}", r"\p{Alpha}", r"\P{L}", r"\pL", r"\Q", r"\E", r"\b", r"\B", r"\A",
    r"\z", r"\Z", r"\1", r"\2", r"\t", r"\h", r"\R", r"\x41", r"\-", r"\[", "^", "$", "&", "é", " ",
    "[a-z&&[^b]]", "[^a-z&&[b]]", "[a[bc]]", r"[\w&&[^\d]]", "(a|b)", "[a-c&&[b-x]]",
)  # fmt: skip
_MEMBERS = (
    "a", "b", "a-c", "x-z", "A-Z", "0-9", "[ab]", "[^ab]", "&&", "&&[b-d]", "&&[^b]", r"\d", r"\W",
    "-", "&", "_", r"\p{Upper}", r"\-", "^", "[a-c&&[b-x]]", ".", "--", r"a-\d", r"\w-z", "[-a]",
)  # fmt: skip


def check(report: Report, kafka: Kafka, java: Path, class_path: str, directory: Path) -> None:
    """Select topics by the table, and compare many expressions with Java."""
    with kafka:
        servers = kafka.bootstrap_servers
        create_topics(servers, {topic: {} for topic in TOPICS})
        producer = Producer({"bootstrap.servers": servers, "log_level": 0})
        for topic in TOPICS:
            producer.produce(topic, topic.encode())
        assert not producer.flush(WAIT_SECONDS)
        found = _found_by_spark(servers, kafka.logs)
    for place, by_kind in found.items():
        for kind, topics in by_kind.items():
            report.check(
                f"{place} selects topics by expressions as our tests expect, in a {kind}",
                [
                    f"{each!r}: {topics[each]} instead of {expected}"
                    for each, expected in SELECTED.items()
                    if tuple(topics[each]) != expected
                ],
            )
    _check_many(report, java, class_path, directory)


def _found_by_spark(servers: str, logs: Path) -> dict[str, dict[str, dict[str, list[str]]]]:
    """The topics by place, kind of query, and expression.

    In a process of its own: a JVM takes the jars of the connector only when it starts.
    """
    command = bound_to_us([sys.executable, "-m", "compat.topic_patterns", servers, str(logs)])
    printed = run(command, name="Spark with its connector", seconds_max=SPARK_SECONDS_MAX)
    (line,) = (each for each in printed.splitlines() if each.startswith("{"))
    found: dict[str, dict[str, dict[str, list[str]]]] = json.loads(line)
    return found


def _select_all(servers: str, logs: str) -> dict[str, dict[str, dict[str, tuple[str, ...]]]]:
    settings = {
        "spark.jars": ",".join(connector_jars(os.environ)),
        "spark.driver.memory": "512m",
    }
    spark = session(name="compat", master="local[2]", settings=settings)
    try:
        return {
            name: {
                kind: {
                    each: _selected(spark, {**place, "subscribePattern": each}, kind == "stream")
                    for each in SELECTED
                }
                for kind in ("batch", "stream")
            }
            for name, place in {
                "the connector": {"format": "kafka", "kafka.bootstrap.servers": servers},
                "our source, by servers": {
                    "format": "tailrace", "kafka.bootstrap.servers": servers,
                },
                "our source, by path": {"format": "tailrace", "path": logs},
            }.items()
        }  # fmt: skip
    finally:
        spark.stop()


def _selected(
    spark: SparkSession,
    options: Mapping[str, str],
    is_stream: bool,  # noqa: FBT001 - of a private function
) -> tuple[str, ...]:
    given = dict(options)
    source = given.pop("format")
    if not is_stream:
        rows = spark.read.options(**given).format(source).load().collect()
        return tuple(sorted({row.topic for row in rows}))
    stream = spark.readStream.options(**given).option("startingOffsets", "earliest")
    query = (
        stream.format(source)
        .load()
        .writeStream.format("memory")
        .queryName("selected")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return tuple(sorted({row.topic for row in spark.table("selected").collect()}))


def _check_many(report: Report, java: Path, class_path: str, directory: Path) -> None:
    chance = random.Random(41)  # noqa: S311 - the same in every run
    names = [
        "".join(chance.choices("abcdeABxyz01._-", k=chance.randrange(1, 7))) for _ in range(150)
    ]
    expressions = list(_by_chance(chance))
    files = {"expressions": expressions, "names": names}
    for file, lines in files.items():
        (directory / file).write_text("".join(f"{line}\n" for line in lines))
    arguments = [str(_PROGRAM), *(str(directory / file) for file in files)]
    found = run_java(java, class_path, arguments).splitlines()
    ours = [_found_by_us(each, names) for each in expressions]
    refused = sum(
        mine is None and theirs != "none" for mine, theirs in zip(ours, found, strict=True)
    )
    report.check(
        f"{len(expressions)} expressions find what Java finds, where they are not refused",
        [
            f"{expression!r}: {mine} instead of {theirs}"
            for expression, theirs, mine in zip(expressions, found, ours, strict=True)
            if mine not in {None, theirs}
        ],
        explained=f"{found.count('none')} are refused by both, and {refused} by us alone",
    )


def _by_chance(chance: random.Random) -> Iterator[str]:
    for number in range(EXPRESSIONS_BY_CHANCE):
        if number % 3:
            yield "".join(chance.choices(_PARTS, k=chance.randrange(1, 8)))
        else:
            members = "".join(chance.choices(_MEMBERS, k=chance.randrange(1, 5)))
            start, end = chance.choice(("[", "[^", "(?i)[", "x[")), chance.choice(("]", "]+", "]$"))
            yield start + members + end


def _found_by_us(expression: str, names: Sequence[str]) -> str | None:
    try:
        found = topic_regex(expression)
    except TopicPatternError:
        return None
    return "".join("1" if found(name) else "0" for name in names)


def main() -> None:
    """Run this check alone: `python -m compat.topic_patterns`; or print what Spark selects."""
    if len(sys.argv) > 1:
        print(json.dumps(_select_all(*sys.argv[1:])))
        return
    java, jars = find_java(os.environ).home / "bin" / "java", class_path(KAFKA, os.environ)
    report = Report(say=print)
    with TemporaryDirectory(prefix="tailrace-compat-", dir="/var/tmp") as scratch:
        directory = Path(scratch)
        check(report, Kafka(java, jars, directory / "kafka"), java, jars, directory)


if __name__ == "__main__":
    main()
