"""Provenance of tables and answers: the session and board that figures come from, and what is missing or unsure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

from profagent import __version__
from profagent.store.coverage import coverage_of, why_incomplete
from profagent.store.queries import Scope, jobs_of, ledger_of
from profagent.tables.provenance import INCOMPLETE, SIMULATED, caveat_rank, caveats_of, coverage_line, provenance_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from profagent.store.database import Running
    from profagent.store.queries import SessionRow


def frozen(value: Any) -> Any:
    """Return a value of JSON that cannot be changed."""
    if isinstance(value, Mapping):
        return MappingProxyType({key: frozen(each) for key, each in value.items()})
    return tuple(map(frozen, value)) if isinstance(value, list) else value


@dataclass(frozen=True, slots=True)
class Provenance:
    """Origin of figures, and what is missing of them or unsure.

    `session` and `board` (its identity) are None where figures of several are together; `parts` then has the
    provenance of each. `complete` is True if the capture has ended and nothing of it is missing, else `incomplete` has
    the reasons. `coverage` says which part of its time a capture covered, in µs; None where none is stored, as of an
    import. `ledger` has the sums of losses and notes by grade and reason. Counters named in `likely_counters` rest on a
    `counter_map` that is not certain of them. `simulated` figures are invented. `caveats` are lines to read before the
    figures are trusted, the gravest first.

    >>> import profagent
    >>> about = profagent.open("lab").session().provenance
    >>> about.session, about.complete, about.simulated
    (2, True, False)
    """

    session: int | None
    board: str | None
    hostname: str
    jobs: tuple[str, ...]
    simulated: bool
    complete: bool
    incomplete: tuple[str, ...]
    coverage: Mapping[str, Any] | None
    ledger: Mapping[str, Mapping[str, int]]
    counter_map: str | None
    likely_counters: tuple[str, ...]
    caveats: tuple[str, ...]
    profagent: str = __version__
    parts: tuple[Provenance, ...] = ()

    @classmethod
    async def of(cls, connection: Running, session: SessionRow, job: str | None = None) -> Self:
        """Return the provenance of a session, or of one of its JOBs. Raises StoreError."""
        scopes = [Scope(session, row) for row in await jobs_of(connection, session.session, job)]
        jobs = [await provenance_of(connection, scope) for scope in scopes]
        why = await why_incomplete(connection, session.session)
        coverage = await coverage_of(connection, session.session)
        # A session without a JOB has these lines alone.
        others = [*([SIMULATED] if session.simulated else []), *filter(None, [coverage_line(coverage)])]
        return cls(
            session=session.session,
            board=session.board,
            hostname=session.hostname,
            jobs=tuple(each["job"] for each in jobs),
            simulated=session.simulated,
            complete=not why,
            incomplete=tuple(why),
            coverage=frozen(coverage),
            ledger=frozen(await ledger_of(connection, session.session)),
            counter_map=session.counter_map,
            likely_counters=tuple(sorted({name for each in jobs for name in each["likely_counters"]})),
            caveats=_in_order(why, caveats_of(jobs) or others),
        )

    @classmethod
    def joined(cls, parts: Sequence[Provenance]) -> Provenance:
        """Return the provenance of figures of several sessions: incomplete or simulated if any of them is."""
        if len(parts) == 1:
            return parts[0]
        about = [(f"session {each.session}: ", each) for each in parts]
        ledger: dict[str, Counter[str]] = {"loss": Counter(), "note": Counter()}
        for each in parts:
            for grade, reasons in each.ledger.items():
                ledger[grade].update(reasons)
        maps = {each.counter_map for each in parts}
        return Provenance(
            session=None,
            board=parts[0].board if len({each.board for each in parts}) == 1 else None,
            hostname=parts[0].hostname if len({each.board for each in parts}) == 1 else "",
            jobs=tuple(job for each in parts for job in each.jobs),
            simulated=any(each.simulated for each in parts),
            complete=all(each.complete for each in parts),
            incomplete=tuple(f"{name}{why}" for name, each in about for why in each.incomplete),
            coverage=None,
            ledger=frozen(ledger),
            counter_map=maps.pop() if len(maps) == 1 else None,
            likely_counters=tuple(sorted({name for each in parts for name in each.likely_counters})),
            caveats=_joined_caveats(parts),
            parts=tuple(parts),
        )

    def metadata(self) -> dict[str, str]:
        """Return what a file or another library keeps of it as texts: session, board, completeness, simulated."""
        named = {"session": self.session, "board": self.board}
        texts = {name: str(value) for name, value in named.items() if value is not None}
        flags = {"complete": self.complete, "simulated": self.simulated}
        return {
            "profagent": self.profagent,
            **texts,
            **{name: str(value).lower() for name, value in flags.items()},
            "caveats": "\n".join(self.caveats),
        }


def _joined_caveats(parts: Sequence[Provenance]) -> tuple[str, ...]:
    """Return each line once, the gravest first, with the sessions that it is about."""
    sessions: dict[str, list[str]] = {}
    for each in parts:
        for line in each.caveats:
            sessions.setdefault(line, []).append(str(each.session))
    return tuple(
        f"{'sessions' if len(numbers) > 1 else 'session'} {', '.join(numbers)}: {line}"
        for line, numbers in sorted(sessions.items(), key=lambda each: caveat_rank(each[0]))
    )


def _in_order(why: Sequence[str], lines: Iterable[str]) -> tuple[str, ...]:
    # The line of a JOB leaves out losses, which are among the reasons here.
    first = [f"{INCOMPLETE}{'; '.join(why)}"] if why else []
    others = [line for line in lines if not line.startswith(INCOMPLETE)]
    return tuple(sorted([*first, *others], key=caveat_rank))
