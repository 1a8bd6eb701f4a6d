"""The indexes of a segment: offset to position, timestamp to offset, aborted transactions."""
