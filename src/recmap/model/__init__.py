"""What data is: fields, schemas, batches, and what every source and sink can do."""
