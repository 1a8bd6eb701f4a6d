"""The small things of a directory: whose it is, and what an interrupted piece of work has left.

    in a partition                  what a broker does with it when it starts
    .cleaned                        removed
    .swap                           put in place, or removed beside an unfinished .cleaned
    .deleted, .tmp                  removed
    beside the partitions
    flights-3.0f…-delete            removed
    flights-3.0f…-future, -stray    kept; replicas that move, or that nobody has assigned
    __cluster_metadata-0.0f…-delete kept; to be renamed by its owner

Nothing is changed here.
"""

import re
from collections.abc import Iterator

from tailrace.config.sources import read_properties
from tailrace.errors import CorruptionError
from tailrace.offline.findings import Finding, Rule, Severity
from tailrace.runtime.files import Files
from tailrace.storage import names
from tailrace.storage.checkpoints import parse_topic_id, read_text

_SET_ASIDE = re.compile(r"[a-zA-Z0-9._-]*-[0-9]+\.[^.\s]+-(future|stray)")


def check_identity(files: Files, path: str) -> Iterator[Finding]:
    """Check `meta.properties` at `path`; it may be missing, as in a backup.

    Raises:
        OSError: it cannot be read.
    """
    if not files.exists(path):
        return
    try:
        fault = _identity_fault(read_properties(read_text(files, path)))
    except CorruptionError as error:
        fault = error.rule
    if fault is not None:
        yield Finding(severity=Severity.ERROR, rule=Rule.IDENTITY, path=path, sentence=fault)


def check_partition_leftovers(folder: str, listed: list[str]) -> Iterator[Finding]:
    """The files in a partition's folder that a broker will remove or put in place."""
    cleaned = [_base(name) for name in listed if name.endswith(names.CLEANED_SUFFIX)]
    limit = min((base for base in cleaned if base is not None), default=None)
    for name in listed:
        severity, sentence = Severity.WARNING, None
        if name.endswith((names.CLEANED_SUFFIX, names.SWAP_SUFFIX)) and _base(name) is None:
            continue  # Of no segment: a broker leaves it alone.
        if name.endswith(names.CLEANED_SUFFIX):
            sentence = "left by a compaction that was interrupted; a broker removes it"
        elif name.endswith(names.SWAP_SUFFIX):
            base = _base(name)
            assert base is not None
            is_void = limit is not None and base >= limit
            sentence = (
                "left by a compaction that was interrupted; a broker removes it, since a .cleaned "
                "file beside it is not ready"
                if is_void
                else "a compaction is half done; a broker puts it in place of what it replaces"
            )
        elif names.is_removed_at_start(name):
            severity, sentence = Severity.INFO, "out of service; a broker removes it"
        if sentence is not None:
            yield _leftover(f"{folder}/{name}", severity, sentence)


def check_directory_leftovers(files: Files, path: str) -> Iterator[Finding]:
    """The folders beside the partitions that are none in service.

    Raises:
        OSError: the directory cannot be read.
    """
    for name in files.list(path):
        severity = Severity.INFO
        if names.is_metadata_directory_name(name):
            if names.parse_partition_directory_name(name) is not None:
                continue
            severity = Severity.WARNING
            sentence = (
                "Kafka's metadata log under the name of a deleted partition; Kafka does not start "
                f"without it: rename the folder to {name.partition('.')[0]}"
            )
        elif names.is_delete_directory_name(name):
            sentence = (
                "a partition that was deleted; a broker removes the folder a minute after its start"
            )
        elif _SET_ASIDE.fullmatch(name):
            sentence = "a replica that is not in service; a broker keeps the folder"
        else:
            continue
        yield _leftover(f"{path}/{name}", severity, sentence)


def _identity_fault(fields: dict[str, str]) -> str | None:
    text = fields.get("version", "0")
    if text not in {"0", "1"}:
        return f"version {text[:20]!r}, where 0 and 1 are known"
    needed = ("broker.id",) if text == "0" else ("cluster.id", "node.id")
    missing = [name for name in needed if not fields.get(name)]
    if missing:
        return f"{' and '.join(missing)} missing"
    if not re.fullmatch(r"[0-9]{1,10}", fields[needed[-1]]):
        return f"{needed[-1]} is {fields[needed[-1]][:20]!r}, which is no number"
    if fields.get("directory.id"):
        try:
            parse_topic_id(fields["directory.id"])
        except ValueError as error:
            return f"directory.id: {error}"
    return None


def _base(name: str) -> int | None:
    parsed = names.parse_segment_file_name(name.rpartition(".")[0])
    return None if parsed is None else parsed[0]


def _leftover(path: str, severity: Severity, sentence: str) -> Finding:
    return Finding(severity=severity, rule=Rule.LEFTOVER, path=path, sentence=sentence)
