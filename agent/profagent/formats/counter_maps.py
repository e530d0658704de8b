"""Choice of a counter map: a named one, the one in the user's folder that fits, or the simulated board's own."""

from __future__ import annotations

import os
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from profagent.errors import FormatError, UsageError
from profagent.formats.countermap import PEAK_MEMORY_RATE, CounterMap, parse_counter_map

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@cache
def simulated_map() -> CounterMap:
    """Return the map by which the simulated board writes its counters."""
    file = resources.files("profagent.formats").joinpath("maps/simulated.toml")
    return parse_counter_map(file.read_text("utf-8"), "simulated.toml")


def read_map(file: Path) -> CounterMap:
    """Return the map in a file. Raises UsageError if the file cannot be read, or is no map."""
    try:
        return parse_counter_map(file.read_text("utf-8"), str(file))
    except FormatError as error:
        raise UsageError(str(error), hint=error.hint) from error
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"cannot read the counter map {file}: {error}", hint="name a TOML file with [counters.NAME] tables"
        ) from error


def maps_folder() -> Path:
    """Return the folder in which this user's counter maps are looked for."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "profagent" / "counter-maps"


class CounterMaps:
    """Maps with which a command may decode. Remarks about them, and about the choice, are made once."""

    def __init__(
        self,
        named: CounterMap | None = None,
        folder: Path | None = None,
        tell: Callable[[str], None] = lambda _: None,
        *,
        peak_bytes_per_s: float = PEAK_MEMORY_RATE,
    ) -> None:
        """Set the named map, which is always taken, or a folder of which the only fitting `.toml` file is taken.

        `peak_bytes_per_s` is the largest transfer rate of boards' memory: a higher one shows that a map is wrong.
        """
        self.named = named
        self.peak_bytes_per_s = peak_bytes_per_s
        self._folder = folder
        self._tell = tell
        # Maps in the folder, None until somebody needs them.
        self._found: list[tuple[Path, CounterMap]] | None = None
        # Remarks that were made already.
        self._remarked: set[str] = set()

    def of(self, *, simulated: bool, sdk: str = "") -> CounterMap | None:
        """Return the map for JOBs of a board with this SDK; None if there is none. It reads files.

        A map fits if it is simulated as the board is, and has the board's SDK, or either SDK is unknown (empty).
        """
        if self.named is not None:
            if misfit := _misfit(self.named, simulated=simulated, sdk=sdk):
                self._tell_once(f"counter map {self.named.name} {misfit}")
            return self.named
        fitting = self._fitting(simulated=simulated, sdk=sdk)
        # Choosing one of several could attribute counters to wrong words; the user decides.
        if len(fitting) > 1:
            files = ", ".join(str(file) for file, _ in fitting)
            self._tell_once(
                f"{len(fitting)} counter maps fit, and none is taken: {files}; name one with --counter-map FILE"
            )
        for file, known in fitting if len(fitting) == 1 else ():
            self._tell_once(f"counter map {known.name} of {file}, digest {known.fingerprint}")
            return known
        return simulated_map() if simulated else None

    def unheard(self) -> CounterMaps:
        """Return the same choice without remarks, for a question before anything is decoded."""
        return CounterMaps(self.named, self._folder)

    def _fitting(self, *, simulated: bool, sdk: str) -> list[tuple[Path, CounterMap]]:
        """Return the folder's maps that fit; of those that decode alike, the first."""
        fitting = {
            known.fingerprint: (file, known)
            for file, known in reversed(self._in_folder())
            if known.simulated == simulated and known.fits_sdk(sdk)
        }
        return [*reversed(fitting.values())]

    def _in_folder(self) -> list[tuple[Path, CounterMap]]:
        if self._found is None:
            self._found = [] if self._folder is None else [*self._readable(self._folder)]
        return self._found

    def _readable(self, folder: Path) -> Iterator[tuple[Path, CounterMap]]:
        for file in sorted(folder.glob("*.toml")):
            try:
                yield file, read_map(file)
            except UsageError as error:
                self._tell_once(f"not a counter map, and passed over: {error}")

    def _tell_once(self, text: str) -> None:
        if text not in self._remarked:
            self._remarked.add(text)
            self._tell(text)


def _misfit(known: CounterMap, *, simulated: bool, sdk: str) -> str:
    if known.simulated:
        return "" if simulated else "is of the simulated board: what it reads of a real one is invented"
    if simulated:
        return "is of a real board, and this one is simulated"
    return "" if known.fits_sdk(sdk) else f"is of SDK {known.sdk}, and the board has {sdk}: its counters may be others"


# Only the simulated board's map, without a folder.
BUILT_IN = CounterMaps()
