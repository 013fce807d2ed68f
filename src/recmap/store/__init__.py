"""Objects in stores: S3, GCS, Azure, HTTP."""
