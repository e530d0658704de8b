"""The commands `profagent options make` and `profagent options check`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from profagent.ascend_options import making
from profagent.ascend_options.documents import ATLAS, SS928, check_documents
from profagent.cli import options
from profagent.cli.documents import print_document
from profagent.cli.running import tell
from profagent.doctor.finding import finding_lines, section_fields, section_lines
from profagent.errors import UsageError
from profagent.limits import LARGEST_OPTIONS_BYTES
from profagent.tables.table import printable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from profagent.ascend_options.making import MadeOptions

_NAMED = click.argument("named", metavar="[KEY=VALUE]…", nargs=-1)
_DEVICE = "Whose acl.json it is: an SS928's, or another Ascend device's (Atlas)."


@click.group("options")
def command() -> None:
    """Make or check the profiling options of TensorFlow, MindSpore, PyTorch or an acl.json.

    Example: profagent options check train.py
    Example: profagent options make tf2 output=/tmp/profiling training_trace=on
    """


@command.group("make")
def make() -> None:
    """Print the configuration that switches profiling on with the named options.

    Example: profagent options make tf2 output=/tmp/profiling training_trace=on
    Example: profagent options make acl-json output=/opt/app/profiling interval=1
    """


@make.command("tf1")
@_NAMED
@click.option("--estimator", is_flag=True, help="Print it for an Estimator instead of a session.")
def tf1(*, named: tuple[str, ...], estimator: bool) -> None:
    """Print the configuration of a TensorFlow 1 session.

    Example: profagent options make tf1 output=/tmp/profiling task_trace=on aic_metrics=PipeUtilization
    Example: profagent options make tf1 --estimator output=/tmp/profiling training_trace=on
    """
    _print_options(making.tensorflow(making.ESTIMATOR if estimator else making.SESSION, _pairs(named)))


@make.command("tf2")
@_NAMED
def tf2(*, named: tuple[str, ...]) -> None:
    """Print the options of TensorFlow 2's NPU device.

    Example: profagent options make tf2 output=/tmp/profiling training_trace=on task_trace=on
    Example: profagent options make tf2 output=/tmp/profiling task_trace=on aic_metrics=PipeUtilization
    """
    _print_options(making.tensorflow(making.TF2, _pairs(named)))


@make.command("env")
@_NAMED
def env(*, named: tuple[str, ...]) -> None:
    """Print the environment variables that switch TensorFlow's profiling on.

    Example: profagent options make env output=/tmp/profiling training_trace=on task_trace=on
    Example: profagent options make env output=/tmp/profiling aic_metrics=PipeUtilization > profiling.env
    """
    _print_options(making.environment(_pairs(named)))


@make.command("mindspore")
@_NAMED
def mindspore(*, named: tuple[str, ...]) -> None:
    """Print a call of MindSpore's Profiler. Name members and lists in words: activities=CPU,NPU.

    Example: profagent options make mindspore profiler_level=Level1
    Example: profagent options make mindspore profiler_level=Level1 schedule=wait=1,warmup=1,active=2,repeat=1
    """
    _print_options(making.mindspore(_pairs(named)))


@make.command("acl-json")
@_NAMED
@click.option("--device", type=click.Choice([SS928, ATLAS]), default=SS928, show_default=True, help=_DEVICE)
def acl_json(*, named: tuple[str, ...], device: str) -> None:
    """Print an acl.json; `profagent aclconfig set` writes one on a board.

    Example: profagent options make acl-json output=/opt/app/profiling interval=1
    Example: profagent options make acl-json --device atlas output=/tmp/profiling aic_metrics=PipeUtilization
    """
    _print_options((making.ss928_acl_json if device == SS928 else making.atlas_acl_json)(_pairs(named)))


@command.command("check")
@click.argument("files", metavar="FILE|-…", nargs=-1, required=True)
@click.option("--device", type=click.Choice([SS928, ATLAS]), help=f"{_DEVICE} Else its keys tell.")
@options.as_json
def check(*, files: tuple[str, ...], device: str | None, as_json: bool) -> int:
    """Find and correct errors in profiling_options, an acl.json, or MindSpore's or torch_npu's profiler calls.

    FILE is a Python or shell script (read, never run), JSON, TOML, or a file of environment variables; - is standard
    input. Name a script together with its acl.json or its variables. Exit code 1: an error was found.

    Example: profagent options check train.py acl.json
    Example: profagent options check profiler_config.json
    Example: profagent options check --json - < acl.json
    """
    results = check_documents({name: _read_bounded(name) for name in files}, device)
    if as_json:
        found = [{**section_fields(each.section), "corrected": _encodable(each.corrected)} for each in results]
        print_document("options-check", found)
    else:
        for each in results:
            _print_lines(section_lines(each.section))
            if each.corrected is not None:
                _print_lines(["corrected:", *map(printable, each.corrected.splitlines())])
    return 0 if all(each.section.is_good for each in results) else 1


def _read_bounded(name: str) -> bytes:
    try:
        if name == "-":
            return sys.stdin.buffer.read(LARGEST_OPTIONS_BYTES + 1)
        # One byte more than the limit is enough to refuse a file that is too large.
        with Path(name).open("rb") as file:
            return file.read(LARGEST_OPTIONS_BYTES + 1)
    except OSError as error:
        raise UsageError(
            f"cannot read {name}: {error.strerror}", hint="name a file, or - for standard input"
        ) from error


def _pairs(named: tuple[str, ...]) -> dict[str, str]:
    pairs = {}
    for each in named:
        name, equals, value = each.partition("=")
        if not equals:
            raise UsageError(f"{each!r} is not of the form KEY=VALUE", hint="docs/reference/options.md has all keys")
        pairs[name] = value
    return pairs


def _print_options(made: MadeOptions) -> None:
    for finding in made.remarks:
        for line in finding_lines(finding):
            tell(line)
    _print_lines(map(printable, made.text.splitlines()))


def _encodable(text: str | None) -> str | None:
    # A script may name half of a character (a surrogate), which UTF-8 cannot encode.
    return text and text.encode("utf-8", "backslashreplace").decode()


def _print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(line)
