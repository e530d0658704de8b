"""Generate the Python code of every .proto file under protos/, or check that what is there is up to date.

Run it with the interpreter of the protoc environment (`make protos`, `make check-protos`).
"""

from __future__ import annotations

import argparse
import filecmp
import sys
import tempfile
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent / "protos"
GENERATED = ("*_pb2.py", "*_pb2.pyi", "*_pb2_grpc.py", "*_pb2_grpc.pyi")


def generate(target: Path) -> None:
    """Write the code of all .proto files under `target`, in the folders of their sources."""
    outputs = [f"--{kind}_out={target}" for kind in ("python", "grpc_python")]
    outputs += [f"--{kind}_out=quiet:{target}" for kind in ("mypy", "mypy_grpc")]
    includes = [f"-I{ROOT}", f"-I{files('grpc_tools') / '_proto'}"]
    sources = sorted(str(path) for path in ROOT.rglob("*.proto"))
    programs = Path(sys.executable).parent
    plugins = [f"--plugin=protoc-gen-{name}={programs / f'protoc-gen-{name}'}" for name in ("mypy", "mypy_grpc")]
    if protoc.main(["protoc", *includes, *plugins, *outputs, *sources]):
        sys.exit("protoc failed: its message stands above")


def generated(folder: Path) -> set[Path]:
    """The generated files under `folder`, relative to it."""
    return {path.relative_to(folder) for pattern in GENERATED for path in folder.rglob(pattern)}


def differences(target: Path) -> list[Path]:
    """The generated files that are missing, left over or different in protos/, compared with `target`."""
    wanted, present = generated(target), generated(ROOT)
    changed = {path for path in wanted & present if not filecmp.cmp(target / path, ROOT / path, shallow=False)}
    return sorted((wanted ^ present) | changed)


def main() -> None:
    """Generate into protos/, or with --check fail when what is there differs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing; fail when a file is out of date")
    if not parser.parse_args().check:
        generate(ROOT)
        return
    with tempfile.TemporaryDirectory() as scratch:
        generate(Path(scratch))
        stale = differences(Path(scratch))
    if stale:
        sys.exit("out of date, run `make protos`: " + ", ".join(str(path) for path in stale))


if __name__ == "__main__":
    main()
