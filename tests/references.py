"""The generated parts of the documentation: `make docs` writes them, test_docs compares them.

    docs/protocol.md          from the message tables
    docs/configuration.md     from the declared settings
    docs/metrics.md           from the table of metrics
    docs/public-names.md      from __all__ of the public modules
    docs/cli.md               from the command line itself
    docs/conformance.md       from tests/conformance/ and the docstrings of our tests
    docs/spark-parity.md      from tests/parity/, likewise
    docs/spark.md             options and columns between their marks; columns in docs/reading.md
    docs/schemas.md           the settings of a registry between their marks
    docs/performance.md       from the files of benchmarks/results/
    docs/ARCHITECTURE.md      the file map between its two marks, from the modules' docstrings
    README.md                 the table between its two marks, from benchmarks/results/
    broker/keywords.py        settings of brokers as keywords, from the declared settings
    client/keywords.py        those of clients

Not here: what those documents say besides; people write that.
"""

import ast
from collections.abc import Callable, Iterator, Mapping
from contextlib import chdir
from functools import partial
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import click
from click.testing import CliRunner

from tailrace.broker.changing import CHANGEABLE, FIXED
from tailrace.broker.config import BROKER_SETTINGS, OWN_SETTINGS, TOPIC_DEFAULT_SETTINGS
from tailrace.broker.listeners import LISTENER_SETTINGS
from tailrace.broker.monitoring.families import confluent_name, families
from tailrace.cli import commands
from tailrace.client.admin.config import ADMIN_SETTINGS
from tailrace.client.consumer.config import CONSUMER_SETTINGS
from tailrace.client.consumer.metrics import METRICS as CONSUMER_METRICS
from tailrace.client.foreign import describe_foreign
from tailrace.client.producer.config import PRODUCER_SETTINGS
from tailrace.client.producer.metrics import describe_metrics
from tailrace.config import describe_settings
from tailrace.config.foreign import describe_foreign_of_groups, describe_foreign_settings
from tailrace.coordinator.groups.settings import GROUP_CONFIGS
from tailrace.records.schema import describe_columns
from tailrace.schemas.config import REGISTRY_SETTINGS
from tailrace.security.authorizer_config import AUTHORIZER_SETTINGS
from tailrace.security.listener_config import LISTENER_TLS_SETTINGS
from tailrace.security.sasl_config import SASL_SETTINGS
from tailrace.spark.metadata.options import OPTIONS as METADATA_OPTIONS
from tailrace.spark.metadata.views import describe_views
from tailrace.spark.options.values import OPTIONS as SOURCE_OPTIONS
from tailrace.storage.config import TOPIC_SETTINGS
from tests import figures, scenarios
from tests.keyword_settings import broker_keywords, client_keywords
from tests.protocol_reference import describe as describe_protocol
from tests.public import public_page

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
SOURCE = ROOT / "src" / "tailrace"
FILE_MAP = ("<!-- file map: written by `make docs` -->", "<!-- end of file map -->")
OPTIONS = ("<!-- options: written by `make docs` -->", "<!-- end of options -->")
METADATA = ("<!-- metadata: written by `make docs` -->", "<!-- end of metadata -->")
COLUMNS = ("<!-- columns: written by `make docs` -->", "<!-- end of columns -->")
SETTINGS = ("<!-- settings: written by `make docs` -->", "<!-- end of settings -->")
FIGURES = ("<!-- figures: written by `make docs` -->", "<!-- end of figures -->")
_TOPIC_DEFAULTS = frozenset(each.name for each in TOPIC_DEFAULT_SETTINGS)
GENERATED = "<!-- Written by `make docs`; do not edit. -->\n\n"


def configuration() -> str:
    """docs/configuration.md."""
    return (
        "# Settings\n\n"
        + GENERATED
        + "Names are Kafka's. Unknown names and values out of range are refused, all of them at "
        "once.\n\n"
        "## Broker\n\nGiven in a properties file (`tailrace serve --config FILE`), one by one "
        '(`--override NAME=VALUE`), or as `Broker(data, settings={"num.partitions": 4})` or '
        "`Broker(data, num_partitions=4)`.\n\n"
        + "`tailrace serve --env` also takes `KAFKA_*` variables, by the rule of Apache Kafka's "
        "image ([decision 85](decisions/0085-variables-are-settings-when-asked-for.md)): "
        "`KAFKA_LOG_RETENTION_MS` is `log.retention.ms`. They go over the file.\n\n"
        "Secrets can be kept elsewhere ([config providers](#values-that-are-kept-elsewhere)).\n\n"
        "`tailrace config validate` says all that is wrong with a file at once, with exit code 1, "
        "and what it means here and in Apache Kafka:\n\n"
        + _validated()
        + describe_settings((*OWN_SETTINGS, *LISTENER_SETTINGS))
        + "\n`listener.name.<name>.max.connections`, with the name in lower case, limits the "
        "connections of one listener.\n"
        + _PROVIDERS
        + "\n## Encrypted listeners\n\nOf listeners with the protocol SSL, and of the node's own "
        "connections to them; see [security](security.md#tls). `listener.name.<name>.` before the "
        "name of a setting, with the listener's name in lower case, makes it that of one "
        "listener.\n\n"
        + describe_settings(LISTENER_TLS_SETTINGS)
        + "\n## Logins\n\nOf listeners with the protocol SASL_PLAINTEXT or SASL_SSL, likewise; "
        "with `listener.name.<name>.<mechanism>.` before it, a setting is that of one mechanism of "
        "a listener, as `sasl.jaas.config` always is. See [security](security.md#sasl).\n\n"
        + describe_settings(SASL_SETTINGS)
        + "\n## Access\n\nSee [security](security.md#acls).\n\n"
        + describe_settings(AUTHORIZER_SETTINGS)
        + "\n## Coordinators and the metadata log\n\nSettings of the broker too.\n\n"
        + describe_settings(
            each
            for each in BROKER_SETTINGS
            if each not in (*OWN_SETTINGS, *LISTENER_SETTINGS, *TOPIC_DEFAULT_SETTINGS)
            and each not in (*LISTENER_TLS_SETTINGS, *SASL_SETTINGS, *AUTHORIZER_SETTINGS)
        )
        + "\n## Changes while the broker runs\n\n`kafka-configs --entity-type brokers --alter` "
        "and IncrementalAlterConfigs change these for one broker (`--entity-name`) or for all "
        "(`--entity-default`), at once: those of one go over those of all, and both over what the "
        "broker was started with. They are kept with the cluster's state. DescribeConfigs shows "
        "where each value is from; all other settings are read only there.\n\n"
        + "".join(f"- `{name}`\n" for name in sorted(CHANGEABLE - _TOPIC_DEFAULTS))
        + "- `listener.name.<name>.` before any setting of listeners\n"
        "- all defaults for topics, below\n\n"
        "`listeners` and `listener.security.protocol.map` of one broker add and remove listeners, "
        "with their own settings in the same request or in one before. The rules are those of "
        "Kafka 4.3: `advertised.listeners` changes by a restart only, so a listener can be removed "
        "if that setting is given and does not name it; its connections end. A listener that is "
        "open keeps its address, its protocol and its settings, but for the limits of its "
        "connections, `ssl.keystore.*`, `ssl.truststore.*` and `ssl.key.password`: another value "
        "of its own is refused, and settings `ssl.*` and `sasl.*` without a prefix count for "
        "listeners that are added. Unlike in Kafka a port that is taken is refused, and a new "
        "listener that is advertised is known to the cluster at once, not from the next start "
        "on.\n\n"
        "Kafka changes some more, which are refused here as those that it does not change: "
        + "; ".join(f"`{name}`, because {why}" for name, why in FIXED.items())
        + "; and those that have no effect here, such as `num.io.threads`.\n"
        "\n`leader.replication.throttled.rate` and `follower.replication.throttled.rate` can only "
        "be set in this way (KIP-73): bytes in a second of the replicas that the topic settings "
        "`leader.replication.throttled.replicas` and `follower.replication.throttled.replicas` "
        "name. Where eligible leader replicas are kept, `min.insync.replicas` is a setting of all "
        "brokers (KIP-966).\n\n"
        "Levels of loggers are changed with `--entity-type broker-loggers` until the broker stops. "
        "Subscriptions to metrics of clients (`kafka-client-metrics`) are kept; no client is asked "
        "for its metrics.\n"
        + "\n## Topics\n\nGiven in CreateTopics, changed by IncrementalAlterConfigs while the "
        "broker runs; kept with the topic.\n\n"
        + describe_settings(TOPIC_SETTINGS)
        + "\n## Groups\n\nOf single consumer groups, set and changed by IncrementalAlterConfigs "
        "while the broker runs (resource type GROUP), and kept with the cluster's state. They have "
        "to lie between the limits `group.consumer.min.*` and `group.consumer.max.*` of the "
        "broker.\n\n"
        + describe_settings(GROUP_CONFIGS)
        + "\nOther settings of Apache Kafka's groups are refused:\n\n"
        + describe_foreign_of_groups()
        + "\n## Defaults for topics\n\nBroker settings that a topic without its own value gets.\n\n"
        + describe_settings(TOPIC_DEFAULT_SETTINGS)
        + "\n## Settings of Apache Kafka without effect\n\nA `server.properties` may have them: "
        "the broker starts, and one line of its log has their names. So it is with "
        "`listener.name.<name>.` before a name of this page that single listeners do not have. "
        "Names that neither Kafka nor this page has are refused.\n\n"
        + describe_foreign_settings()
        + '\n## Producer\n\nGiven as `Producer({"linger.ms": 20})` or `Producer(linger_ms=20)`, or '
        "both: names with dots and with underscores may be mixed, and a setting that is given "
        "twice with different values is refused. `AsyncProducer` has the same. "
        "[Security](security.md) has the lines for each way to log in. `acks`, `retries` or "
        "`max.in.flight.requests.per.connection` that rule idempotence out turn it off with a "
        "warning, unless `enable.idempotence` was asked for: then they are refused.\n\n"
        + describe_settings(PRODUCER_SETTINGS)
        + '\n## Consumer\n\nGiven as `Consumer({"group.id": "billing"})` or '
        '`Consumer(group_id="billing")`; `AsyncConsumer` has the same. Deserializers are '
        "arguments: `key_deserializer`, `value_deserializer`.\n\n"
        + describe_settings(CONSUMER_SETTINGS)
        + '\n## Admin\n\nGiven as `Admin({"retries": 5})` or `Admin(retries=5)`; `AsyncAdmin` has '
        "the same. `client.id` is `adminclient-N` if empty. If only one of "
        "`default.api.timeout.ms` and `request.timeout.ms` is given, the other keeps to it.\n\n"
        + describe_settings(ADMIN_SETTINGS)
        + "\n## Settings of other clients\n\nNames of Java's clients, of librdkafka "
        "(confluent-kafka), aiokafka and kafka-python that are none here: they are refused, and "
        "the error has the text of this table.\n\n" + describe_foreign()
    )


_PROVIDERS = """
## Values that are kept elsewhere

Kafka's config providers, for a `server.properties` and for the file of `--command-config`:

```properties
config.providers=file,env,dir
config.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider
config.providers.file.param.allowed.paths=/run/secrets
config.providers.env.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider
config.providers.env.param.allowlist.pattern=BROKER_.*
config.providers.dir.class=org.apache.kafka.common.config.provider.DirectoryConfigProvider
ssl.keystore.password=${file:/run/secrets/broker.properties:keystore}
ssl.key.password=${env:BROKER_KEY_PASSWORD}
ssl.truststore.password=${dir:/run/secrets:truststore}
```

The first is a line of that file, the second a variable, the third the file
`/run/secrets/truststore`. Values are looked up once, when the settings are read; a changed file
counts from the next start on. Errors do not show them, and `tailrace config validate` shows the
references. Other classes are refused. So is what leads to nothing: a missing file, line or
variable, where Kafka takes the reference itself for the value.
"""


VALIDATED = """\
process.roles=broker,controller
node.id=7
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
controller.listener.names=CONTROLLER
log.dirs=/var/lib/tailrace
num.network.threads=3
log.retention.hours=24
max.connections=1000
"""
"""The file of settings in the example of docs/configuration.md."""


def _validated() -> str:
    """The example of `tailrace config validate`: a file of settings, and one with a mistake."""
    sound = _console(VALIDATED)
    faulty = _console(VALIDATED.replace("max.connections=1000", "max.connection=x"))
    return (
        f"```properties\n{VALIDATED}```\n\n{sound}\n"
        f"With `max.connection=x` on the last line:\n\n{faulty}\n"
    )


def _console(text: str) -> str:
    command = ["config", "validate", "server.properties"]
    with TemporaryDirectory() as directory, chdir(directory):
        Path("server.properties").write_text(text)
        shown = CliRunner().invoke(commands, command).output
    return f"```console\n$ tailrace {' '.join(command)}\n{shown}```\n"


def metrics() -> str:
    """docs/metrics.md."""
    return (
        "# Metrics\n\n"
        + GENERATED
        + "## Producer\n\nWhat `Producer.metrics()` and `AsyncProducer.metrics()` return: numbers "
        "by Kafka's names. Totals, averages and maxima are over the producer's whole life; take "
        "differences of totals for rates. Those of a topic are `NAME{topic=TOPIC}`: there are none "
        "of a topic that does not exist, and they start from 0 after it was not used for "
        "`metadata.max.idle.ms`.\n\n"
        + describe_metrics()
        + "\n## Consumer\n\nWhat `Consumer.metrics()` and `AsyncConsumer.metrics()` return: "
        "numbers by Kafka's names, over the consumer's whole life.\n\n"
        "| metric | unit | what it is |\n|---|---|---|\n"
        + "".join(
            f"| `{name}` | {unit} | {text} |\n" for name, (unit, text) in CONSUMER_METRICS.items()
        )
        + "\n## Broker and controller\n\nWhat `/metrics` of `tailrace.http.listener` tells "
        "([monitoring](monitoring.md)). Some have a second name, by Confluent's rules. A summary "
        "has quantiles in milliseconds and a count (`NAME_count`). `?`: also without labels, "
        "for all together.\n\n| metric | kind | labels | what it is |\n|---|---|---|---|\n"
        + "".join(
            f"| `{name}`{_other_name(name)} | {each.kind} "
            f"| {', '.join(f'`{label}`' for label in each.labels)}{'?' * each.is_totalled} "
            f"| {each.text} |\n"
            for name, each in families().items()
        )
        + "\n## Statistics\n\nWhat `statistics()` of an object returns: a frozen value, of the "
        "moment in which it is called.\n\n| object | value | what it is |\n|---|---|---|\n"
        + "".join(sorted(statistics()))
        + "\nWhat these values have:\n\n| value | field | type | what it is |\n|---|---|---|---|\n"
        + "".join(
            f"| `{value}` | `{figure}` | `{kind}` | {said} |\n"
            for value, figure, kind, said in sorted(figures_of_statistics(), key=lambda row: row[0])
        )
    )


def _other_name(name: str) -> str:
    other = confluent_name(name)
    return "" if other is None else f", `{other}`"


def figures_of_statistics() -> Iterator[tuple[str, str, str, str]]:
    """The fields of each value that `statistics` returns: value, field, type, docstring."""
    for _, owner in _classes():
        if not owner.name.endswith("Statistics"):
            continue
        for field, after in pairwise([*owner.body, ast.Pass()]):
            if isinstance(field, ast.AnnAssign):
                match after:
                    case ast.Expr(ast.Constant(str(text))):
                        said = " ".join(text.split())
                    case _:
                        said = ""
                kind = ast.unparse(field.annotation)
                yield owner.name, ast.unparse(field.target), kind.replace("|", "\\|"), said


def _classes() -> Iterator[tuple[Path, ast.ClassDef]]:
    for path in sorted(SOURCE.rglob("*.py")):
        for each in ast.walk(ast.parse(path.read_text())):
            if isinstance(each, ast.ClassDef):
                yield path, each


def statistics() -> Iterator[str]:
    """A row for each class with a method `statistics`."""
    for path, owner in _classes():
        for method in owner.body:
            if isinstance(method, ast.FunctionDef) and method.name == "statistics":
                assert method.returns is not None
                value = ast.unparse(method.returns).strip("'")
                said = (ast.get_docstring(method) or "").splitlines()[0]
                where = path.relative_to(SOURCE)
                yield f"| `{owner.name}` in `{where}` | `{value}` | {said} |\n"


def cli() -> str:
    """docs/cli.md."""
    return (
        "# The `tailrace` command\n\n"
        + GENERATED
        + "[cluster-commands.md](cluster-commands.md) has the JSON and the exit codes.\n\n"
        + "\n".join(_helps())
    )


def _helps() -> Iterator[str]:
    context = click.Context(
        commands, info_name="tailrace", max_content_width=100, **commands.context_settings
    )
    yield f"```text\n{commands.get_help(context)}\n```\n"
    yield from _helps_of(commands, context)


def _helps_of(group: click.Group, context: click.Context) -> Iterator[str]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        inner = click.Context(command, info_name=name, parent=context, max_content_width=100)
        yield f"## {inner.command_path}\n\n```text\n{command.get_help(inner)}\n```\n"
        if isinstance(command, click.Group):
            yield from _helps_of(command, inner)


def conformance() -> str:
    """docs/conformance.md."""
    return (
        "# Apache Kafka's own tests, and ours\n\n"
        + GENERATED
        + "Every scenario that Apache Kafka's own tests of its log, of its producer, of partitions "
        "and of the coordinators of groups and transactions check, by the name of the upstream "
        "test method, and the test of ours that claims the same. Scenarios of share groups and "
        "streams groups are left out; those of coordinators and partitions are Kafka 4.3.1's. "
        "`never` says why a scenario has no counterpart here, `not yet` what it waits for. "
        "`make docs` writes this page from "
        "`tests/conformance`; `tests/test_conformance.py` checks that every test named "
        "exists.\n\n" + "\n".join(scenarios.document(scenarios.CONFORMANCE)) + "\n"
    )


def parity() -> str:
    """docs/spark-parity.md."""
    return (
        "# The tests of Spark's Kafka connector, and ours\n\n"
        + GENERATED
        + "What the suites of Spark's own Kafka source and sink check, in words, and the test of "
        "ours that claims the same; docs/spark.md compares the features. `never` says why a "
        "scenario has no counterpart here. `make docs` writes this page from `tests/parity`; "
        "`tests/test_conformance.py` checks that every test named exists.\n\n"
        + "\n".join(scenarios.document(scenarios.PARITY))
        + "\n"
    )


def file_map() -> str:
    """One line for each module: its path and the first sentence of its docstring."""
    lines = ["| file | what it is |", "|---|---|"]
    for path in sorted(SOURCE.rglob("*.py")):
        docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
        first = docstring.split("\n\n")[0].replace("\n", " ")
        lines.append(f"| `{path.relative_to(SOURCE)}` | {first} |")
    return "\n".join(lines)


def performance() -> str:
    """docs/performance.md."""
    return (
        "# Performance\n\n"
        + GENERATED
        + "Medians of the rounds of one run on one machine, in which Tailrace and its peer took "
        "turns. Compare ratios, not seconds: the machine is shared and its days differ. The ratio "
        "is ours over the peer's, the median of the rounds' own ratios; for rates more is better, "
        "for everything else less is. Bold: the aim was missed. Figures whose names begin with "
        f"`{figures.FIRST.strip()}` are of new processes with an empty home, and count from the "
        "first record or from the start of the process; all others of clients and of brokers "
        "are warm unless they say so.\n\n" + figures.every()
    )


def architecture() -> str:
    """docs/ARCHITECTURE.md as it stands, with the file map of today."""
    return _between((DOCS / "ARCHITECTURE.md").read_text(), FILE_MAP, file_map())


def readme() -> str:
    """README.md as it stands, with the figures of the newest runs."""
    return _between((ROOT / "README.md").read_text(), FIGURES, figures.chosen())


def with_columns(name: str) -> str:
    """A document as it stands, with the declared columns."""
    return _between((DOCS / name).read_text(), COLUMNS, describe_columns())


def _between(text: str, marks: tuple[str, str], content: str) -> str:
    """The text with other content between its two marks."""
    begin, end = marks
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n{content}\n{end}{after}"


def spark_page() -> str:
    """docs/spark.md with its tables of columns, options and views."""
    options = describe_settings(SOURCE_OPTIONS, "option").rstrip()
    metadata = f"{describe_settings(METADATA_OPTIONS, 'option')}\n{describe_views()}"
    return _between(_between(with_columns("spark.md"), OPTIONS, options), METADATA, metadata)


def schemas_page() -> str:
    """docs/schemas.md with its table of settings."""
    settings = describe_settings(REGISTRY_SETTINGS).rstrip()
    return _between((DOCS / "schemas.md").read_text(), SETTINGS, settings)


REFERENCES: Final[Mapping[Path, Callable[[], str]]] = {
    DOCS / "protocol.md": describe_protocol,
    DOCS / "configuration.md": configuration,
    DOCS / "metrics.md": metrics,
    DOCS / "public-names.md": public_page,
    DOCS / "cli.md": cli,
    DOCS / "conformance.md": conformance,
    DOCS / "spark-parity.md": parity,
    DOCS / "spark.md": spark_page,
    DOCS / "reading.md": partial(with_columns, "reading.md"),
    DOCS / "schemas.md": schemas_page,
    DOCS / "performance.md": performance,
    DOCS / "ARCHITECTURE.md": architecture,
    SOURCE / "broker" / "keywords.py": broker_keywords,
    SOURCE / "client" / "keywords.py": client_keywords,
    ROOT / "README.md": readme,
}
"""Each generated document and what makes the text that it has to hold."""


if __name__ == "__main__":
    for document, describe in REFERENCES.items():
        document.write_text(describe())
