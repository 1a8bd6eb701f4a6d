"""`looked_up`: values of settings that are kept elsewhere, by Kafka's config providers (KIP-421).

    config.providers=file,env,dir
    config.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider
    config.providers.file.param.allowed.paths=/run/secrets
    config.providers.env.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider
    config.providers.dir.class=org.apache.kafka.common.config.provider.DirectoryConfigProvider

    ssl.keystore.password=${file:/run/secrets/broker.properties:keystore}   a line of that file
    ssl.key.password=${env:KEY_PASSWORD}                                    a variable
    ssl.truststore.password=${dir:/run/secrets:truststore}                  the file truststore

A value is looked up once, when the settings are read, and what it says is not looked up again. A
reference to a name that is no provider stays as it is, as in Kafka (`ConfigTransformer`). Beyond
Kafka, which takes a reference that leads to nothing for the value: that is a fault here, since it
would be a password that everybody knows.

After a crash: nothing is kept.
"""

import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from tailrace.config.settings import HIDDEN
from tailrace.config.sources import read_properties

PROVIDERS: Final = "config.providers"
_PREFIX: Final = f"{PROVIDERS}."

FILE_BYTES_MAX: Final = 1024 * 1024
"""Largest file that is looked into: a secret is some bytes, and a wrong path may lead to a log."""

_HIDDEN_CHARACTERS_MIN: Final = 4
"""Shortest value that is hidden in errors: one of a digit or two is in many of them."""
_SHOWN_CHARACTERS: Final = 40
"""Errors show the begin of a value (`Setting.shown`)."""

# `ConfigTransformer.DEFAULT_PATTERN` of Kafka.
_REFERENCE: Final = re.compile(r"\$\{([^}]*?):(?:([^}]*?):)?([^}]*?)\}")


class LookedUp(NamedTuple):
    """Settings without references."""

    texts: Mapping[str, str]
    """By name, without those of single providers."""
    values: Sequence[str]
    """The values that were looked up, which may be secrets."""

    def hidden(self, faults: Iterable[str]) -> list[str]:
        """Sentences without the values that were looked up."""
        found = list(faults)
        values = (each for each in self.values if len(each) >= _HIDDEN_CHARACTERS_MIN)
        for value in values:
            for shown in (value, repr(value)[1:-1], value[:_SHOWN_CHARACTERS]):
                found = [each.replace(shown, HIDDEN) for each in found]
        return found


def refers(text: str, providers: Collection[str]) -> bool:
    """Whether a value refers to one of these providers."""
    return any(each[1] in providers for each in _REFERENCE.finditer(text))


def referred_files(text: str, texts: Mapping[str, str]) -> list[str] | None:
    """The files in which what a value refers to is kept; None if it refers to nothing.

    `texts` are the settings, which may name the classes of the providers.
    """
    found: list[str] | None = None
    for provider, path, key in (each.groups() for each in _REFERENCE.finditer(text)):
        kind = texts.get(f"{_PREFIX}{provider}.class", "").strip()
        if path or kind:
            found = found or []
        if found is not None and path and kind != _ENVIRONMENT:
            found.append(f"{path}/{key}" if kind == _DIRECTORY else path)
    return found


class _Look(Protocol):
    """Looks a value up; raises a ValueError that says why it is not there."""

    def __call__(self, path: str, key: str) -> str: ...


def looked_up(
    texts: Mapping[str, str],
    *,
    faults: list[str],
    environment: Mapping[str, str] = os.environ,
) -> LookedUp:
    """Settings with the values that they refer to; what cannot be looked up goes to `faults`."""
    names = [each.strip() for each in texts.get(PROVIDERS, "").split(",") if each.strip()]
    found = {name: text for name, text in texts.items() if not name.startswith(_PREFIX)}
    if not names:
        return LookedUp(found, [])
    providers = {name: _provider(name, texts, environment, faults=faults) for name in names}
    values: list[str] = []
    for name, text in found.items():
        if name != PROVIDERS and "${" in text:
            replaced = partial(
                _value_of, providers=providers, name=name, values=values, faults=faults
            )
            found[name] = _REFERENCE.sub(replaced, text)
    return LookedUp(found, values)


def _value_of(
    reference: re.Match[str],
    *,
    providers: Mapping[str, _Look | None],
    name: str,
    values: list[str],
    faults: list[str],
) -> str:
    """The value that a reference in a setting leads to; the reference itself if to none."""
    provider, path, key = reference[1], reference[2] or "", reference[3]
    look = providers.get(provider)
    if look is not None:
        try:
            value = look(path, key)
        except ValueError as error:
            faults.append(f"{name}: {reference[0]} cannot be looked up: {error}")
        else:
            values.append(value.strip())
            return value
    return reference[0]


def _provider(
    name: str, texts: Mapping[str, str], environment: Mapping[str, str], *, faults: list[str]
) -> _Look | None:
    """A provider by its settings; None: it cannot be made, and a fault says why."""
    prefix = f"{_PREFIX}{name}."
    own = {each: text for each, text in texts.items() if each.startswith(prefix)}
    # Kafka takes a provider without class for none, and its references for values.
    kind = own.pop(f"{prefix}class", "").strip()
    limit = _LIMITS.get(kind)
    if limit is None:
        faults.append(
            f"{prefix}class: {kind!r} is no class that is known here, which are "
            f"{', '.join(_LIMITS)}"
        )
        return None
    given = own.pop(f"{prefix}param.{limit}", "").strip()
    # Kafka passes them over; a mistyped limit would allow everything.
    faults += [f"{each}: no such setting; did you mean {prefix}param.{limit}?" for each in own]
    if kind == _ENVIRONMENT:
        try:
            pattern = re.compile(given or ".*", re.DOTALL)
        except re.error as error:
            faults.append(f"{prefix}param.{limit}: {given!r} is no regular expression: {error}")
            return None
        return partial(_variable, environment=environment, pattern=pattern)
    allowed = [Path(os.path.normpath(each)) for each in given.split(",") if each]
    for each in allowed:
        if not each.is_absolute() or not each.exists():
            faults.append(f"{prefix}param.{limit}: {each} is no absolute path that exists")
    return partial(_in_file if kind == _FILE else _in_directory, allowed)


_CLASSES: Final = "org.apache.kafka.common.config.provider"
_FILE: Final = f"{_CLASSES}.FileConfigProvider"
_DIRECTORY: Final = f"{_CLASSES}.DirectoryConfigProvider"
_ENVIRONMENT: Final = f"{_CLASSES}.EnvVarConfigProvider"
_LIMITS: Final = {
    _FILE: "allowed.paths",
    _DIRECTORY: "allowed.paths",
    _ENVIRONMENT: "allowlist.pattern",
}
"""The classes of providers, and the parameter of each that limits what may be looked up."""


def _variable(
    path: str, key: str, *, environment: Mapping[str, str], pattern: re.Pattern[str]
) -> str:
    if path:
        raise ValueError("a variable has no path; write ${PROVIDER:NAME}")
    if pattern.fullmatch(key) is None:
        raise ValueError("allowlist.pattern does not allow this variable")
    if key not in environment:
        raise ValueError("there is no such variable; set it")
    return environment[key]


def _in_file(allowed: Sequence[Path], path: str, key: str) -> str:
    found = read_properties(_text(allowed, Path(path)))
    if key not in found:
        raise ValueError(f"the file has no line for {key!r}; add it")
    return found[key]


def _in_directory(allowed: Sequence[Path], path: str, key: str) -> str:
    # A key is the name of a file in the directory, and leads nowhere else.
    if not path or not key or "/" in key or key in {".", ".."}:
        raise ValueError("write ${PROVIDER:DIRECTORY:NAME} with the name of a file in it")
    return _text(allowed, Path(path) / key)


def _text(allowed: Sequence[Path], path: Path) -> str:
    # As in Kafka by the path that is written, without links being followed.
    normal = Path(os.path.normpath(path))
    if allowed and not any(normal.is_relative_to(each) for each in allowed):
        raise ValueError("allowed.paths does not allow this path")
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror}); check it") from error
    if len(data) > FILE_BYTES_MAX:
        raise ValueError(f"{path} has more than {FILE_BYTES_MAX} bytes; give another file")
    return data.decode(errors="replace")
