"""Collections of garbage in the process of a broker."""

import subprocess
import sys

SCRIPT = """
import gc
from tailrace.runtime.memory import claim_process, freeze_what_survives

claim_process()
freeze_what_survives()
looked_at = []
gc.callbacks.append(
    lambda phase, info: phase == "start" and info["generation"] == 2
    and looked_at.append(len(gc.get_objects()))
)
kept = [[number] for number in range(1_000_000)]
assert len(looked_at) > 5, looked_at
assert gc.get_freeze_count() > 900_000
print(max(looked_at))
"""


IMPORTS = """
import gc
from tailrace.runtime.memory import claim_process, no_collections

claim_process()
looked_at = []
gc.callbacks.append(lambda phase, _: phase == "start" and looked_at.append(len(gc.get_objects())))
try:
    with no_collections():
        kept = [[number] for number in range(1_000_000)]
        assert not looked_at
        raise ImportError
except ImportError:
    pass
young = [[number] for number in range(20_000)]
gc.collect()
assert len(looked_at) > 5, looked_at
print(max(looked_at))
"""


def test_no_collection_looks_at_what_was_imported_without_them() -> None:
    """Neither meanwhile nor afterwards, and there are collections again after a failure too."""
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 50_000


def test_a_collection_does_not_take_longer_because_there_are_many_objects() -> None:
    """With a million objects a full collection looks at those that are new, some ten thousand."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 50_000
