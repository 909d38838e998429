"""A process of PyTorch that times training steps on request, as `halfmark sample` does.

Reads lines of JSON {"dump": FOLDER, "policy": NAME, "seconds": S} and answers each with one line of JSON. The step is
zero_grad(set_to_none=True), forward, loss, backward and the optimizer; layers alone get the dumped gradient of their output.
The same numbers go in as into halfmark, and the gradient of a floating-point input is computed, as halfmark always does.
"""

import contextlib
import json
import statistics
import sys
import time

import torch
import torch.nn.functional as F

import torch_network as networks
from dumped import Dump

RATE = 1e-12  # kStandstillRate of bench/run/performance.h: parameters do not change
WARM_UP = 0.05  # seconds of steps before the first answer for a case


class FastNetwork(networks.Network):
    """torch_network's functions, with PyTorch's own dropout and LSTM modules that are made once."""

    def __init__(self, model, tensors):
        super().__init__(model, tensors)
        self.modules = {}

    def sequence(self, layers, x):
        for layer in layers:
            x = FAST.get(layer["layer"], networks.KINDS[layer["layer"]])(self, layer, x)
        return x


def dropout(net, layer, x):
    p = layer.get("p", 0.5)
    return F.dropout2d(x, p) if layer.get("channels", False) else F.dropout(x, p)


def lstm(net, layer, x):
    module = net.modules.get(layer["name"])
    if module is None:
        both = layer.get("bidirectional", False)
        module = torch.nn.LSTM(x.shape[2], layer["hidden"], batch_first=True, bidirectional=both)
        for direction in ["", "reverse."] if both else [""]:
            suffix = "_l0" + ("_reverse" if direction else "")
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
                setattr(module, name + suffix, net.of(layer, direction + name))
        net.modules[layer["name"]] = module
    return module(x)[0]


def concat(net, layer, x):
    return torch.cat([net.sequence(branch, x) for branch in layer["branches"]], dim=1)


FAST = {"dropout": dropout, "lstm": lstm, "concat": concat}


def in_best_layout(tensor):
    return tensor.contiguous(memory_format=torch.channels_last) if tensor.dim() == 4 else tensor.contiguous()


class Step:
    def __init__(self, folder, policy):
        dump = Dump(folder)
        model, training = dump.index["model"], dict(dump.index["training"])
        training["rate"] = RATE
        low = {"fp32": None, "amp-bf16": torch.bfloat16, "amp-fp16": torch.float16}[policy]
        dtypes = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16, "i32": torch.int64}

        def read(role, name="", step=-1):
            return in_best_layout(torch.from_numpy(dump.get(role, name, step)).to(dtypes[dump.dtype(role, name, step)]))

        tensors = {}
        for name in dump.names("parameter"):
            role = "master" if dump.has("master", name) else "parameter"
            tensors[name] = torch.nn.Parameter(read(role, name).float())
        self.parameters = list(tensors.values())
        for name in dump.names("state"):
            tensors[name] = read("state", name)
        self.x = read("input", "", 0)
        if self.x.is_floating_point():
            self.x.requires_grad_()
        self.labelled = "loss" in model
        self.net = FastNetwork(model, tensors)
        self.loss = model.get("loss", {"loss": "cross_entropy"})
        self.compute_loss = networks.LOSSES[self.loss["loss"]]
        self.target = torch.from_numpy(dump.get("target", "", 0)) if self.labelled else None
        if self.labelled:
            numbers = self.loss["loss"] not in ("cross_entropy", "ctc")
            self.target = self.target.float() if numbers else self.target.long()
        gradient = None if self.labelled else torch.from_numpy(dump.get("output_gradient", "", 0))
        self.cast = (lambda: torch.autocast("cpu", dtype=low)) if low else contextlib.nullcontext
        if not self.labelled:
            with self.cast():
                output = self.net(self.x)
            gradient = gradient.to(output.dtype)
            channels_last = output.dim() == 4 and output.is_contiguous(memory_format=torch.channels_last)
            gradient = gradient.contiguous(memory_format=torch.channels_last) if channels_last else gradient.contiguous()
        self.gradient = gradient
        self.optimizer, self.form = None, "none"
        if self.parameters:
            self.choose_optimizer(training)

    def choose_optimizer(self, training):
        """The fastest of PyTorch's three implementations."""
        best = None
        for form, arguments in (("fused", {"fused": True}), ("foreach", {"foreach": True}), ("loop", {"foreach": False})):
            self.optimizer = networks.optimizer_of(training, self.parameters, **arguments)
            self()
            seconds = []
            for _ in range(12):
                start = time.perf_counter()
                self.optimizer.step()
                seconds.append(time.perf_counter() - start)
            taken = statistics.median(seconds)
            if best is None or taken < best[0]:
                best = taken, form, self.optimizer
        self.form, self.optimizer = best[1:]

    def __call__(self):
        if self.optimizer:
            self.optimizer.zero_grad(set_to_none=True)
        self.x.grad = None
        with self.cast():
            output = self.net(self.x)
            if self.labelled:
                loss = self.compute_loss(self.net, output, self.target, self.loss)
        if self.labelled:
            loss.backward()
        else:
            output.backward(self.gradient)
        if self.optimizer:
            self.optimizer.step()


def timed(step, seconds):
    """The median of steps for so long, or of six steps within twice the time, as bench/ab/sampler.cpp takes it."""
    step()  # another process may have used the caches
    taken, begin = [], time.perf_counter()
    while True:
        start = time.perf_counter()
        step()
        end = time.perf_counter()
        taken.append(end - start)
        if end - begin >= (seconds if len(taken) >= 6 else 2 * seconds):
            return taken


def main():
    torch.set_num_threads(int(sys.argv[1]))
    torch.manual_seed(0)
    key, step = None, None
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            if key != (asked["dump"], asked["policy"]):
                step = None
                step = Step(asked["dump"], asked["policy"])
                key = asked["dump"], asked["policy"]
                timed(step, WARM_UP)
            taken = timed(step, asked["seconds"])
            answer = {"seconds": statistics.median(taken), "samples": len(taken), "optimizer": step.form, "reason": ""}
        except (RuntimeError, NotImplementedError, KeyError, networks.NotJudged) as error:
            key = None
            answer = {"seconds": 0, "samples": 0, "optimizer": "", "reason": str(error).splitlines()[0]}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
