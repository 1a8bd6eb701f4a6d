"""Options that mean the same in every command: declared once."""

import os
from typing import Final

import click

BOOTSTRAP: Final = ("-b", "--bootstrap", "--bootstrap-server", "bootstrap")
"""Flags for the address of a cluster: kcat's, ours and Kafka's, and the argument that they give."""

data_directory = click.option(
    "--data",
    "directory",
    metavar="DIR",
    required=True,
    help="A data directory, or the folder of one partition.",
)
"""The directory that a command is about, as its argument `directory`."""


def split_directories(data: str) -> list[str]:
    """The directories of a `--data` that takes several: A,B."""
    return [each.strip() for each in data.split(",") if each.strip()]


def _split(_: click.Context, parameter: click.Parameter, value: str) -> list[str]:
    directories = [os.path.abspath(each) for each in split_directories(value)]
    if not directories:
        raise click.BadParameter("it names no directory", param=parameter)
    return directories


data_directories = click.option(
    "--data", "directories", required=True, callback=_split, metavar="DIR[,DIR]",
    help="All directories of log.dirs, in their order, and metadata.log.dir if it is none of them.",
)  # fmt: skip
"""The directories of one node that a command is about, as its argument `directories`."""
