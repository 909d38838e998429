"""A process of PyTorch that times training steps on request, as `halfmark sample` does.

  torch_worker.py THREADS [DEVICE]

Reads lines of JSON {"dump": FOLDER, "policy": NAME, "seconds": S, "form": FORM, "limit": S, "as": {}} and answers each with one
line of JSON. The form is one of torch_forms.py, eager unless given; `limit`: seconds for preparing it; `as`: layout and
optimizer of an answer, for the same choice. The step is zero_grad(set_to_none=True), forward, loss, backward and the optimizer,
under amp-fp16 with the loss scaler; layers alone get the dumped gradient of their output. The same numbers go in as into
halfmark, and the gradient of a floating-point input is computed, as halfmark always does.
"""

import contextlib
import json
import os
import statistics
import sys
import time

import torch
import torch.nn.functional as F

import torch_forms as forms
import torch_network as networks
from dumped import Dump

RATE = 1e-12  # kStandstillRate of bench/run/performance.h: parameters do not change
WARM_UP = 0.05  # seconds of steps before the first answer for a case
SCALE = 65536.0  # halfmark's loss scaler of amp-fp16 is that of PyTorch (halfmark list scalers)


class FastNetwork(networks.Network):
    """torch_network's functions, with PyTorch's own dropout and LSTM modules and masks that are made once."""

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
        module.flatten_parameters()  # cuDNN copies the weights in each step otherwise
        net.modules[layer["name"]] = module
    return module(x)[0]


def concat(net, layer, x):
    return torch.cat([net.sequence(branch, x) for branch in layer["branches"]], dim=1)


def mask_made_once(net, layer, q):
    if layer["name"] not in net.modules:
        net.modules[layer["name"]] = networks.attention_mask(net, layer, q)
    return net.modules[layer["name"]]


FAST = {"dropout": dropout, "lstm": lstm, "concat": concat,
        "self_attention": lambda net, layer, x: networks.self_attention(net, layer, x, mask_made_once)}


def cross_entropy_of_rows(net, output, target, loss):
    """The same loss of [batch, steps, classes] without the transposition, which a GPU would do in each step."""
    if output.dim() == 3:
        output, target = output.flatten(0, 1), target.flatten()
    return networks.cross_entropy(net, output, target, loss)


def in_layout(tensor, channels_last):
    return tensor.contiguous(memory_format=torch.channels_last) if channels_last and tensor.dim() == 4 else tensor.contiguous()


class Step:
    def __init__(self, folder, policy, device, clock, layout="channels_last", optimizer=None):
        dump = Dump(folder)
        model, training = dump.index["model"], dict(dump.index["training"])
        training["rate"] = RATE
        low = {"fp32": None, "tf32": None, "amp-bf16": torch.bfloat16, "amp-fp16": torch.float16}[policy]
        dtypes = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16, "i32": torch.int64}
        self.clock, self.layout, channels_last = clock, layout, layout == "channels_last"

        def read(role, name="", step=-1):
            numbers = torch.from_numpy(dump.get(role, name, step)).to(dtypes[dump.dtype(role, name, step)])
            return in_layout(numbers.to(device), channels_last)

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
        if device.type == "cuda" and self.compute_loss is networks.cross_entropy:
            self.compute_loss = cross_entropy_of_rows
        self.target = torch.from_numpy(dump.get("target", "", 0)) if self.labelled else None
        if self.labelled:
            numbers = self.loss["loss"] not in ("cross_entropy", "ctc")
            self.target = (self.target.float() if numbers else self.target.long()).to(device)
        self.cast = (lambda: torch.autocast(device.type, dtype=low)) if low else contextlib.nullcontext
        self.scaler = None
        if low is torch.float16:
            self.scaler = torch.amp.GradScaler(device.type, init_scale=SCALE, growth_interval=2000)
            self.scaler.scale(torch.zeros((), device=device))  # makes the tensors of the scaler
        self.gradient = None if self.labelled else self.gradient_of(dump, device, policy)
        self.optimizer, self.form = None, "none"
        if self.parameters:
            self.choose_optimizer(training, device, optimizer)

    def gradient_of(self, dump, device, policy):
        """That of the output, scaled, in its dtype and layout."""
        gradient = torch.from_numpy(dump.get("output_gradient", "", 0)).to(device)
        if self.scaler and dump.index["policy"]["name"] != policy:
            gradient = gradient * SCALE
        with self.cast():
            output = self.net(self.x)
        channels_last = output.dim() == 4 and output.is_contiguous(memory_format=torch.channels_last)
        return in_layout(gradient.to(output.dtype), channels_last)

    def choose_optimizer(self, training, device, wanted):
        """The wanted or the fastest of PyTorch's three implementations; with a scaler the fused one: the others wait for it."""
        best = None
        graphs = {"capturable": True} if device.type == "cuda" and training.get("optimizer", "sgd") != "sgd" else {}
        kinds = [("fused", {"fused": True}), ("foreach", {"foreach": True}), ("loop", {"foreach": False})]
        for form, arguments in kinds[:1] if self.scaler else kinds:
            if wanted and form != wanted:
                continue
            self.optimizer = networks.optimizer_of(training, self.parameters, **arguments, **graphs)
            self()
            taken = statistics.median(self.clock(self.update) for _ in range(12))
            if best is None or taken < best[0]:
                best = taken, form, self.optimizer
        self.form, self.optimizer = best[1:]

    def leaves(self):
        return self.parameters + [self.x]

    def forget_gradients(self):
        if self.optimizer:
            self.optimizer.zero_grad(set_to_none=True)
        self.x.grad = None

    def forward(self):
        output = self.net(self.x)
        return self.compute_loss(self.net, output, self.target, self.loss) if self.labelled else output

    def update(self):
        if not self.scaler:
            self.optimizer.step()
            return
        self.scaler.step(self.optimizer)
        self.scaler.update()

    def __call__(self, forward=None):
        self.forget_gradients()
        with self.cast():
            result = (forward or self.forward)()
        if self.scaler and self.labelled:
            result = self.scaler.scale(result)
        result.backward(self.gradient)
        if self.optimizer:
            self.update()


def timed(run, seconds, clock):
    """The times of steps for so long, or of six steps within twice the time, as bench/ab/sampler.cpp takes them."""
    run()  # another process may have used the caches
    taken, begin = [], time.perf_counter()
    while True:
        taken.append(clock(run))
        if time.perf_counter() - begin >= (seconds if len(taken) >= 6 else 2 * seconds):
            return taken


class Worker:
    """Keeps the step of the last request, with the forms that were asked for."""

    def __init__(self, device, clock):
        self.device, self.clock = device, clock
        self.forget()

    def forget(self):
        self.key, self.step, self.runs = None, None, {}
        forms.forget_all(self.device)

    def make_step(self, folder, policy, wanted):
        """As `wanted` says, else on a GPU with images in the layout whose graph is faster."""
        forms.set_precision(self.device, policy)
        step = Step(folder, policy, self.device, self.clock, **wanted)
        if self.device.type != "cuda" or step.x.dim() != 4 or wanted:
            return step
        other = Step(folder, policy, self.device, self.clock, "contiguous")
        try:
            times = [statistics.median(timed(forms.made("graph", one), WARM_UP, self.clock)) for one in (step, other)]
        except RuntimeError:
            return Step(folder, policy, self.device, self.clock)
        return step if times[0] <= times[1] else other

    def answer(self, asked):
        key, form, wanted = (asked["dump"], asked["policy"]), asked.get("form", "eager"), asked.get("as", {})
        with forms.time_limit(asked.get("limit", 0)):
            if key != self.key:
                self.forget()
                self.step, self.key = self.make_step(*key, wanted), key
            if form not in self.runs:
                self.runs[form] = forms.made(form, self.step)
                timed(self.runs[form], WARM_UP, self.clock)
        taken = timed(self.runs[form], asked["seconds"], self.clock)
        return {"seconds": statistics.median(taken), "samples": len(taken), "optimizer": self.step.form,
                "layout": self.step.layout, "reason": ""}


def main():
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # compilers write where they like
    torch.set_num_threads(int(sys.argv[1]))
    torch.manual_seed(0)
    worker = Worker(*forms.open_device(sys.argv[2] if len(sys.argv) > 2 else "cpu"))
    for line in sys.stdin:
        try:
            answer = worker.answer(json.loads(line))
        except Exception as error:  # noqa: BLE001 a compiler raises what it likes; the process has further cases
            answer = {"seconds": 0, "samples": 0, "optimizer": "", "layout": "", "reason": forms.reason_of(error)}
        if answer["reason"]:
            worker.forget()
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
