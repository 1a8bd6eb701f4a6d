"""The id and the own settings of a topic, from the cluster's state in a log directory."""

from tailrace.cluster.image import TOPIC_RESOURCE, Topic
from tailrace.cluster.metadata.proof import METADATA_FOLDER, prove_metadata
from tailrace.errors import DirectoryError
from tailrace.runtime.files import Files
from tailrace.storage.config import usable_configs
from tailrace.storage.directories import unusable


def known_topic(files: Files, root: str, name: str) -> Topic | None:
    """The topic as the metadata log of the directory has it; None if that has none.

    Nothing is changed.

    Raises:
        DirectoryError: the state cannot be read, or not be proven.
    """
    try:
        proof = prove_metadata(files, f"{root}/{METADATA_FOLDER}", tell=lambda _: None)
        image = proof.replay.image
    except DirectoryError:
        raise
    except OSError as error:
        raise unusable(root, error) from error
    state = image.topic(name)
    if state is None:
        return None
    return Topic(
        name=name,
        topic_id=state.topic_id,
        partitions=tuple(sorted(state.partitions)),
        configs=usable_configs(image.configs_of(TOPIC_RESOURCE, name)),
    )
