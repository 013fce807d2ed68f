"""TFRecord: raw records, Examples as columns, and indexes."""

from recmap.tfrecord.framing import records, write_records

__all__ = ["records", "write_records"]
