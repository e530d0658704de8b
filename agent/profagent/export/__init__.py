"""The files and tables that a person or another program reads, made from rows."""
