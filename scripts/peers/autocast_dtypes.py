"""The dtype of each layer's output under PyTorch's autocast for CUDA, on a machine without a GPU.

PyTorch's fake tensors have a device, a dtype and a shape, and no memory. Operations on them go through autocast's own
lists for CUDA, so the dtypes are PyTorch's, not a copy of its tables.
"""

import warnings

import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode

import torch_network as networks

NAMES = {torch.float64: "f64", torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}
DTYPES = {name: dtype for dtype, name in NAMES.items()} | {"i32": torch.int64, "i64": torch.int64}


class Shapes(networks.Network):
    """A network of fake tensors: dropout is PyTorch's own, because what halfmark dropped is of real memory."""

    def sequence(self, layers, x):
        for layer in layers:
            if layer["layer"] == "dropout":
                x = F.dropout(x, layer.get("p", 0.5), self.training)
                self.dtypes[layer["name"]] = x.dtype
            else:
                x = super().sequence([layer], x)
        return x


def of_cuda_autocast(dump, low):
    """Layer -> name of the dtype of its output, in training under torch.autocast("cuda", low)."""
    index = dump.index
    enabled, dtype = torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")
    torch.set_autocast_enabled("cuda", True)
    torch.set_autocast_dtype("cuda", low)
    try:
        # Without cuDNN an LSTM is a loop over torch's own cell: cuDNN's would need a GPU to choose its memory.
        with FakeTensorMode(), torch.backends.cudnn.flags(enabled=False), warnings.catch_warnings():
            warnings.simplefilter("ignore")

            def fake(role, name, step=-1):
                return torch.empty(dump.shape(role, name, step), dtype=DTYPES[dump.dtype(role, name, step)], device="cuda")

            tensors = {name: fake("parameter", name).requires_grad_() for name in dump.names("parameter")}
            tensors |= {name: fake("state", name) for name in dump.names("state")}
            network = Shapes(index["model"], tensors, momentum=index["batchnorm_momentum"])
            output = network(fake("input", "", 0))
            if "loss" in index["model"]:
                spec = index["model"]["loss"]
                logs = F.log_softmax(output, -1)
                network.dtypes["log_probabilities"] = logs.dtype  # that cross-entropy and CTC begin with
                if spec["loss"] == "ctc":  # needs the lengths' values; its result has the dtype of what it is given
                    loss = logs
                else:
                    loss = networks.LOSSES[spec["loss"]](network, output, fake("target", "", 0).float(), spec)
                network.dtypes["loss"] = loss.dtype
    finally:
        torch.set_autocast_enabled("cuda", enabled)
        torch.set_autocast_dtype("cuda", dtype)
        torch.clear_autocast_cache()
    return {name: NAMES[found] for name, found in network.dtypes.items() if found in NAMES}


def differences(dump, low):
    """One line for each layer whose output has another dtype in halfmark than under PyTorch's autocast; how many agree."""
    expected = of_cuda_autocast(dump, low)
    lines, agreeing = [], 0
    for one in dump.index["activations"]:
        layer, found = one["layer"], one["dtype"]
        if layer not in expected:
            lines.append(f"output of {layer} is {found}; PyTorch's network has no such layer")
        elif expected[layer] != found:
            lines.append(f"output of {layer} is {found}; under PyTorch's autocast for CUDA it is {expected[layer]}")
        else:
            agreeing += 1
    return lines, agreeing
