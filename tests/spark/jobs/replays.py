"""One replay as a program of its own, to be killed: `python -m tests.spark.jobs.replays …`."""

import json
import sys

from tailrace.spark import session
from tailrace.spark.jobs.replay import replay

if __name__ == "__main__":
    source, settings, offset_map = sys.argv[1:]
    spark = session(name="replay to be killed", master="local[2]")
    replay(spark, json.loads(source), json.loads(settings), offset_map=offset_map)
