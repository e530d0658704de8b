"""The SQLite database: its schema, its one writer and its readers."""
