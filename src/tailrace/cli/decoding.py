"""Options for the formats of keys and values, shared by the commands that print or export records.

Needs the extra `tailrace[schemas]` when a format is given; nothing of it is imported before.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import click

from tailrace.errors import ConfigError

if TYPE_CHECKING:
    from tailrace.schemas.formats import Decoding
    from tailrace.schemas.shown import ShownDecoder

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])

FORMATS: Final = ("avro", "json", "protobuf", "plain-avro", "plain-json", "plain-protobuf")
"""The formats of `tailrace.schemas.formats`, whose import other commands need not pay for."""

_GIVEN: Final = "tailrace.decoding"
"""Key of the options in Click's context."""

_URL: Final = "schema.registry.url"
_FLAGS: Final = {"key": ("--key-format", "--key-schema"), "value": ("--value-format", "--schema")}


# As for damage: a script must not take the output for complete.
EXIT_UNDECODED: Final = 1


def undecoded_sentence(count: int) -> str:
    """Tell how many keys and values could not be decoded."""
    noun = "1 key or value" if count == 1 else f"{count} keys and values"
    return f"not decoded: {noun}; keyError and valueError of JSON output say why"


class DecodingChoice(NamedTuple):
    """The decodings of keys and values; None: they are left as they are."""

    key: "Decoding | None"
    value: "Decoding | None"

    @property
    def needs_registry(self) -> bool:
        """Whether the types of a column are to be asked for."""
        return any(each is not None and each.schema is None for each in self)

    def decoder(self) -> "ShownDecoder":
        """A decoder of records to be printed.

        Raises:
            ConfigError, SchemaError, MissingExtraError: as `Decoding.deserializer`.
        """
        from tailrace.schemas.shown import ShownDecoder

        with _in_flags():
            return ShownDecoder(
                key=None if self.key is None else self.key.deserializer(),
                value=None if self.value is None else self.value.deserializer(),
            )

    def with_latest(self, topic: str) -> "dict[str, Decoding | None]":
        """Both with a schema: where none was given, the latest of the topic's subject.

        Raises:
            SchemaError, RegistryRefusedError, RegistryUnavailableError: as
                `tailrace.schemas.formats.with_latest`.
        """
        from tailrace.schemas.formats import with_latest

        # The names that TopicNameStrategy of Confluent's serializers gives to subjects.
        return {
            name: each and with_latest(each, f"{topic}-{name}")
            for name, each in self._asdict().items()
        }


def decoded(command: FunctionT) -> FunctionT:
    """Adds the options of formats; the command gets what they say from `chosen_decoding`."""
    for option in (
        _option(
            "--key-schema", metavar="FILE",
            help="File with the schema of keys: .avsc, .json or .proto.",
        ),
        _option(
            "--schema", metavar="FILE",
            help="File with the schema of values: .avsc, .json or .proto. FILE.proto:MESSAGE "
            "chooses a message type; the first is the default.",
        ),
        _option(
            "--registry-config", metavar="FILE",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="A properties file with settings of the schema registry, such as its password.",
        ),
        _option(
            "--schema-registry", metavar="URL",
            help="URL of the schema registry, or several, separated by commas.",
        ),
        _option(
            "--value-format", type=click.Choice(FORMATS),
            help="Decode values. avro, json, protobuf: the schema id is in front of the data, as "
            "the registry's serializers write it. plain-...: no schema id, so --schema is "
            "required.",
        ),
        _option(
            "--key-format", type=click.Choice(FORMATS),
            help="Decode keys, as --value-format does values; plain-... requires --key-schema.",
        ),
    ):  # fmt: skip
        command = option(command)
    return command


def chosen_decoding() -> DecodingChoice | None:
    """The decodings that the options of the running command choose; None without a format.

    Raises:
        click.UsageError: an option lacks another one, or a schema file cannot be used.
        MissingExtraError: packages of the extra are not installed.
    """
    given: dict[str, Any] = click.get_current_context().meta[_GIVEN]
    if given["key_format"] is None and given["value_format"] is None:
        for name in ("schema_registry", "registry_config", "key_schema", "schema"):
            if given[name] is not None:
                flag = f"--{name.replace('_', '-')}"
                raise click.UsageError(f"{flag} needs --value-format or --key-format")
        return None
    # Only here: what reads files without a cluster needs none of it.
    from tailrace.cli.on_cluster import client_settings

    # The flag for the URL goes over the file, as --option goes over --command-config.
    config: Path | None = given["registry_config"]
    settings = {} if config is None else client_settings(config)
    if given["schema_registry"] is not None:
        settings[_URL] = given["schema_registry"]
    return DecodingChoice(
        key=_planned("key", given["key_format"], settings, schema_file=given["key_schema"]),
        value=_planned("value", given["value_format"], settings, schema_file=given["schema"]),
    )


def _option(flag: str, **attributes: Any) -> Callable[[FunctionT], FunctionT]:  # noqa: ANN401
    """An option that is no argument of the command, of which there would be too many."""

    def remember(context: click.Context, parameter: click.Parameter, value: object) -> None:
        # Click shares `meta` between the contexts of one call, so that the command finds it again.
        context.meta.setdefault(_GIVEN, {})[parameter.name] = value

    return click.option(flag, expose_value=False, callback=remember, **attributes)


def _planned(
    part: str, form: str | None, settings: Mapping[str, str], *, schema_file: str | None
) -> "Decoding | None":
    """The decoding of keys or values."""
    format_flag, schema_flag = _FLAGS[part]
    if form is None:
        if schema_file is not None:
            raise click.UsageError(f"{schema_flag} needs {format_flag}")
        return None
    from tailrace.schemas.codecs import check_packages
    from tailrace.schemas.errors import SchemaError
    from tailrace.schemas.formats import FORMATS as BY_NAME
    from tailrace.schemas.formats import plan_decoding

    # First, so that a missing package is reported before the schema file is read.
    check_packages(BY_NAME[form].type)
    try:
        return plan_decoding(BY_NAME[form], registry=settings or None, schema_file=schema_file)
    except SchemaError as error:
        raise click.UsageError(f"{schema_flag}: {error}") from error


@contextmanager
def _in_flags() -> Iterator[None]:
    """Make errors about settings of the registry name the flag that gives the URL."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(
            [each.replace(_URL, "--schema-registry", 1) for each in error.faults]
        ) from error
