"""The data model: fields, schemas, batches, and the interfaces of sources and sinks."""
