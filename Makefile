# Development tasks; `make help` lists them.
