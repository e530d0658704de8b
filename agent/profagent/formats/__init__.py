"""The files of an SS928 JOB directory: bytes in, arrays and dataclasses out, no I/O."""
