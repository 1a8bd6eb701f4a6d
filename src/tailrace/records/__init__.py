"""The batch, without files: its layout, its checks, its codecs, and its records as columns.

Not here: where batches are kept (`storage`), how they travel (`protocol`). Import from the modules;
only `columns` needs numpy and pyarrow.
"""
