"""Jobs over whole logs: Spark schedules, Python and Arrow move the bytes.

    work.py             work items to tasks and their results back; which paths the tasks see
    spark.folder        a directory that a job writes: a local disk, or what PyArrow can reach
    manifest.py         what of such a directory counts
    topics.py           whether topics are those that a job has begun, and what is left of them
    archive.py          topics to Parquet: rounds of work items, each made to count by the manifest
    archive_files.py    what one work item does: offsets in, Parquet files out
    tables.py           the table over the files; table_formats.py: Delta Lake and Iceberg
    json_values.py      JSON values to typed columns, by a schema; those that do not fit it
    spark.digests       a digest of columns that does not depend on how they are cut
    verify_archive.py   an archive held against its manifest and against the log
    query.py            SQL over an archive and the live log as one table
    replay*.py          an archive, a topic or a directory into a topic
    compact*.py         the cleaner's rules for logs whose keys no machine holds
    audit.py            every batch of data directories, and replicas held against each other
    profile.py          what topics hold; sketches.py: what of it can be merged
    pages.py            reports as HTML pages; report_html.py: templates and charts

A DataFrame would send every record through the JVM, which writes Parquet at a fifth of the speed.
Here a row is a work item, and tasks read logs and write files themselves.

Invariant: importing the package is light; it needs PySpark only where a session comes in.
"""
