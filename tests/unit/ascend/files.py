"""Files of other tools, made by their documented columns."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profagent.importing.paths import import_paths
from profagent.importing.sources import Walk
from profagent.store.workspace import Workspace

if TYPE_CHECKING:
    from profagent.ascend.importing import ImportedSource

OP_SUMMARY = (
    "Device_id,Model ID,Task ID,Stream ID,Op Name,OP Type,OP State,Task Type,Task Start Time(us),Task Duration(us),"
    "Task Wait Time(us),Block Num,Mix Block Num,HF32 Eligible,Input Shapes,Input Data Types,Input Formats,"
    "Output Shapes,Output Data Types,Output Formats,Context ID,aicore_time(us),aic_total_cycles,aic_mac_ratio,"
    "aic_mte1_ratio,aic_mte2_ratio,aic_fixpipe_ratio,aiv_vec_ratio"
)
KERNEL_DETAILS = "Step Id,Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us),Block Dim"
# A time of 19 digits, as nanoseconds: a float would round it.
START_NS = 1787504007005868315

# By family: a header, and a row below it.
SUMMARIES = {
    "op_statistic": (
        "Device_id,OP Type,Core Type,Count,Total Time(us),Min Time(us),Avg Time(us),Max Time(us),Ratio(%)",
        "0,MatMulV2,AI_CORE,2,8.0,3.0,4.0,5.0,100.0",
    ),
    "communication_statistic": (
        "Device_id,OP Type,Count,Total Time(us),Min Time(us),Avg Time(us),Max Time(us),Ratio(%)",
        "0,hcom_allReduce_,2,8.0,3.0,4.0,5.0,100.0",
    ),
    "api_statistic": (
        "Device_id,Level,API Name,Time(us),Count,Avg(us),Min(us),Max(us),Variance",
        "host,acl,aclrtMalloc,222.36,2,111.18,2.12,220.24,11894.084",
    ),
    "step_trace": (
        (
            "Device_id,Iteration ID,FP Start(us),BP End(us),Iteration End(us),Iteration Time(us),FP to BP Time(us),"
            "Iteration Refresh(us),Data Aug Bound(us),Model ID,Reduce Start(us),Reduce Duration(us)"
        ),
        "0,1,100.0,140.0,150.0,50.0,40.0,10.0,N/A,1,120.0,5.0",
    ),
    "step_trace_time": (
        (
            "Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage,Bubble,"
            "Communication(Not Overlapped and Exclude Receive),Preparing"
        ),
        "7,10.0,4.0,2.0,6.0,1.0,15.0,0.0,4.0,3.0",
    ),
    "ai_stack_time": ("Infer ID,Module,API,Start Time(ns),Duration(ns)", "1,AscendCL,aclmdlExecute,100,20"),
    "runtime_api": (
        "Name,Stream ID,Time(%),Time(ns),Calls,Avg(ns),Min(ns),Max(ns),Process ID,Thread ID",
        "rtMalloc,1,100.0,9000,3,3000,1000,5000,11,12",
    ),
    "acl": ("Name,Type,Start Time(us),Duration(us),Process ID,Thread ID", "aclrtMalloc,ACL_RTS,1.5,2.5,11,12"),
    "fusion_op": (
        (
            "Device_id,Model Name,Model ID,Fusion Op,Original Ops,Memory Input(KB),Memory Output(KB),Memory Weight(KB),"
            "Memory Workspace(KB),Memory Total(KB)"
        ),
        "0,net,1,conv1+relu1,conv1;relu1,1,2,3,4,10",
    ),
    "task_time": (
        "Device_id,kernel_name,kernel_type,stream_id,task_id,task_time(us),task_start(us),task_stop(us)",
        "0,N/A,PROFILING_ENABLE,49,3,0.020,1787504006851852.778\t,1787504006851852.798\t",
    ),
    "task_time (to CANN 6)": (
        (
            "Time(%),Time(us),Count,Avg(us),Min(us),Max(us),Waiting(us),Running(us),Pending(us),Type,API,Task ID,"
            "Op Name,Stream ID"
        ),
        "100.0,8.0,1,8.0,8.0,8.0,0.0,8.0,0.0,kernel AI core task,LAUNCH,1,conv1,5",
    ),
    "ge_op_execute": (
        "Thread ID,OP Name,OP Type,Event Type,Start Time(us),Duration(us)",
        "12,conv1,Conv2D,Tiling,1.5,2.5",
    ),
    "aicpu": (
        (
            "Device_id,Timestamp(us),Node,Compute_time(us),Memcpy_time(us),Task_time(us),Dispatch_time(us),Total_time(us),"
            "Stream ID,Task ID"
        ),
        "0,10.5,getnext,1.0,2.0,3.0,4.0,10.0,5,6",
    ),
    "aicpu_mi": ("Device_id,Node Name,Start Time(us),End Time(us),Queue Size", "0,queue,1.0,2.0,3"),
    "dp": ("Device_id,Timestamp(us),Action,Source,Cached Buffer Size", "0,10.5,Last queue dequeue,queue,8"),
    "l2_cache": ("Device_id,Stream Id,Task Id,Hit Rate,Victim Rate,Op Name", "0,2,11052,N/A,0.23264,conv1"),
    "msprof_tx": (
        "pid,tid,category,event_type,payload_type,payload_value,Start_time(us),End_time(us),message_type,message",
        "11,12,0,marker,0,0,10.0,10.0,0,begin",
    ),
    "memory_record": (
        "Component,Timestamp(us),Total Allocated(MB),Total Reserved(MB),Total Active(MB),Stream Ptr,Device Type",
        "APP,1736408883573957.920\t,,2109.6,,,NPU:0",
    ),
    "npu_module_mem": ("Component,Timestamp(us),Total Reserved(MB),Device", "SLOG,1736408883657086.220\t,0.0,NPU:0"),
    "npu_mem": ("Device_id,event,ddr(KB),hbm(KB),memory(KB),timestamp(us)", "0,Device,0.0,10.0,10.0,5.0"),
    "operator_memory": (
        "Name,Size(KB),Allocation Time(us),Release Time(us),Duration(us),Allocation Total Allocated(MB),Device Type",
        "aten::empty,0.5,1736408883694624.810\t,,,954.3,NPU:0",
    ),
    "static_op_mem": (
        "Device_id,Op Name,Model Name,Graph ID,Node Index Start,Node Index End,Size(KB)",
        "0,conv1,net,1,0,5,12.5",
    ),
    "operator_details": (
        "Name,Input Shapes,Call Stack,Host Self Duration(us),Host Total Duration(us),Device Self Duration(us)",
        'aten::add,"4,5","a.py(1): f;\nb.py(2): g",1.0,2.0,3.0',
    ),
    "OpBasicInfo": (
        "Op Name,Op Type,Task Duration(us),Block Dim,Mix Block Dim,Device Id,Pid,Current Freq,Rated Freq,",
        "my_kernel,vector,7.120001,1,NA,3,250,1800,1800,",
    ),
    "PipeUtilization": (
        "block_id,sub_block_id,aic_time(us),aic_cube_ratio,aiv_time(us),aiv_vec_ratio,aiv_scalar_ratio,",
        "0,vector0,NA,NA,3.100000,0.007000,0.9,",
    ),
    "ArithmeticUtilization": ("block_id,sub_block_id,aic_time(us),aic_cube_ratio,aic_cube_fops,", "0,cube0,1,0.5,7,"),
    "L2Cache": ("block_id,sub_block_id,aic_write_cache_hit,aic_total_hit_rate(%),", "0,cube0,7,87.5,"),
    "MemoryL0": ("block_id,sub_block_id,aic_l0a_read_bw(GB/s),", "0,cube0,7,"),
    "MemoryUB": ("block_id,sub_block_id,aiv_ub_read_bw_vector(GB/s),", "0,vector0,7,"),
    "Memory": ("block_id,sub_block_id,aic_main_mem_read_bw(GB/s),aiv_gm_to_ub_bw(GB/s),", "0,cube0,7,NA,"),
    "ResourceConflictRatio": ("block_id,sub_block_id,aic_cube_wait_ratio,aiv_vec_wait_ratio,", "0,cube0,0.5,NA,"),
    "ai_core_utilization": ("Device_id,Core ID,mac_ratio,scalar_ratio", "0,1,0.5,0.25"),
}


def event(name: str, pid: int, ts: object, dur: float = 1.0, **more: Any) -> dict[str, Any]:
    """A complete event."""
    return {"name": name, "pid": pid, "tid": 1, "ts": ts, "dur": dur, "ph": "X", "args": {}} | more


def process(pid: int, name: str) -> dict[str, Any]:
    """What a process is called."""
    return {"name": "process_name", "pid": pid, "tid": 0, "ph": "M", "args": {"name": name}}


# By family: events.
TIMELINES: dict[str, list[dict[str, Any]]] = {
    "msprof": [
        process(640551328, "Ascend Hardware"),
        process(640551167, "CANN"),
        event("AscendCL@aclmdlExecute", 640551167, "1787504007005868.315", 9.5, args={"Mode": "ACL_MODEL"}),
        event("conv1", 640551328, "1787504007005870.001", 4.25, args={"Task Type": "AI_CORE", "Stream Id": 3}),
    ],
    "ai_stack_time": [
        process(1, "AscendCL"),
        process(2, "Runtime"),
        event("aclmdlExecute", 1, 10.5, 3.0, args={"Iter ID": 1, "Duration Time(ns)": 3000}),
    ],
    "thread_group": [process(1, "Thread Group"), event("aclmdlExecute", 1, 10.5)],
    "task_time": [
        process(3, "Ascend Hardware"),
        event("conv1", 3, 56635864673.78, 4.25, args={"Task Type": "AI_CORE", "Stream Id": 3, "Task Id": 4}),
    ],
    "runtime_api": [process(1, "Runtime"), event("rtMalloc", 1, 10.5, args={"Thread Id": 5})],
    "ge": [process(1, "GE"), event("Infer", 1, 10.5, args={"Model Name": "net", "Model Id": 1})],
    "ge_op_execute": [event("Tiling", 1, 10.5, cat="GE_OP_EXECUTE", args={"Thread ID": 5})],
    "step_trace": [
        process(1, "Step Trace"),
        event("Iteration 1", 1, 10.5, 50.0, cat="Iteration Time", args={"Iteration ID": 1}),
        event("FP_BP Time 1", 1, 10.5, 40.0, cat="FP_BP Time", args={"Iteration ID": 1}),
        event("Iteration Refresh 1", 1, 50.5, 10.0, cat="Iteration Refresh", args={"Iteration ID": 1}),
        {
            **event("Data_aug Bound 1", 1, 60.5, cat="Data_aug Bound", id="Data_aug Bound 1"),
            "ph": "t",
            "args": {"Data_aug Bound(us)": 2.5},
        },
    ],
    "hccl": [process(1, "HCCL"), event("hcom_allReduce__1", 1, 10.5, args={"transport type": "SDMA"})],
    "msproftx": [process(1, "MsprofTx"), event("mark", 1, 10.5, 0.0, args={"event_type": "marker"})],
    "trace_view": [process(1, "Python"), event("ProfilerStep#7", 1, "10.500", 15.0)],
}


def kernel(
    name: str = "conv1",
    kind: str = "Conv2D",
    *,
    start: str = "1787504007005868.315\t",
    duration: str = "4.380",
    model: str = "4294967295",
    stream: str = "46",
) -> str:
    """A row of op_summary."""
    shapes = '"""512,16;;"""'
    return (
        f"0,{model},7,{stream},{name},{kind},dynamic,AI_CORE,{start},{duration},0.000000,8,0,NO,{shapes},FLOAT;INT8,ND,"
        f'"""512,16""",FLOAT,ND,N/A,4.1,100,0.5,0.1,0.25,0.125,N/A'
    )


def write(file: Path, text: str) -> Path:
    """A file, and the folders above it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, "utf-8", newline="")
    return file


def summary(file: Path, header: str, *rows: str) -> Path:
    """A CSV file."""
    return write(file, "\n".join([header, *rows]) + "\n")


def timeline(file: Path, events: Sequence[Any]) -> Path:
    """A JSON file of events."""
    return write(file, json.dumps(events))


def database(file: Path) -> Path:
    """One of msprof with two tasks of two steps."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript(f"""
            CREATE TABLE STRING_IDS (id INTEGER PRIMARY KEY, value TEXT);
            INSERT INTO STRING_IDS VALUES (1, 'conv1'), (2, 'Conv2D'), (3, 'AI_CORE'), (4, 'aclmdlExecute'),
                (5, 'aic_mac_ratio'), (6, 'aiv_vec_ratio'), (7, 'aiv_mte3_ratio'), (8, 'aic_total_cycles');
            CREATE TABLE TASK (startNs INTEGER, endNs INTEGER, deviceId INTEGER, connectionId INTEGER,
                globalTaskId INTEGER, globalPid INTEGER, taskType INTEGER, contextId INTEGER, streamId INTEGER,
                taskId INTEGER, modelId INTEGER, depth INTEGER);
            INSERT INTO TASK VALUES ({START_NS}, {START_NS} + 1001, 2, 1, 1, 1, 3, 0, 5, 1, 4294967295, 0),
                ({START_NS} + 5000, {START_NS} + 7002, 2, 1, 2, 1, 3, 0, 5, 2, 4294967295, 0);
            CREATE TABLE COMPUTE_TASK_INFO (name INTEGER, globalTaskId INTEGER PRIMARY KEY, blockDim INTEGER,
                taskType INTEGER, opType INTEGER);
            INSERT INTO COMPUTE_TASK_INFO VALUES (1, 1, 8, 3, 2), (1, 2, 8, 3, 2);
            CREATE TABLE STEP_TIME (id INTEGER, startNs INTEGER, endNs INTEGER);
            INSERT INTO STEP_TIME VALUES (1, {START_NS}, {START_NS} + 4000), (2, {START_NS} + 4001, {START_NS} + 9000);
            CREATE TABLE ENUM_API_TYPE (id INTEGER PRIMARY KEY, name TEXT);
            INSERT INTO ENUM_API_TYPE VALUES (20000, 'acl');
            CREATE TABLE CANN_API (startNs INTEGER, endNs INTEGER, type INTEGER, globalTid INTEGER,
                connectionId INTEGER PRIMARY KEY, name INTEGER);
            INSERT INTO CANN_API VALUES (0, 1500, 20000, 1, 1, 4), (2000, 4500, 20000, 1, 2, 4);
            CREATE TABLE TASK_PMU_INFO (globalTaskId INTEGER, name INTEGER, value NUMERIC);
            INSERT INTO TASK_PMU_INFO VALUES (1, 5, 0.75), (1, 6, 0), (1, 7, 0.25), (1, 8, 1000), (2, 6, 0.5),
                (2, 6, 1);
            CREATE TABLE status_info (id INTEGER, key TEXT);
        """)
    return file


def found(*paths: Path) -> Walk:
    """What there is at paths."""
    scratch = paths[0].with_name("scratch")
    scratch.mkdir(exist_ok=True)
    walk = Walk(scratch, paths[0] / "workspace")
    for path in paths:
        walk.look_through(path)
    walk.finish()
    return walk


def taken(workspace: Path, *paths: Path) -> list[ImportedSource]:
    """Import paths."""
    return asyncio.run(import_paths(paths, Workspace(workspace))).taken


def rows(workspace: Path, sql: str) -> list[tuple[Any, ...]]:
    """What the workspace's database says."""
    with closing(sqlite3.connect(workspace / "profagent.db")) as connection:
        return connection.execute(sql).fetchall()
