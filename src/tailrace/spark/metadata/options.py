"""The options of the format `tailrace-metadata`; pure.

Invariant: all faults of one call are reported together, before Spark starts a job.
"""

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final

from tailrace.config import Setting, field_values, setting, settings_of
from tailrace.config.settings import settings_together
from tailrace.errors import ConfigError
from tailrace.offline.metadata_state import END, Moment, parse_moment
from tailrace.spark.options.given import GivenOptions, name_faults
from tailrace.values import dataclass


class View(Enum):
    """The part of a metadata log that is read."""

    RECORDS = "records"
    """Every record of the log."""
    SNAPSHOTS = "snapshots"
    """Every record of the snapshots."""
    TOPICS = "topics"
    PARTITIONS = "partitions"
    CONFIGS = "configs"
    BROKERS = "brokers"
    FEATURES = "features"
    USERS = "users"
    ACLS = "acls"
    QUOTAS = "quotas"

    @property
    def is_state(self) -> bool:
        """Whether it is of the state at one moment."""
        return self not in {View.RECORDS, View.SNAPSHOTS}


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataOptions:
    """The log to read, and what of it."""

    path: str = setting(
        "path",
        default="",
        text="The directory that has `__cluster_metadata-0`, or that folder itself: a local path, "
        "or any URI that pyarrow's file systems open.",
    )
    view: View = setting(
        "view",
        default=View.RECORDS.value,
        choices=tuple(each.value for each in View),
        convert=View,
        text="What is read: records as they are stored, or the state that they lead to.",
    )
    at: Moment = settings_together(
        Setting(
            name="at",
            default="",
            text="Of a state: an offset, for all records below it, or a time such as "
            "`2026-05-01T12:00`, for all up to it; the end of the log by default.",
        )
    )
    corruption_report: str | None = settings_together(
        Setting(
            name="onCorruption",
            default="fail",
            choices=("fail", "skip"),
            text="`fail` with file and position; or `skip` what is damaged.",
        ),
        Setting(
            name="corruptionReport",
            default="",
            text="The directory for what is skipped: a line of JSON for each piece.",
        ),
    )
    """The directory that gets a list of what is damaged and left out; None: damage is an error."""


OPTIONS: Final = settings_of(MetadataOptions)
"""All options of the format."""

# What people copy from a query of the format `tailrace`.
_REFUSED: Final = MappingProxyType(
    {
        "paths": "a cluster has one metadata log; give the one directory that has it as path",
        "kafka.bootstrap.servers": "the log is read from files; give path, a node's directory",
        "subscribe": "the format reads one topic, __cluster_metadata; leave it out",
    }
)


def parse_metadata_options(given: Mapping[str, str]) -> MetadataOptions:
    """The options of one `load()`; names in any case.

    Raises:
        ConfigError: unknown names, bad values and conflicts, all of them.
    """
    read = GivenOptions(given, OPTIONS)
    # First, as in `parse_options`: an unknown name is mostly the cause of the other faults.
    read.faults[:0] = name_faults(read.texts, (each.name for each in OPTIONS), refused=_REFUSED)
    # With `paths` the refusal says already what to give.
    if not read.values["path"] and "paths" not in read.texts:
        read.fault("path", "give the directory of a node that has __cluster_metadata-0")
    options = MetadataOptions(
        **field_values(MetadataOptions, read.values),
        at=_moment(read),
        corruption_report=read.corruption_report(),
    )
    # Records have offsets and times to filter by; a moment means a state.
    if read.text("at") is not None and not options.view.is_state:
        read.fault("at", "it needs the view of a state, such as view=topics")
    if read.faults:
        raise ConfigError(read.faults)
    return options


def _moment(read: GivenOptions) -> Moment:
    text = read.text("at")
    if text is None:
        return END
    try:
        return parse_moment(text.strip())
    except ValueError as error:
        read.fault("at", str(error))
        return END
