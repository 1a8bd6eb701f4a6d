"""A program that reads and writes a broker by Spark with marked secrets; see `test_secrets`.

    python -m tests.spark.secret_job WORK.json

It prints plans and errors, as a program in production has them in its log.
"""

import json
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from tailrace.spark import install, session
from tailrace.spark.install import REDACTION_SETTING

if TYPE_CHECKING:
    from collections.abc import Callable


def main(work: dict[str, Any]) -> None:
    """Read, write and stream; then everything that fails."""
    folder = Path(work["folder"])
    spark = session(
        name="secrets",
        master="local[1]",
        settings={
            "spark.eventLog.enabled": "true",
            "spark.eventLog.compress": "false",
            "spark.eventLog.dir": (folder / "events").as_uri(),
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.sql.planChangeLog.level": "error",
            # As in a session that was made without this package.
            REDACTION_SETTING: "(?i)url",
        },
    )
    install(spark)
    # With all that a plan is turned into: its changes are logged, at a level that is shown.
    spark.sparkContext.setLogLevel("ERROR")
    options: dict[str, str] = work["options"]
    frame = spark.read.format("tailrace").options(**options, subscribe="t").load()
    frame.explain(extended=True)
    frame.explain(mode="formatted")
    print(frame.count())
    values = spark.createDataFrame([("k", "v")], "key string, value string")
    values.write.format("tailrace").options(**options, topic="t").mode("append").save()
    stream = spark.readStream.format("tailrace").options(
        **options, subscribe="t", startingOffsets="earliest"
    )
    query = (
        stream.load()
        .select("key", "value")
        .writeStream.format("tailrace")
        .options(**options, topic="out", checkpointLocation=str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    query.explain(extended=True)
    print(query.lastProgress, query.status, query.exception())
    for wrong in work["wrong"]:
        fail(spark, options | wrong)
    print("Living processes:")
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            print(each.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    spark.stop()


def fail(spark: SparkSession, options: dict[str, str]) -> None:
    """Print the errors of a read and of a write."""
    frame = spark.createDataFrame([("v",)], "value string")
    calls: tuple[Callable[[], object], ...] = (
        lambda: spark.read.format("tailrace").options(**options, subscribe="t").load().count(),
        lambda: frame.write.format("tailrace").options(**options, topic="t").mode("append").save(),
    )
    for call in calls:
        try:
            call()
        except Exception:  # noqa: BLE001 - any error is what the test looks at
            traceback.print_exc()
            print("It failed.")


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
