"""The engines that the rules of compaction hold for."""

import pytest

from tests.unit.storage.cleaner.shelves import Shelf


@pytest.fixture(params=[False, True], ids=["by one map", "by tasks"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has shelves cleaned as a broker does, or as the Spark job does."""
    monkeypatch.setattr(Shelf, "cleans_by_tasks", request.param)
