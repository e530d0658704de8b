"""`profagent export summary`: the vendor's tables op_summary, op_statistic and acl_statistic as CSV or JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from profagent.cli.progress import progress
from profagent.export.job_files import NO_CHOICE, JobFileWriter, export_jobs, name_with_model
from profagent.export.tables import UNKNOWN_FIELD, acl_statistic_rows, icache_miss_rate, inference_tables, mean_tables
from profagent.store.queries import call_logs, calls
from profagent.store.selection import Selection
from profagent.tables.table import ACL_STATISTIC, sheet_pieces

if TYPE_CHECKING:
    from pathlib import Path

    from profagent.export.job_files import ExportedJob
    from profagent.store.database import Running
    from profagent.store.selection import Choice, InferenceRow

AGGREGATE = "aggregate"
LEFT_OUT = "left out, but in op_summary where all is known of the NPU"


async def export_summary(
    database: Path,
    directory: Path,
    *,
    session: int | None = None,
    job: str | None = None,
    choice: Choice = NO_CHOICE,
    sheet_format: str = "csv",
    aggregate: bool = False,
) -> list[ExportedJob]:
    """Write the tables op_summary, op_statistic and acl_statistic. Arguments as for `export_jobs`.

    `aggregate` writes one table for the mean of all chosen inferences of a model, instead of one for each
    inference.
    """

    async def write(connection: Running, files: JobFileWriter) -> None:
        selection = await Selection.of(connection, files.scope, choice._replace(by_aicore=True))
        make_tables = mean_tables if aggregate else inference_tables
        total = len(await selection.groups()) if aggregate else await selection.count()
        # Unknown for results of another tool, which has durations in ns and no ticks.
        mhz = files.scope.job.clock_mhz
        with progress("export", "tables") as shown:
            async for tables in make_tables(connection, files.scope, selection):
                sheets = (tables.op_summary.texts(sheet_format), tables.op_statistic.texts(sheet_format))
                for row, op_summary, op_statistic in zip(tables.inferences, *sheets, strict=True):
                    name = op_summary_name(row, mhz, is_aggregate=aggregate)
                    files.write(name, sheet_format, op_summary, row, is_aggregate=aggregate)
                    name = op_statistic_name(row, is_aggregate=aggregate)
                    files.write(name, sheet_format, op_statistic, row, is_aggregate=aggregate)
                    shown(row.position + 1, total)
        for log in await call_logs(connection, files.scope):
            rows = await acl_statistic_rows(calls(connection, files.scope, log.log))
            data = b"".join(sheet_pieces(ACL_STATISTIC, rows, sheet_format)) if rows else b""
            files.write(acl_statistic_name(log.device_id, log.model_id), sheet_format, data, log, is_aggregate=True)

    return await export_jobs(database, directory, session, job, write, LEFT_OUT)


def op_summary_name(row: InferenceRow, frequency_mhz: int | None, *, is_aggregate: bool) -> str:
    """Return the name of a file of op_summary.

    It is
    op_summary_{device_id}.{model}.{model_id}.{batch_num}.{pictures}.{icache_miss_rate}.{frequency}[.reload{n}],
    where the pictures are `{input_pic_num}.{current_pic_count}`, or `aggregate` for the mean of several inferences.
    """
    pictures = AGGREGATE if is_aggregate else f"{row.input_pic_num}.{row.current_pic_count}"
    frequency = UNKNOWN_FIELD if frequency_mhz is None else frequency_mhz
    reload = f".reload{row.load}" if row.load and not is_aggregate else ""
    fields = f".{row.model_id}.{row.batch_num}.{pictures}.{icache_miss_rate(row)}.{frequency}{reload}"
    return name_with_model(f"op_summary_{row.device_id}.", row.model_name, fields)


def op_statistic_name(row: InferenceRow, *, is_aggregate: bool) -> str:
    """Return op_statistic_{device_id}_{model_id}_{current_pic_count}_{iter_id}, with `aggregate` for a mean."""
    pictures = AGGREGATE if is_aggregate else f"{row.current_pic_count}_{row.iter_id}"
    return f"op_statistic_{row.device_id}_{row.model_id}_{pictures}"


def acl_statistic_name(device_id: int, model_id: int) -> str:
    """Return acl_statistic_{device_id}_{model_id}_0.

    The vendor's last field is an inference; calls belong to no inference, so it is 0.
    """
    return f"acl_statistic_{device_id}_{model_id}_0"
