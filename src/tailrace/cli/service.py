"""`tailrace service`: units of systemd for a node, printed for an operator to install."""

import ipaddress
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from tailrace.broker.config import BrokerConfig

STOP_MARGIN_S: Final = 15
"""Time after the limit of a stop in which the process itself ends."""
WATCHDOG_S: Final = 60
"""A node that has served nobody for so long is worth a restart, and no pause is that long."""
DESCRIPTORS_MAX: Final = 524_288
"""systemd's own default for what a service may raise its limit to."""
HIDDEN_PLACES: Final = ("/home", "/root", "/run/user")
"""Directories that ProtectHome= hides."""
PRIVATE_PLACES: Final = ("/tmp", "/var/tmp")  # noqa: S108 - nothing is written there
"""Directories that PrivateTmp= replaces."""

CONFIG = click.option(
    "--config",
    "file",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The server.properties file of the node.",
)


@click.group()
def service() -> None:
    """Print units with which systemd runs a node."""


@service.command()
@CONFIG
@click.option("--user", default="tailrace", show_default=True, help="The user who runs the node.")
@click.option(
    "--sockets", is_flag=True,
    help="Listeners take their sockets from socket units; see `tailrace service socket`.",
)  # fmt: skip
def unit(*, file: Path, user: str, sockets: bool) -> None:
    """Print the service unit of the node of a server.properties.

    It restarts the node where that may help, waits for it to be ready, watches that it makes
    progress, gives it time for its stop, and lets it write to its log directories only.
    """
    config = _config_of(file)
    for each in _directories(config):
        if not os.path.isabs(each):
            raise click.UsageError(f"log directory {each}: a service needs its whole path")
    names = [socket_unit(each) for each in _listener_names(config)] if sockets else []
    command = [*_command(), "serve", "--config", str(file.absolute())]
    click.echo(service_unit(config, command, user=user, sockets=names), nl=False)


@service.command()
@CONFIG
@click.argument("listener")
def socket(*, file: Path, listener: str) -> None:
    """Print the socket unit of a listener of the node of a server.properties.

    systemd keeps the socket open, so that clients who connect while the node restarts wait for it.
    """
    config = _config_of(file)
    found = {each.name: each for each in (*config.listeners, config.controller_listener) if each}
    if listener.upper() not in found:
        raise click.UsageError(f"there is no listener {listener}; there are {', '.join(found)}")
    one = found[listener.upper()]
    try:
        address = ipaddress.ip_address(one.host)
    except ValueError:
        raise click.UsageError(
            f"{one.host} is a name, and systemd listens on addresses only; give listeners one"
        ) from None
    if not one.port:
        raise click.UsageError(
            f"{one.name} has port 0, and systemd listens on a port that is given; give listeners "
            "one"
        )
    host = f"[{address}]" if address.version == 6 else str(address)
    click.echo(
        f"# /etc/systemd/system/{socket_unit(one.name)}\n"
        "[Unit]\n"
        f"Description=Tailrace listener {one.name} of node {config.node_id}\n"
        "\n"
        "[Socket]\n"
        f"ListenStream={host}:{one.port}\n"
        f"FileDescriptorName={one.name}\n"
        f"Backlog={_backlog()}\n"
        "Service=tailrace.service\n"
        "\n"
        "[Install]\n"
        "WantedBy=sockets.target\n",
        nl=False,
    )


def service_unit(
    config: "BrokerConfig", command: list[str], *, user: str, sockets: Iterable[str]
) -> str:
    """The text of a service unit for a node with these settings."""
    directories = _directories(config)
    # The Python of a virtual environment is elsewhere.
    used = [*command, *directories, f"{sys.base_prefix}/"]
    stop_s = -(-config.shutdown_timeout_ms // 1000) + STOP_MARGIN_S
    from_sockets = "".join(f"Sockets={each}\n" for each in sockets)
    return f"""\
# /etc/systemd/system/tailrace.service
[Unit]
Description=Tailrace node {config.node_id} ({",".join(config.process_roles)})
Wants=network-online.target
After=network-online.target time-sync.target

[Service]
Type=notify
User={user}
ExecStart={" ".join(_quoted(each.replace("$", "$$")) for each in command)}
{from_sockets}
# A start reads all logs that were not closed in order, and says how far it is: systemctl status.
TimeoutStartSec=infinity
# tailrace.shutdown.timeout.ms, and some seconds more.
TimeoutStopSec={stop_s}
# Without progress for so long the node is restarted; the log has the place where it hung.
WatchdogSec={WATCHDOG_S}
Environment=PYTHONFAULTHANDLER=1
LimitCORE=0
# Somebody has to correct the settings first (1), or the command (2).
Restart=on-failure
RestartSec=3
RestartPreventExitStatus=1 2
# A signal that came before the start had begun.
SuccessExitStatus=129 130 143
LimitNOFILE={DESCRIPTORS_MAX}
UMask=0027

# The node writes to its log directories and to nothing else; they have to exist.
ProtectSystem=strict
ReadWritePaths={" ".join(map(_quoted, directories))}
ProtectHome={"read-only" if _are_in(used, HIDDEN_PLACES) else "yes"}
PrivateTmp={"no" if _are_in(used, PRIVATE_PLACES) else "yes"}
PrivateDevices=yes
NoNewPrivileges=yes
CapabilityBoundingSet=
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectControlGroups=yes
ProtectClock=yes
ProtectHostname=yes
ProtectProc=invisible
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
RemoveIPC=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallErrorNumber=EPERM

[Install]
WantedBy=multi-user.target
"""


def socket_unit(listener: str) -> str:
    """The name of the socket unit of a listener."""
    return f"tailrace-{listener.lower()}.socket"


def _config_of(file: Path) -> "BrokerConfig":
    # Imported here: `tailrace service --help` needs nothing of a broker (decision 24).
    from tailrace.broker.config import broker_config
    from tailrace.config import read_properties

    return broker_config(read_properties(file.read_text(encoding="utf-8", errors="replace")))


def _directories(config: "BrokerConfig") -> list[str]:
    own = config.directories if config.is_broker else ()
    return [*dict.fromkeys((*own, config.metadata_directory))]


def _listener_names(config: "BrokerConfig") -> list[str]:
    return [each.name for each in (*config.listeners, config.controller_listener) if each]


def _backlog() -> int:
    from tailrace.runtime.network import BACKLOG

    return BACKLOG


def _command() -> list[str]:
    """The words that call this command, by an absolute path."""
    script = os.path.abspath(sys.argv[0])
    if os.path.basename(script) == "tailrace":
        return [script]
    return [sys.executable, "-m", "tailrace"]


def _quoted(word: str) -> str:
    """A word of a line of a unit, in which % means nothing special."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    # In double quotes an apostrophe is one; elsewhere it would begin a quoted part.
    is_plain = escaped.isprintable() and not {" ", "'"} & set(escaped)
    return escaped if is_plain else f'"{escaped}"'


def _are_in(paths: Iterable[str], places: tuple[str, ...]) -> bool:
    return any(path.startswith(f"{place}/") for path in paths for place in places)
