"""The sparse indexes of a segment: from an offset, or a timestamp, to a place near it."""
