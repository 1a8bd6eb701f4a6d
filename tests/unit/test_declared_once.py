"""A new row of a table is all that a new codec, column or setting takes.

docs/ARCHITECTURE.md says which file has which table; each test here adds a row to one of them.
"""

import ast
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType

import click
import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyspark.sql.types import BinaryType, LongType

from tailrace.broker.config import OWN_SETTINGS, BrokerConfig
from tailrace.broker.wiring import load_handler
from tailrace.cli import SUBCOMMANDS, commands
from tailrace.client.config import CLIENT_SETTINGS, ClientConfig
from tailrace.client.producer.config import PRODUCER_SETTINGS, ProducerConfig
from tailrace.config import (
    Setting,
    describe_settings,
    field_values,
    parse_settings,
    setting,
    settings_of,
)
from tailrace.config.settings import settings_by_key, settings_together
from tailrace.errors import ConfigError
from tailrace.handlers import SHARED
from tailrace.protocol.apis import APIS, Api, ApiKey
from tailrace.reading.columns import arrow_schema, check_columns
from tailrace.records.codecs import Levels
from tailrace.records.columns import schema_of
from tailrace.records.schema import (
    Column,
    ColumnOrigin,
    ColumnType,
    DeclaredColumn,
    describe_columns,
    names_added_by,
)
from tailrace.spark.options.values import OPTIONS, SourceOptions
from tailrace.spark.source import COLUMNS, spark_types
from tailrace.storage.config import TOPIC_SETTINGS, LogConfig, level_setting
from tailrace.values import dataclass

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "tailrace"


def test_levels_of_a_codec_are_its_topic_setting_and_its_document() -> None:
    """The levels of a codec in `FRAMINGS` give its topic setting, the errors, and the document."""
    declared = level_setting("brotli", Levels(default=6, low=0, high=11))
    name = "compression.brotli.level"
    assert parse_settings([declared], {}) == {name: 6}
    assert parse_settings([declared], {name: "11"}) == {name: 11}
    with pytest.raises(
        ConfigError, match=r"compression.brotli.level: 12 is out of range \(0 to 11\)"
    ):
        parse_settings([declared], {name: "12"})
    assert f"| `{name}` | 6 | 0 to 11 | Level for brotli. |" in describe_settings([declared])


class WiderColumn(DeclaredColumn):
    """A table of columns that has one more."""

    KEY = Column.KEY.value, Column.KEY.type, Column.KEY.origin, Column.KEY.text
    SIZE = "size", ColumnType.INT64, ColumnOrigin.BATCH, "bytes of its batch", "includeMetadata"


def test_a_row_of_a_column_gives_its_schemas_its_option_and_its_document() -> None:
    """One row gives the type in Arrow and in Spark, the option that adds it, and the document."""
    assert schema_of(WiderColumn) == pa.schema([("key", pa.binary()), ("size", pa.int64())])
    assert spark_types(WiderColumn) == {"key": BinaryType(), "size": LongType()}
    assert names_added_by(None, WiderColumn) == ("key",)
    assert names_added_by("includeMetadata", WiderColumn) == ("size",)
    row = "| `size` | `int64` | bytes of its batch | `includeMetadata` |"
    assert row in describe_columns(WiderColumn)


def test_every_declared_column_is_read() -> None:
    """Reader and Spark source have each declared column, by its declared type."""
    assert arrow_schema([each.value for each in Column]) == schema_of(Column)
    assert spark_types(Column) == COLUMNS
    for column in Column:
        assert check_columns([column.value]) == (column.value,)


DAYS = ("monday", "sunday")


@dataclass(frozen=True, slots=True, kw_only=True)
class NapConfig:
    """A config with each kind of declaration."""

    nap_ms: int = setting("nap.ms", default=5, low=1, high=9, text="How long to sleep.")
    is_deep: bool = setting(
        "nap.kind",
        default="light",
        choices=("light", "deep"),
        convert=lambda text: text == "deep",
        text="How to sleep.",
    )
    naps: Mapping[str, int] = settings_by_key(
        {day: Setting(name=f"{day}.naps", default=1, text=f"Naps on {day}.") for day in DAYS}
    )
    place: str = settings_together(
        Setting(name="house", default="", text="Where."),
        Setting(name="tree", default="", text="Or under which tree."),
    )


def test_a_field_of_a_setting_gives_its_value_its_error_and_its_document() -> None:
    """One declaration gives the typed field with its default, the parser, errors, and document."""
    declared = settings_of(NapConfig)
    for texts, config in (
        ({}, NapConfig(place="x")),
        ({"nap.ms": " 7 "}, NapConfig(place="x", nap_ms=7)),
        ({"nap.kind": "deep"}, NapConfig(place="x", is_deep=True)),
    ):
        values = parse_settings(declared, texts)
        assert NapConfig(**field_values(NapConfig, values), place="x") == config
    with pytest.raises(ConfigError, match=r"nap.ms: 10 is out of range \(1 to 9\)"):
        parse_settings(declared, {"nap.ms": "10"})
    with pytest.raises(ConfigError, match=r"nap.m: no such setting; did you mean nap.ms\?"):
        parse_settings(declared, {"nap.m": "7"})
    document = describe_settings(declared)
    assert "| `nap.ms` | 5 | 1 to 9 | How long to sleep. |" in document
    assert "| `nap.kind` | light | light, deep | How to sleep. |" in document


def test_a_field_of_several_settings_declares_each() -> None:
    """Settings by key fill their field; settings together are parsed, and leave theirs out."""
    declared = settings_of(NapConfig)
    assert [each.name for each in declared[2:]] == ["monday.naps", "sunday.naps", "house", "tree"]
    values = parse_settings(declared, {"sunday.naps": "2", "tree": "oak"})
    assert field_values(NapConfig, values)["naps"] == {"monday": 1, "sunday": 2}
    assert "place" not in field_values(NapConfig, values)
    assert values["tree"] == "oak"


def test_fields_are_the_settings_of_broker_topic_client_and_source() -> None:
    """The table of each config class is what its fields declare."""
    assert settings_of(BrokerConfig) == OWN_SETTINGS
    assert settings_of(LogConfig) == TOPIC_SETTINGS
    assert settings_of(SourceOptions) == OPTIONS
    assert settings_of(ClientConfig) == CLIENT_SETTINGS
    assert settings_of(ProducerConfig) == PRODUCER_SETTINGS
    assert PRODUCER_SETTINGS[: len(CLIENT_SETTINGS)] == CLIENT_SETTINGS


@pytest.mark.parametrize(
    "config", [BrokerConfig, LogConfig, ClientConfig, ProducerConfig, SourceOptions]
)
def test_each_setting_is_declared_by_one_field(config: type) -> None:
    """No two fields of a config declare the same setting."""
    names = [each.name for each in settings_of(config)]
    assert len(names) == len(set(names))


def test_a_row_and_two_modules_are_an_api(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages are in the module of the API's name, its handler there or where `SHARED` says."""

    class ListGroupsRequest:
        flexible_since = 3

    class ListGroupsResponse:
        flexible_since = 3

    def handle_list_groups() -> None:
        """Answers nothing."""

    messages, handlers = ModuleType("messages"), ModuleType("handlers")
    vars(messages).update(vars_of(ListGroupsRequest, ListGroupsResponse))
    vars(handlers).update(vars_of(handle_list_groups))
    monkeypatch.setitem(sys.modules, "tailrace.protocol.messages.list_groups", messages)
    monkeypatch.setitem(sys.modules, f"tailrace.handlers.{SHARED['list_groups']}", handlers)
    api = Api(key=ApiKey.LIST_GROUPS, first_version=0, last_version=3)
    found: tuple[object, object] = (api.request, api.response)
    assert found == (ListGroupsRequest, ListGroupsResponse)
    assert load_handler(ApiKey.LIST_GROUPS) is handle_list_groups
    assert api.is_flexible(3)
    assert not api.is_flexible(2)


def vars_of(*defined: type | Callable[..., object]) -> dict[str, object]:
    """Classes and functions by name, as a module has them."""
    return {each.__name__: each for each in defined}


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.key.module)
def test_modules_of_an_api_are_where_the_document_says(api: Api) -> None:
    """Each API has its messages in `protocol/messages`, and its handler if it is served."""
    assert (SOURCE / "protocol" / "messages" / f"{api.key.module}.py").exists()
    name = SHARED.get(api.key.module, api.key.module)
    assert (SOURCE / "handlers" / f"{name}.py").exists() == (api.key in APIS)


def test_a_row_and_a_module_are_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row of `SUBCOMMANDS` and a module with a function of that name are a command."""

    @click.command()
    def pause() -> None:
        click.echo("paused")

    module = ModuleType("pause")
    vars(module)["pause"] = pause
    monkeypatch.setitem(SUBCOMMANDS, "pause", "Stop for a while.")
    monkeypatch.setitem(sys.modules, "tailrace.cli.pause", module)
    assert "Stop for a while." in CliRunner().invoke(commands, ["--help"]).output
    assert CliRunner().invoke(commands, ["pause"]).output == "paused\n"


def test_names_are_in_the_files_that_the_document_names() -> None:
    """Each table or class that docs/ARCHITECTURE.md says to add to is defined in that file."""
    text = (ROOT / "docs" / "ARCHITECTURE.md").read_text()
    section = text.partition("## To add an API")[2].partition("\n## ")[0]
    named = re.findall(r"^- `(src/[^`]+)`, `(\w+)`", section, re.MULTILINE)
    assert len(named) > 15
    for path, name in named:
        assert name in defined_in(ROOT / path), f"{path} does not define {name}"


def defined_in(path: Path) -> set[str]:
    """The names that a module defines at its top."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                found.add(name)
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                found.add(name)
            case _:
                pass
    return found
