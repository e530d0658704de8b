"""Having a program record, without I/O: what its acl.json should say, and shell commands for its board."""
