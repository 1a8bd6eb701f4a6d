"""The metadata log of a cluster as DataFrames: the data source `tailrace-metadata`.

options.py    from Spark's strings to one frozen value
views.py      what can be read: the columns of each view, and the rows of a state
reading.py    from the files to Arrow batches
source.py     the classes that Spark asks
"""
