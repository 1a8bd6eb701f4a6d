"""Writes the message tables of `tailrace.protocol` from Apache Kafka's own definitions.

    jars        the JSON files in the released jars of one version of Kafka
    model       what a definition says: structs, fields, versions, defaults
    catalog     which definitions are written, and into which module
    words       our sentences about modules, classes and fields: words.toml
    writer      a definition and its words as a module of dataclasses

`make messages` runs it. Not shipped, and the product does not need it; it needs Maven. None of
Kafka's prose is copied: a definition gives names, types, versions, tags and defaults.
"""
