"""Types of the documents about boards and this host: checks, settings, deployments, certificates, counter maps."""

from __future__ import annotations

from typing import Any, Literal, TypedDict


class FindingDocument(TypedDict):
    """Verdict of a check, its evidence, and the command that corrects the fault."""

    check: str
    mark: Literal["good", "bad", "unknown"]
    evidence: str
    remedy: str


class SectionDocument(TypedDict):
    """Findings about one subject: a host, a board, a JOB or a file."""

    about: str
    findings: list[FindingDocument]


class DoctorDocument(TypedDict):
    """Answer of `doctor`; `good` is true if no finding is bad."""

    good: bool
    sections: list[SectionDocument]


class CheckedOptionsDocument(SectionDocument):
    """Findings about profiling options, and their corrected text if anything is wrong."""

    corrected: str | None


class AclConfigDocument(TypedDict):
    """Object `profiler` of an acl.json; None if it has none."""

    path: str
    board: str | None
    profiler: dict[str, Any] | None


class AclConfigSetDocument(SectionDocument):
    """Findings about an acl.json that was written, or was so already (`changed` false)."""

    changed: bool


class BoardDocument(TypedDict):
    """Board that has a name; empty texts are not known."""

    name: str
    address: str
    uuid: str
    fingerprint: str
    ssh: str
    machine: str
    prefix: str
    groups: list[str]
    labels: dict[str, str]


class DeployedDocument(BoardDocument):
    """Board with its daemon: the version, what was changed there and what it replaced; a dry run changes nothing."""

    version: str
    changes: list[str]
    replaced: list[str]
    daemon_version: str | None
    is_deployed: bool


class RemovedDocument(TypedDict):
    """Answer of `deploy --remove`; false if nothing was deployed there."""

    removed: bool


class BundleDocument(TypedDict):
    """Bundle that was made; `start_s` is None if this host cannot run it."""

    file: str
    name: str
    machine: str
    python: str
    size_bytes: int
    file_bytes: int
    is_compiled: bool
    start_s: float | None


class CertificateDocument(TypedDict):
    """Certificate of the CA; `until` is a time in ISO 8601."""

    kind: str
    name: str
    role: str | None
    fingerprint: str
    until: str
    addresses: list[str]
    revoked: bool
    expired: bool


class IssuedDocument(CertificateDocument):
    """Certificate that was issued, and its folder."""

    folder: str


class FitDocument(TypedDict):
    """Number at a byte `offset` of a record, times `scale`, over its `denominator`; it gives `agreeing` values."""

    offset: int
    type: str
    scale: float
    denominator: str
    agreeing: int


class LearntCounterDocument(TypedDict):
    """Result for a counter; `fit` is None if there is none, or if several fit equally: `rivals` has these."""

    counter: str
    verdict: str
    rows: int
    fit: FitDocument | None
    rivals: list[FitDocument]
    advice: str


class MatchedTableDocument(TypedDict):
    """Table of the vendor's tool: the inference that it is of, and the rows that are records of it."""

    file: str
    job: str
    log: str
    rows: int
    matched: int
    by: str


class CalibrationDocument(TypedDict):
    """Answer of `calibrate`."""

    tables: list[MatchedTableDocument]
    simulated: bool
    digest: str
    counters: list[LearntCounterDocument]
