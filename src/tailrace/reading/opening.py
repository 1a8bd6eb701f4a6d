"""`open_directory`: from a path or a URI to a file system and a path in it."""

import os
from typing import NamedTuple

from tailrace.errors import ConfigError, DirectoryError
from tailrace.runtime.files import DiskFiles, Files


class NamedDirectory(NamedTuple):
    """A directory as somebody named it, and the file system that it is in."""

    files: Files
    path: str
    given: str
    """As it was written."""


def open_directory(given: str) -> NamedDirectory:
    """The directory that a path or a URI names; nothing is read yet.

    Raises:
        ConfigError: there is no file system for the URI.
        DirectoryError: its file system cannot be opened.
    """
    if "://" not in given and not given.startswith("file:"):
        # Workers may run in another working directory than the driver.
        return NamedDirectory(DiskFiles(), os.path.abspath(given), given)
    from tailrace.runtime.arrow_files import open_uri

    try:
        files, path = open_uri(given)
    except ValueError as error:
        raise ConfigError([f"path: {given} cannot be opened: {error}"]) from error
    except (OSError, ImportError) as error:
        raise DirectoryError(f"{given} cannot be opened: {error}") from error
    return NamedDirectory(files, path.rstrip("/") or "/", given)
