"""Options that name features and releases, and the release of a level."""

from typing import Final

import click

from tailrace.cluster.metadata.features import metadata_level, metadata_release
from tailrace.cluster.metadata.image import METADATA_VERSION


def _levels(_: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> dict[str, int]:
    levels: dict[str, int] = {}
    for text in given:
        name, equals, level = (each.strip() for each in text.partition("="))
        # Levels are int16 in requests. Four digits fit in any case, and no feature comes near them.
        is_number = level.isascii() and level.isdigit() and len(level) < 5
        if not name or not equals or not is_number:
            raise click.BadParameter(
                f"{text!r} is not NAME=LEVEL, such as group.version=1", param=parameter
            )
        # kafka-features refuses it too: nobody can say which of the two was meant.
        if name in levels:
            raise click.BadParameter(f"{name} is given twice", param=parameter)
        levels[name] = int(level)
    return levels


def _release(_: click.Context, parameter: click.Parameter, given: str | None) -> int | None:
    try:
        return None if given is None else metadata_level(given)
    except ValueError as error:
        raise click.BadParameter(str(error), param=parameter) from error


FEATURE: Final = click.option(
    "--feature", "levels", multiple=True, callback=_levels, metavar="NAME=LEVEL",
    help="A feature and its level, such as group.version=1; repeatable.",
)  # fmt: skip
"""Levels by feature, as the argument `levels`."""

RELEASE: Final = click.option(
    "--release-version", "release", callback=_release, metavar="RELEASE",
    help="The feature levels of a Kafka release, such as 4.2 or 4.2-IV1; --feature overrides it.",
)  # fmt: skip
"""A level of metadata.version, or None, as the argument `release`."""


def release_name(feature: str, level: int) -> str | None:
    """The release of a level of `metadata.version`; None for other features and levels."""
    return metadata_release(level) if feature == METADATA_VERSION else None
