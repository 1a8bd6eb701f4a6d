"""The file `quorum-state`: the epoch of the quorum, and the vote of this node (KIP-595, KIP-853).

    {"clusterId":"","leaderId":1,"leaderEpoch":7,"votedId":-1,"appliedOffset":0,
     "currentVoters":[{"voterId":1}],"data_version":0}
    {"leaderId":1,"leaderEpoch":7,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA",
     "data_version":1}

Version 0 has the voters that the settings name, version 1 belongs to logs that name them. Kafka
writes one line without a newline, and reads the first line.
"""

import json
from typing import Final, NamedTuple

from tailrace.errors import UNEXPECTED_JSON, CorruptionError
from tailrace.protocol.fields import NO_UUID
from tailrace.runtime.files import Files
from tailrace.storage.checkpoints import format_topic_id, read_text, write_atomically

FILE: Final = "quorum-state"
EPOCHS_SKIPPED_MAX: Final = 1 << 24
"""Most epochs that a peer may be ahead of what is known: an election a second, for half a year. A
damaged field of a message is nearly always further away."""
_VERSIONS: Final = (0, 1)


class QuorumState(NamedTuple):
    """Memory of a node of a quorum."""

    leader_id: int
    """The leader of the epoch; -1: unknown."""
    epoch: int
    voters: tuple[int, ...] | None
    """The voters of the settings; None where the log names them."""


def read_quorum_state(files: Files, folder: str) -> QuorumState | None:
    """The content of the file; None if there is none.

    Raises:
        CorruptionError: it cannot be understood.
        OSError: it cannot be read.
    """
    path = f"{folder}/{FILE}"
    if not files.exists(path):
        return None
    try:
        content = json.loads(read_text(files, path).partition("\n")[0])
        if content["data_version"] not in _VERSIONS:
            raise ValueError(f"its version is {content['data_version']}, not one of {_VERSIONS}")
        voters = content.get("currentVoters")
        return QuorumState(
            _whole(content["leaderId"], -1),
            _whole(content["leaderEpoch"], 0),
            None if voters is None else tuple(_whole(each["voterId"], 0) for each in voters),
        )
    except UNEXPECTED_JSON as error:
        raise CorruptionError(f"it cannot be understood: {error}", path=path) from error


def write_quorum_state(files: Files, folder: str, state: QuorumState) -> None:
    """Replace the file; on the device on return.

    Raises:
        OSError: the old file is still whole, or the new one is there and may not outlast a crash.
    """
    head = {"leaderId": state.leader_id, "leaderEpoch": state.epoch, "votedId": -1}
    content: dict[str, object]
    # Each version as Kafka writes it, which reads the file when it gets the directory back.
    if state.voters is None:
        content = {**head, "votedDirectoryId": format_topic_id(NO_UUID), "data_version": 1}
    else:
        voters = [{"voterId": each} for each in state.voters]
        content = {"clusterId": "", **head, "appliedOffset": 0, "currentVoters": voters}
        content["data_version"] = 0
    text = json.dumps(content, separators=(",", ":"))
    write_atomically(files, folder, FILE, text=text)


def _whole(number: object, lowest: int) -> int:
    # `type`, since JSON's true is an int in Python.
    if type(number) is not int or not lowest <= number < 1 << 31:
        raise ValueError(f"{str(number)[:40]} is no id and no epoch")
    return number
