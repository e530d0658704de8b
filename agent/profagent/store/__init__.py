"""The database: schema, the one writer, and readers."""
