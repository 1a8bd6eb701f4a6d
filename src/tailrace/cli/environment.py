"""`KAFKA_*` variables for a broker that is started, as Apache Kafka's image takes them."""

import logging
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import click

from tailrace.config.environment import Variables
from tailrace.errors import ConfigError

if TYPE_CHECKING:
    from tailrace.broker.config import BrokerConfig

logger = logging.getLogger(__name__)

_ROOT_LEVEL: Final = "KAFKA_LOG4J_ROOT_LOGLEVEL"
_LEVELS: Final = "KAFKA_LOG4J_LOGGERS"

ENVIRONMENT = click.option(
    "--env",
    "from_environment",
    is_flag=True,
    help="Also take KAFKA_* variables, by the rule of Apache Kafka's image; they go over the file.",
)


def take_levels(variables: Variables, environment: Mapping[str, str]) -> Variables:
    """Set the levels of loggers that the image's variables name; returns the other variables.

    Those of `root` and of this package. Java's loggers, such as `kafka.controller`, are not here: a
    variable that has one of them stays passed over.

    Raises:
        ConfigError: a level that there is not; all of them.
    """
    from tailrace.runtime.log_lines import LEVELS

    root = environment.get(_ROOT_LEVEL, "")
    given = [(_ROOT_LEVEL, "root", root)] if root.strip() else []
    for word in filter(str.strip, environment.get(_LEVELS, "").split(",")):
        name, _, level = word.partition("=")
        given.append((_LEVELS, name.strip(), level))
    faults, foreign = [], set()
    for variable, name, level in given:
        found = LEVELS.get(level.strip().upper())
        if found is None:
            faults.append(
                f"{variable}: {name} has the level {level.strip()!r}; there are {', '.join(LEVELS)}"
            )
        elif name == "root" or name.partition(".")[0] == "tailrace":
            logging.getLogger(None if name == "root" else name).setLevel(found)
        else:
            foreign.add(variable)
    if faults:
        raise ConfigError(faults)
    return variables.without({variable for variable, _, _ in given} - foreign)


def report_variables(variables: Variables, *, are_taken: bool) -> None:
    """Log which variables are settings of this start, and which are not."""
    from tailrace.broker.config import BROKER_SETTINGS
    from tailrace.config.foreign import foreign_reason

    if are_taken and variables.settings:
        logger.info("settings_from_environment names=%s", ",".join(variables.sources.values()))
    if are_taken and variables.passed_over:
        logger.warning(
            "variables_passed_over names=%s reason=they are for Java, for scripts of the image or "
            "from Kubernetes",
            ",".join(variables.passed_over),
        )
    if not are_taken:
        # Others may be of programs that have nothing to do with a broker.
        known = {each.name for each in BROKER_SETTINGS}
        named = [
            source
            for name, source in variables.sources.items()
            if name in known or foreign_reason(name) is not None
        ]
        if named:
            logger.warning(
                "variables_not_taken names=%s reason=tailrace serve takes them with --env",
                ",".join(named),
            )


def format_new(config: "BrokerConfig") -> None:
    """Format directories for the cluster of the variable CLUSTER_ID, if none is formatted yet.

    Raises:
        DirectoryError: one cannot be formatted.
    """
    cluster_id = os.environ.get("CLUSTER_ID", "")
    if not cluster_id:
        return
    from tailrace.offline.formatting import Wanted, format_directories, levels_of
    from tailrace.runtime.system import system_runtime
    from tailrace.storage.directories import read_identity

    runtime = system_runtime()
    own = config.directories if config.is_broker else ()
    directories = [*dict.fromkeys((*own, config.metadata_directory))]
    # As in the image: a directory that is formatted keeps its cluster.
    if not any(read_identity(runtime.files, each) for each in directories):
        format_directories(
            runtime.files,
            directories,
            Wanted(cluster_id=cluster_id, node_id=config.node_id, levels=levels_of(None, {})),
            clock=runtime.clock,
            chance=runtime.chance,
        )
        logger.info("directories_formatted cluster_id=%s source=CLUSTER_ID", cluster_id)
