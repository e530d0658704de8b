"""The samples of pyACL's profiling pages: the import is changed, and the steps are written that they leave out."""

from __future__ import annotations

import os
import re
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from profagent_app import acl
from profagent_app.acl import util
from profagent_app.acl.binding import runtime
from profagent_app.errors import LibraryError
from tests.program.conftest import MODEL

pytestmark = pytest.mark.usefixtures("library")

PAGES = Path(__file__).with_name("pages")
# Datasets fit this model only with the strides that it gives, which pyACL does not have.
MODEL_WITH_TENSORS = MODEL + b"input data 128 32\ninput task 4096 4096\noutput prob 128 64\n"
LOADED = "model_id, ret = acl.mdl.load_from_file('model.om')"
STEPS = {
    "import numpy": "import os",
    "Allocate runtime": """
ret = acl.init()
ret = acl.rt.set_device(0)
context, ret = acl.rt.create_context(0)
stream, ret = acl.rt.create_stream()
""",
    "Load a model": LOADED,
    "Create data of": """
def create_dataset(count, size_of):
    dataset = acl.mdl.create_dataset()
    for i in range(count):
        size = size_of(model_desc, i)
        device_data, ret = acl.rt.malloc(size, ACL_MEM_MALLOC_NORMAL_ONLY)
        data = acl.create_data_buffer(device_data, size)
        _, ret = acl.mdl.add_dataset_buffer(dataset, data)
    return dataset

ACL_MEM_MALLOC_NORMAL_ONLY, ACL_MEMCPY_HOST_TO_DEVICE = 2, 1
model_desc = acl.mdl.create_desc()
ret = acl.mdl.get_desc(model_desc, model_id)
input = create_dataset(acl.mdl.get_num_inputs(model_desc), acl.mdl.get_input_size_by_index)
output = create_dataset(acl.mdl.get_num_outputs(model_desc), acl.mdl.get_output_size_by_index)
image = np.arange(128, dtype=np.uint8)
data = acl.mdl.get_dataset_buffer(input, 0)
room = acl.get_data_buffer_size(data)
ret = acl.rt.memcpy(acl.get_data_buffer_addr(data), room, acl.util.numpy_to_ptr(image), image.nbytes,
                    ACL_MEMCPY_HOST_TO_DEVICE)
""",
    "Process the model": """
data = acl.mdl.get_dataset_buffer(output, 0)
dims, ret = acl.mdl.get_output_dims(model_desc, 0)
content = acl.util.ptr_to_bytes(acl.get_data_buffer_addr(data), acl.get_data_buffer_size(data))
result = np.frombuffer(content, np.uint8).reshape(dims["dims"])
""",
    "Destroy allocations": """
for dataset in (input, output):
    for i in range(acl.mdl.get_dataset_num_buffers(dataset)):
        data = acl.mdl.get_dataset_buffer(dataset, i)
        ret = acl.rt.free(acl.get_data_buffer_addr(data))
        ret = acl.destroy_data_buffer(data)
    ret = acl.mdl.destroy_dataset(dataset)
ret = acl.mdl.destroy_desc(model_desc)
ret = acl.mdl.unload(model_id)
""",
    "Destroy runtime": """
ret = acl.rt.synchronize_stream(stream)
ret = acl.rt.destroy_stream(stream)
ret = acl.rt.destroy_context(context)
ret = acl.rt.reset_device(0)
ret = acl.finalize()
""",
}


def sample(page: str) -> list[str]:
    """The page's steps, whole."""
    text = (PAGES / page).read_text("utf-8").replace("import acl", "from profagent_app import acl", 1)
    steps = re.split(r"(?m)^(?=# \d+\. )", text)
    left_out = [(start, step) for step in steps for start in STEPS if "# ......" in step and start in step]
    assert [start for start, _ in left_out] == list(STEPS)
    return [step.replace("# ......", next((STEPS[s] for s, of in left_out if of == step), "")) for step in steps]


def run(steps: list[str], monkeypatch: pytest.MonkeyPatch, folder: Path) -> dict[str, Any]:
    """The names of the sample after its last line."""
    pytest.importorskip("numpy")  # boards need not have it
    monkeypatch.chdir(folder)
    (folder / "model.om").write_bytes(MODEL_WITH_TENSORS)
    names: dict[str, Any] = {}
    exec(compile("".join(steps), "sample", "exec"), names)
    assert (names["image"] + names["result"].reshape(128) == 255).all()
    assert names["result"].shape == (2, 64)
    assert runtime()._library.fake_living() == 0
    return names


def test_the_subscription_pages_sample_runs_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    seen: dict[str, list[object]] = {}
    for name in ("model_id", "op_type", "op_name", "op_duration"):
        watched, found = getattr(acl.prof, f"get_{name}"), seen.setdefault(name, [])
        monkeypatch.setattr(acl.prof, f"get_{name}", lambda *it, w=watched, f=found: f.append(w(*it)) or f[-1])
    names = run(sample("subscription.txt"), monkeypatch, tmp_path)
    os.close(names["w"])  # the page leaves it open, and its thread waits
    for thread in threading.enumerate():
        if isinstance(thread, util._Thread):
            thread.join(60)
            assert not thread.is_alive()
    assert seen == {
        "model_id": [0, 0, 0],
        "op_type": [("Convolution", 0), ("Pooling", 0), ("InnerProduct", 0)],
        "op_name": [("conv1", 0), ("pool1", 0), ("fc", 0)],
        "op_duration": [100, 50, 200],
    }
    assert not caplog.records


def test_the_profiling_pages_sample_runs_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    steps = sample("profiling.txt")
    # In the printed order it records nothing: the page's own constraints ask for acl.prof.init before the model.
    run(steps, monkeypatch, tmp_path)
    assert "call prof_init before a model is loaded" in caplog.text
    assert not list(tmp_path.glob("JOB*"))
    caplog.clear()
    run([*steps[:2], *steps[4:6], *steps[2:4], *steps[6:]], monkeypatch, tmp_path)
    (warning,) = caplog.records
    assert warning.getMessage().startswith("set_config(3, '15'): the SS928's runtime has no svp_acl_prof_set_config")
    (job,) = tmp_path.glob("JOB*")
    assert sorted(each.name for each in job.glob("data/*.done")) == [
        "acl_api.0.yolo.0.done",
        "aicore.0.yolo.0.0.1.1.0.done",
    ]


def test_a_name_that_is_not_there_says_so() -> None:
    for module, name in ((acl, "media"), (acl.rt, "create_event"), (acl.mdl, "load_from_file_with_mem")):
        assert not hasattr(module, name)
        with pytest.raises(AttributeError, match=rf"acl.*{name}: not in the SS928's runtime"):
            getattr(module, name)
    with pytest.raises(LibraryError, match=r"libsvp_acl.*\.so has no svp_acl_rt_malloc_host: this runtime cannot"):
        acl.rt.malloc_host(16)


def test_a_thread_is_stopped_when_it_has_read_what_was_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(util, "LONGEST_STOP_S", 0)
    read, write = os.pipe()
    acl.prof.create_subscribe_config(1, 0, write)
    os.write(write, bytes(256))
    stopped = threading.Event()

    def late(fds: list[int]) -> None:
        time.sleep(0.05)
        os.read(fds[0], 256)
        stopped.wait(60)
        os.read(fds[0], 256)  # closed now: no error of a thread that was stopped

    number, _ = acl.util.start_thread(late, [read])
    (thread,) = (each for each in threading.enumerate() if each.ident == number)
    assert acl.util.stop_thread(number) == 0
    assert not runtime().has_unread()
    os.close(read)
    os.close(write)
    stopped.set()
    thread.join(60)
