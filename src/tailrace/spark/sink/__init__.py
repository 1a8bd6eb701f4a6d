"""`df.write.format("tailrace")` and `df.writeStream`: rows to the topics of any Kafka broker.

    df.select("key", "value").write.format("tailrace").mode("append")
        .option("kafka.bootstrap.servers", "localhost:9092").option("topic", "flights").save()

Columns and options are those of Spark's own Kafka sink; see `options`. Spark hands a Python sink to
`mode("append")` only: without a mode, it refuses. A stream is in the output mode append, or in
complete, when the whole result is added to the topic each time, as Spark's sink does it; Spark runs
no Python sink in the mode update.

Each row is written at least once, as by Spark's sink, or with `option("delivery", "exactly-once")`
exactly once, which is the work of `commits`. A batch job that may be run again needs a `txnVersion`
for that.
"""
