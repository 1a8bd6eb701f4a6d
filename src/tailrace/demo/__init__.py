"""The demonstration: a year of real flights through a broker, Spark and a picture.

                                              consume (a group of two)
                                                 ▲
    data/*.csv ─ flights ─► produce ─socket─► broker ─socket─► pipeline ─► lake/*.parquet
                    │                                                          │
                    └──────────────── check (pandas) ◄──── aggregate ◄─────────┤
                                                                               └─► picture

`tailrace.demo.run.run` is the whole of it. It is in the package and not in `examples/`, because
`tailrace demo` is what a user runs first after `pip install`, and a wheel has no examples. The
notebook in `examples/` takes its data from `flights`, and does the rest itself.

`tailrace.demo.cluster` is another one, without Spark: a broker of three is killed under load.

What is *not* here: the command line (`tailrace demo`), and anything that the product needs.

Invariant: what is printed was measured in this run, and the run fails unless the result equals
what pandas computes from the CSV files without any of our code.
"""
