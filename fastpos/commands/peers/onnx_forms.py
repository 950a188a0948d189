"""ONNX Runtime's own RotaryEmbedding (com.microsoft), one node for q and one for k, buffers bound once."""

from functools import partial
from importlib import import_module

import numpy as np

from ..workloads import Array
from .job import Form, Job


def bound(job: Job) -> Form:
    """Table given, in x's dtype, of the rows that the tokens need; inputs and results are bound to memory that exists."""
    runtime = import_module("onnxruntime")
    case = job.case
    options = runtime.SessionOptions()
    options.intra_op_num_threads = job.threads
    options.inter_op_num_threads = 1
    # A helper that waits by spinning would take the processor from the next contender.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = runtime.InferenceSession(_model(job), options, providers=["CPUExecutionProvider"])

    pairs = case.width // 2
    frequencies = (1 / job.base() ** (np.arange(pairs) / pairs)).astype(np.float32)
    angles = job.positions.astype(np.float32)[:, None] * frequencies
    rows = np.arange(case.tokens)[None].repeat(case.batch, axis=0)
    tables = {"cosine": np.cos(angles), "sine": np.sin(angles)}
    inputs = {"rows": rows, **{name: table.astype(case.dtype) for name, table in tables.items()}}
    flat = [x.reshape(case.batch, case.tokens, -1) for x in job.inputs]
    values = {f"x{index}": x for index, x in enumerate(flat)}
    targets = [np.empty_like(x) for x in flat]

    binding = session.io_binding()
    kept = {name: runtime.OrtValue.ortvalue_from_numpy(x) for name, x in {**inputs, **values}.items()}
    for name, value in kept.items():
        binding.bind_ortvalue_input(name, value)
    written = [runtime.OrtValue.ortvalue_from_numpy(y) for y in targets]
    for index, value in enumerate(written):
        binding.bind_ortvalue_output(f"y{index}", value)
    call = partial(session.run_with_iobinding, binding)

    def results() -> tuple[Array, ...]:
        call()
        return tuple(y.numpy().reshape(x.shape) for y, x in zip(written, job.inputs, strict=True))

    return Form(call, results, kept)


def _model(job: Job) -> bytes:
    """A graph of nothing but the rotations of q and k, each ``(b, s, h * d)``."""
    onnx = import_module("onnx")
    helper, case = onnx.helper, job.case
    dtype = getattr(onnx.TensorProto, case.dtype.upper().replace("FLOAT32", "FLOAT"))
    info = partial(helper.make_tensor_value_info, elem_type=dtype)
    nodes, arrays, results = [], [], []
    for index, heads in enumerate(case.heads):
        shape = [case.batch, case.tokens, heads * case.width]
        arrays.append(info(f"x{index}", shape=shape))
        results.append(info(f"y{index}", shape=shape))
        names = [f"x{index}", "rows", "cosine", "sine"]
        # The name is all that the runtime says of a node when it has no kernel for its type.
        attributes = {
            "interleaved": int(case.interleaved),
            "name": f"{case.dtype} rotation {index}",
            "domain": "com.microsoft",
        }
        nodes.append(helper.make_node("RotaryEmbedding", names, [f"y{index}"], **attributes))
    table = [case.tokens, case.width // 2]
    rows = helper.make_tensor_value_info("rows", onnx.TensorProto.INT64, [case.batch, case.tokens])
    given = [*arrays, rows, info("cosine", shape=table), info("sine", shape=table)]
    graph = helper.make_graph(nodes, "rotations", given, results)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    serialized: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()
    return serialized
