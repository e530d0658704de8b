"""`acl.mdl`: models, their descriptions, datasets."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any

from profagent_app.acl.binding import (
    code_of,
    refusing,
    returning_code,
    returning_text,
    returning_value,
    runtime,
    value_of,
)

LONGEST_NAME, MOST_DIMENSIONS = 128, 128

create_desc = returning_value("svp_acl_mdl_create_desc")
get_desc = returning_code("svp_acl_mdl_get_desc")
destroy_desc = returning_code("svp_acl_mdl_destroy_desc")
get_num_inputs = returning_value("svp_acl_mdl_get_num_inputs")
get_num_outputs = returning_value("svp_acl_mdl_get_num_outputs")
get_input_size_by_index = returning_value("svp_acl_mdl_get_input_size_by_index")
get_output_size_by_index = returning_value("svp_acl_mdl_get_output_size_by_index")
get_input_default_stride = returning_value("svp_acl_mdl_get_input_default_stride")  # pyACL has no strides
get_output_default_stride = returning_value("svp_acl_mdl_get_output_default_stride")
get_input_name_by_index = returning_text("svp_acl_mdl_get_input_name_by_index")
get_output_name_by_index = returning_text("svp_acl_mdl_get_output_name_by_index")
get_input_format = returning_value("svp_acl_mdl_get_input_format")
get_output_format = returning_value("svp_acl_mdl_get_output_format")
get_input_data_type = returning_value("svp_acl_mdl_get_input_data_type")
get_output_data_type = returning_value("svp_acl_mdl_get_output_data_type")

create_dataset = returning_value("svp_acl_mdl_create_dataset")
destroy_dataset = returning_code("svp_acl_mdl_destroy_dataset")
get_dataset_num_buffers = returning_value("svp_acl_mdl_get_dataset_num_buffers")
get_dataset_buffer = returning_value("svp_acl_mdl_get_dataset_buffer")
set_dynamic_batch_size = returning_code("svp_acl_mdl_set_dynamic_batch_size")


class _Dimensions(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char * LONGEST_NAME),
        ("count", ctypes.c_size_t),
        ("dims", ctypes.c_int64 * MOST_DIMENSIONS),
    )


def load_from_file(path: str) -> tuple[int, int]:
    """Load a model file. Return its id, and a code."""
    return value_of(0, lambda: runtime().load_model(Path(path).read_bytes()))


def load_from_mem(model: int, size: int) -> tuple[int, int]:
    """Load a model from device memory that stays until it is unloaded. Return its id, and a code."""
    return value_of(0, runtime().load_from_address, model, size)


def execute(model_id: int, inputs: int, outputs: int) -> int:
    """Run a model with two datasets; return a code."""
    return code_of(runtime().execute, model_id, inputs, outputs)


def execute_async(model_id: int, inputs: int, outputs: int, stream: int) -> int:
    """Run a model with two datasets in a stream; return a code."""
    return code_of(runtime().execute_async, model_id, inputs, outputs, stream)


def unload(model_id: int) -> int:
    """Unload a model; return a code."""
    return code_of(runtime().unload_model, model_id)


def add_dataset_buffer(dataset: int, data_buffer: int) -> tuple[int, int]:
    """Append a data buffer to a dataset. Return the dataset, and a code."""
    return dataset, code_of(runtime().call, "svp_acl_mdl_add_dataset_buffer", dataset, data_buffer)


def get_input_index_by_name(model_desc: int, name: str) -> tuple[int, int]:
    """Return the index of an input, and a code."""
    return value_of(0, _index, "svp_acl_mdl_get_input_index_by_name", model_desc, name)


def get_output_index_by_name(model_desc: int, name: str) -> tuple[int, int]:
    """Return the index of an output, and a code."""
    return value_of(0, _index, "svp_acl_mdl_get_output_index_by_name", model_desc, name)


def get_input_dims(model_desc: int, index: int) -> tuple[dict[str, Any], int]:
    """Return `name`, `dimCount` and `dims` of an input, and a code."""
    return _dimensions("svp_acl_mdl_get_input_dims", model_desc, index)


def get_output_dims(model_desc: int, index: int) -> tuple[dict[str, Any], int]:
    """Return `name`, `dimCount` and `dims` of an output, and a code."""
    return _dimensions("svp_acl_mdl_get_output_dims", model_desc, index)


def _index(function: str, model_desc: int, name: str) -> int:
    index: int = runtime().output(function, ctypes.c_size_t(), 2, model_desc, os.fsencode(name))
    return index


def _dimensions(function: str, model_desc: int, index: int) -> tuple[dict[str, Any], int]:
    found = _Dimensions()
    code = code_of(runtime().call, function, model_desc, index, ctypes.byref(found))
    name = found.name.decode(errors="replace")
    return {"name": name, "dimCount": found.count, "dims": found.dims[: found.count]}, code


__getattr__ = refusing("acl.mdl")
