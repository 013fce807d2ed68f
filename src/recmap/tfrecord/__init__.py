"""The TFRecord format: framing, Examples as columns, indexes."""

from recmap.tfrecord.framing import records, write_records

__all__ = ["records", "write_records"]
