#!/usr/bin/env python3
"""PyTorch as the judge of halfmark: the same training steps from the same tensors, compared number by number.

  scripts/peers/pytorch.py --install        a virtual environment with the pinned PyTorch, in build/peers/pytorch
  scripts/peers/pytorch.py                  every layer kind and model of the suites, small, under four policies
  scripts/peers/pytorch.py CASE ...         these cases: SUBJECT/SIZES/DEVICE/POLICY, of halfmark dump
  scripts/peers/pytorch.py --self-test      plants mistakes in the PyTorch side; each must be found

Exit codes: 0 all agree, 1 something does not, 2 wrong input, 77 PyTorch is not installed.

The truth is PyTorch in fp64 from the dumped parameters and data. The bound is measured, not chosen: PyTorch runs again with
every parameter and the result of every layer multiplied by 1 + u r, |r| <= 1, forward and backward, where u is the unit
roundoff of the policy's format, times the root of the longest sum for a format that sums are in. halfmark may be eight times
as far from the truth as the farthest of three such runs, or sixteen times under autocast, where a layer rounds its input, its
weight and its result, and kinks move. A tensor that is farther is compared with twenty runs: a ReLU whose input is almost 0
changes its side, and the first step of Adam its sign, in few of them. PyTorch's own distance in the same format is shown beside. Under autocast the dtype of
each layer's output is that of PyTorch's lists for CUDA (autocast_dtypes.py).
"""

import argparse
import copy
import os
import pathlib
import subprocess
import sys
import tempfile

import cases as listed

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
VENV = ROOT / "build" / "peers" / "pytorch"
NOT_INSTALLED = 77
PACKAGES = ("torch==2.15.0", "numpy>=1.26")

# Of a format: the unit roundoff, and whether sums are in it too.
UNITS = {"fp64": (2.0**-53, True), "fp32": (2.0**-24, True), "amp-fp16": (2.0**-11, False), "amp-bf16": (2.0**-8, False),
         "fp16-master": (2.0**-11, False), "bf16-master": (2.0**-8, False)}
FEW_RUNS, MANY_RUNS = 3, 20  # with random factors
ALLOWED = {True: 8, False: 16}


def install():
    subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)
    subprocess.run([str(VENV / "bin" / "python"), "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
    print(f"installed in {VENV}")


def torch_steps(dump, dtype, unit=0.0, plant=None, autocast=None):
    """What PyTorch computes in the steps of a dump: (role, name, step) -> numbers in fp64."""
    import torch

    import torch_network as networks

    index = dump.index
    model, training = copy.deepcopy(index["model"]), dict(index["training"])
    if plant:
        plant(model, training)
    tensors = {}
    for name in dump.names("parameter"):
        role = "master" if dump.has("master", name) else "parameter"
        value = torch.from_numpy(dump.get(role, name)).to(dtype)
        if unit:
            value = value * (1 + unit * (2 * torch.rand_like(value) - 1))
        tensors[name] = value.requires_grad_()
    parameters = list(tensors.values())
    for name in dump.names("state"):
        tensors[name] = torch.from_numpy(dump.get("state", name)).to(dtype)
    optimizer = networks.optimizer_of(training, parameters) if parameters else None
    results = {}
    for step in index["steps"]:
        at, scale = step["step"], step["scale"]
        x = torch.from_numpy(dump.get("input", "", at))
        indices = dump.dtype("input", "", at) == "i32"
        x = x.long() if indices else x.to(dtype).requires_grad_()
        net = networks.Network(model, tensors, step["dropout_seeds"], index["batchnorm_momentum"], unit)
        with torch.autocast("cpu", dtype=autocast or torch.bfloat16, enabled=autocast is not None):
            output = net(x)
            if "loss" in model:
                target = torch.from_numpy(dump.get("target", "", at))
                kind = model.get("loss", {}).get("loss", "cross_entropy")
                if kind not in networks.LOSSES:
                    raise networks.NotJudged(f"loss {kind}: torch_network.py has no row for it")
                loss = networks.LOSSES[kind](net, output if autocast else output.to(dtype), target.to(dtype), model["loss"])
            else:
                loss = (output * torch.from_numpy(dump.get("output_gradient", "", at)).to(dtype)).sum() / scale
        if optimizer:
            optimizer.zero_grad()
        (loss * scale).backward()
        put = lambda role, name, tensor: results.__setitem__((role, name, at), tensor.detach().double().numpy().copy())
        put("output", "", output)
        if not indices and not step["skipped"]:
            put("input_gradient", "", x.grad)
        names = dump.names("scaled_gradient", at)
        if "loss" in model:
            results["loss", "", at] = loss.detach().double().numpy().reshape(1)
        if step["skipped"]:  # nothing may change but running statistics; whether to skip is judged by the scaler's patterns
            for name in names:
                put("parameter", name, tensors[name])
            for name in dump.names("state", at):
                put("state", name, tensors[name])
            continue
        for name in names:
            put("scaled_gradient", name, tensors[name].grad)
        for name in names:
            tensors[name].grad /= scale
            put("gradient", name, tensors[name].grad)
        if training.get("clip_norm", 0) > 0:
            torch.nn.utils.clip_grad_norm_(parameters, training["clip_norm"])
            for name in names:
                put("gradient", name, tensors[name].grad)
        if optimizer:
            optimizer.step()
        for name in names:
            put("parameter", name, tensors[name])
            state = optimizer.state[tensors[name]]
            for role, key in (("optimizer_first", "momentum_buffer"), ("optimizer_first", "exp_avg"),
                              ("optimizer_second", "exp_avg_sq")):
                if torch.is_tensor(state.get(key)):
                    put(role, name, state[key])
        for name in dump.names("state", at):
            put("state", name, tensors[name])
    return results


def low_dtype(policy):
    """Of autocast; None without it."""
    import torch
    return {"amp-fp16": torch.float16, "amp-bf16": torch.bfloat16}.get(policy)


def distance(a, b):
    import numpy
    return float(numpy.sqrt(((a - b) ** 2).sum()))


class Comparison:
    """Of one dump with PyTorch."""

    def __init__(self, dump, plant=None):
        import numpy
        import torch

        import autocast_dtypes
        import torch_network as networks

        self.worst, self.where, self.judged, self.torch_worst = 0.0, "", 0, 0.0
        policy = dump.index["policy"]["name"]
        unit, sums = UNITS[policy]
        if sums:
            unit *= networks.largest_sum(dump.index["model"]) ** 0.5
        truth = torch_steps(dump, torch.float64, plant=plant)
        # fp64 itself has no wider truth: the scatter of roundings is measured at a larger unit, in which it is linear.
        measured = max(unit, 2.0**-30)
        torch.manual_seed(0)
        scattered = []

        def scatter_of(key, expected, runs):
            while len(scattered) < runs:
                scattered.append(torch_steps(dump, torch.float64, unit=measured, plant=plant))
            return max(distance(one[key], expected) for one in scattered[:runs]) * unit / measured
        low = low_dtype(policy)
        peer = {}
        if not plant and policy != "fp64" and not dump.index["policy"]["master"]:
            try:
                peer = torch_steps(dump, torch.float32, autocast=low)
            except (NotImplementedError, RuntimeError):
                peer = {}  # PyTorch has no such kernel on a CPU
        steps = dump.index["steps"]
        for (role, name, at), expected in truth.items():
            if role == "loss":
                found = numpy.array([steps[at]["loss"]])
            elif role == "parameter" and dump.has("master", name, at):
                found = dump.get("master", name, at)
            elif dump.has(role, name, at):
                found = dump.get(role, name, at)
            else:
                self.fail(f"{role} {name} of step {at} is missing in the dump")
                continue
            if found.shape != expected.shape:
                self.fail(f"{role} {name}: shape {found.shape}, PyTorch's is {expected.shape}")
                continue
            floor = unit * float(numpy.sqrt((expected**2).sum()))  # the result itself is rounded once
            of_torch = distance(peer[role, name, at], expected) if (role, name, at) in peer else 0.0
            for runs in (FEW_RUNS, MANY_RUNS):
                scatter = scatter_of((role, name, at), expected, runs)
                bound = ALLOWED[sums] * max(scatter, floor) + 1e-300
                error = distance(found, expected) / bound
                if error <= 1:
                    break
            if not error <= self.worst:  # NaN too
                self.worst, self.where = (error if error == error else float("inf")), f"{role} {name} step {at}"
            self.torch_worst = max(self.torch_worst, of_torch / bound)
            self.judged += 1
        missing = [key for key in dump._files if key[0] in ("output", "gradient", "state", "optimizer_first",
                                                            "optimizer_second", "input_gradient") and key[2] >= 0
                   and key not in truth and not steps[key[2]]["skipped"]]
        for key in missing:
            self.fail(f"{key[0]} {key[1]} was not compared: PyTorch has none")
        if low is not None and not plant:
            lines, agreeing = autocast_dtypes.differences(dump, low)
            self.judged += agreeing
            for line in lines:
                self.fail(line)

    def fail(self, what):
        self.worst, self.where = float("inf"), what

    @property
    def agrees(self):
        return self.worst <= 1


def compare_scales(halfmark, folder, count=200):
    """Random patterns of overflows: our loss scale and skipped steps against torch.amp.GradScaler. How many differ."""
    import random

    import torch
    bad = 0
    for number in range(count):
        draw = random.Random(number)
        share, interval = draw.choice([0.02, 0.1, 0.3, 0.7]), draw.choice([1, 2, 3, 5, 8])
        pattern = "".join("1" if draw.random() < share else "0" for _ in range(draw.randint(5, 40)))
        dump = dumped(halfmark, "mlp/b8_i16_h24_o10/cpu/amp-fp16", folder / f"scales{number}",
                      ["--overflows", pattern, "--growth-interval", str(interval)])
        parameter = torch.zeros(2, requires_grad=True)
        optimizer = torch.optim.SGD([parameter], lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=65536.0, growth_factor=2.0, backoff_factor=0.5, growth_interval=interval)
        for step, found in zip(dump.index["steps"], pattern, strict=True):
            scale = scaler.scale(torch.ones(())).item()
            parameter.grad = torch.tensor([float("inf") if found == "1" else scale, 0.0])
            before = parameter.detach().clone()
            scaler.step(optimizer)
            scaler.update()
            skipped = bool((parameter.detach() == before).all())
            if step["scale"] != scale or step["skipped"] != skipped:
                bad += 1
                print(f"pattern {pattern}, growth after {interval}: step {step['step']} has the scale {step['scale']}, "
                      f"PyTorch's is {scale}; skipped {step['skipped']}, PyTorch {skipped}")
                break
    print(f"{count - bad} of {count} patterns of overflows agree with torch.amp.GradScaler")
    return bad


def dumped(halfmark, case, folder, options=()):
    from dumped import Dump
    command = [halfmark, "dump", case, "-o", str(folder), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"pytorch.py: {' '.join(command)}: {done.stderr.strip()}")
    return Dump(folder)


def set_epsilon(model, value):
    for layer in model["layers"]:
        if "norm" in layer["layer"]:
            layer["epsilon"] = value


def change_first(model, kind, **arguments):
    def visit(layers):
        for layer in layers:
            if layer["layer"] == kind:
                layer.update(arguments)
                return True
            if any(visit(branch) for branch in layer.get("branches", [])):
                return True
        return False
    if not visit(model["layers"]):
        raise SystemExit(f"pytorch.py: the self-test plants into {kind}, which the model lacks")


# A case, training, and a mistake on PyTorch's side that must be found.
PLANTS = [
    ("epsilon of batch norm 1.1e-5", "batchnorm2d/b4_c3_s4", [], lambda m, t: set_epsilon(m, 1.1e-5)),
    ("epsilon of layer norm 1e-6", "layernorm/b6_d12", [], lambda m, t: set_epsilon(m, 1e-6)),
    ("padding and stride of a pool", "maxpool/b2_c4_s7_k3_t2", [], lambda m, t: change_first(m, "max_pool2d", stride=1)),
    ("another GELU", "gelu/b2_c4_s5", [], lambda m, t: change_first(m, "gelu", layer="gelu_tanh")),
    ("no causal mask", "attention/b2_h2_t6_d4", [], lambda m, t: change_first(m, "self_attention", causal=False)),
    ("one step more of a padded sequence", "attention/b5_h2_t7_d4_m2", [], lambda m, t: change_first(m, "self_attention", lengths=[7, 5, 6, 2])),
    ("corners aligned", "upsample/b2_c3_s4_f2", [], lambda m, t: change_first(m, "upsample_bilinear2d", align_corners=True)),
    ("running momentum 0.11", "convnet/b4_c1_s8_w4", [], lambda m, t: change_first(m, "batchnorm2d", momentum=0.11)),
    ("dilation 1 for 2", "conv2d/b1_c3_o4_s8_k3_d2", [], lambda m, t: change_first(m, "conv2d", dilation=1, padding=1)),
    ("the first step for the last", "lstm_classifier/b3_t5_n1_e6_h5_v64_o4", [], lambda m, t: change_first(m, "take_step", step=0)),
    ("dropout 0.1001", "bert/b3_t6_n1_h2_d8_v64_o4", [], lambda m, t: change_first(m, "dropout", p=0.1001)),
    ("smoothing 0.001", "mlp/b8_i16_h24_o10", [], lambda m, t: m.update(loss={"loss": "cross_entropy", "smoothing": 0.001})),
    ("the void label counts", "erfnet/b2_s16x24_n1_w4_o4", [], lambda m, t: m["loss"].update(ignored=254)),
    ("rate 1.001 times", "mlp/b8_i16_h24_o10", [], lambda m, t: t.update(rate=0.05005)),
    ("Nesterov's step", "mlp/b8_i16_h24_o10", [], lambda m, t: t.update(nesterov=True)),
    ("decay of Adam for AdamW", "mlp/b8_i16_h24_o10", ["optimizer=adamw", "weight_decay=0.1"], lambda m, t: t.update(optimizer="adam")),
    ("beta2 0.99", "mlp/b8_i16_h24_o10", ["optimizer=adam"], lambda m, t: t.update(beta2=0.99)),
    ("epsilon of Adam 1e-7", "mlp/b8_i16_h24_o10", ["optimizer=adam"], lambda m, t: t.update(epsilon=1e-7)),
    ("one length of the whole weight", "linear/b4_i16_o8_w1", [], lambda m, t: change_first(m, "linear", norm_dim=-1)),
    ("one length of the whole kernel", "conv2d/b2_c4_o6_s6_k3_w1", [], lambda m, t: change_first(m, "conv2d", norm_dim=-1)),
    ("statistics of the batch", "batchnorm2d/b4_c3_s4_m1", [], lambda m, t: change_first(m, "batchnorm2d", frozen=False)),
    ("running momentum 0.11 in 1d", "batchnorm1d/b4_c3_t5", [], lambda m, t: change_first(m, "batchnorm1d", momentum=0.11)),
    ("epsilon 1.1e-5 in 3d", "batchnorm3d/b2_c3_d3_s4", [], lambda m, t: change_first(m, "batchnorm3d", epsilon=1.1e-5)),
    ("a row without gradient", "embedding/b4_t6_v3_d5", [], lambda m, t: change_first(m, "embedding", padding=1)),
    ("h and c in the other order", "lstm_cell/b3_i5_h6", [], lambda m, t: change_first(m, "lstm_cell", order="ch")),
    ("smoothing 0.101 of pixels", "cross_entropy/b2_o5_s3x4_e10_i1_w1", [], lambda m, t: m["loss"].update(smoothing=0.101)),
    ("weight 3.01 of the targets 1", "binary_cross_entropy_with_logits/b8_o10_w3", [], lambda m, t: m["loss"].update(pos_weight=3.01)),
    ("beta 0.51", "smooth_l1/b8_o10_e50", [], lambda m, t: m["loss"].update(beta=0.51)),
    ("gamma 2.01", "focal/b8_o10", [], lambda m, t: m["loss"].update(gamma=2.01)),
    ("nearest as bilinear", "upsample_nearest/b2_c3_s4_f2", [], lambda m, t: change_first(m, "upsample_nearest2d", mode="bilinear")),
    ("gamma 2.01 of a detector", "detector/b2_s32_w4", [], lambda m, t: m["loss"].update(gamma=2.01)),
    ("beta 0.101 of a detector", "detector/b2_s32_w4", [], lambda m, t: m["loss"].update(beta=0.101)),
    ("another order of anchors", "to_anchors/b2_c6_s4_a3", [], lambda m, t: change_first(m, "to_anchors", anchors=2)),
    ("another blank", "ctc/b2_t24_o12", [], lambda m, t: m["loss"].update(blank=11)),
    ("clipping at 0.0101", "mlp/b8_i16_h24_o10", ["clip_norm=0.01"], lambda m, t: t.update(clip_norm=0.0101)),
]


def self_test(halfmark, folder):
    lost = 0
    for number, (what, subject, training, plant) in enumerate(PLANTS):
        options = ["--steps", "3"] + (["--training", ",".join(training)] if training else [])
        dump = dumped(halfmark, f"{subject}/cpu/fp64", folder / f"plant{number}", options)
        clean = Comparison(dump)
        try:
            planted = Comparison(dump, plant)
            found = not planted.agrees
        except (IndexError, RuntimeError, ValueError):  # shapes or labels that do not fit
            found = True
        ok = clean.agrees and found
        lost += not ok
        print(f"{'found' if found else 'LOST':6} {'' if clean.agrees else 'NOT CLEAN '}{what} ({subject})")
    for policy in ("amp-fp16", "amp-bf16"):
        lost += not finds_dtypes(dumped(halfmark, f"gpt/b2_t8_n1_h2_d8_v27/cpu/{policy}", folder / policy), policy)
    print(f"{len(PLANTS) + 2 - lost} of {len(PLANTS) + 2} planted mistakes found")
    return lost


def finds_dtypes(dump, policy):
    """Whether each layer's dtype of output, exchanged for another, is found."""
    import autocast_dtypes

    low = low_dtype(policy)
    clean, missed = not autocast_dtypes.differences(dump, low)[0], []
    for one in dump.index["activations"]:
        own = one["dtype"]
        one["dtype"] = "f16" if own != "f16" else "f32"
        if not autocast_dtypes.differences(dump, low)[0]:
            missed.append(one["layer"])
        one["dtype"] = own
    print(f"{'LOST' if missed else 'found':6} {'' if clean else 'NOT CLEAN '}another dtype of each of "
          f"{len(dump.index['activations'])} outputs under {policy}{': ' + ', '.join(missed) if missed else ''}")
    return clean and not missed and bool(dump.index["activations"])


def compare(halfmark, folder, cases):
    """Each case: (id, options of halfmark dump). Returns how many do not agree."""
    import torch_network as networks
    bad = 0
    print(f"{'case':58} {'tensors':>7} {'error/bound':>11} {'PyTorch':>8}")
    for number, (case, options) in enumerate(cases):
        dump = dumped(halfmark, case, folder / f"case{number}", options)
        label = case + (" " + options[options.index("--training") + 1] if "--training" in options else "")
        try:
            result = Comparison(dump)
        except networks.NotJudged as reason:
            bad += 1
            print(f"{label:58} not judged: {reason}")
            continue
        bad += not result.agrees
        print(f"{label:58} {result.judged:7d} {result.worst:11.3g} {result.torch_worst:8.2g}"
              f"{'' if result.agrees else '  DIFFERS: ' + result.where}", flush=True)
    return bad


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", help="SUBJECT/SIZES/DEVICE/POLICY; none: those of the suites")
    parser.add_argument("--halfmark", default=str(ROOT / "build" / "release" / "halfmark"), help="the program")
    parser.add_argument("--install", action="store_true", help=f"install PyTorch into {VENV.relative_to(ROOT)}")
    parser.add_argument("--self-test", action="store_true", help="plant mistakes, each of which must be found")
    arguments = parser.parse_args()
    if arguments.install:
        install()
        return 0
    try:
        import torch
    except ImportError:
        python = VENV / "bin" / "python"
        if not python.exists() or pathlib.Path(sys.prefix) == VENV:
            print("pytorch.py: PyTorch is not installed; scripts/peers/pytorch.py --install does it", file=sys.stderr)
            return NOT_INSTALLED
        os.execv(python, [str(python), str(pathlib.Path(__file__).resolve()), *sys.argv[1:]])
    if not os.access(arguments.halfmark, os.X_OK):
        print(f"pytorch.py: {arguments.halfmark} is no program; build it, or name another with --halfmark", file=sys.stderr)
        return 2
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        if arguments.self_test:
            return 1 if self_test(arguments.halfmark, folder) else 0
        all_of_list = [f"{subject}/cpu/{policy}" for subject in listed.subjects(arguments.halfmark) for policy in UNITS]
        cases = [(case, ["--steps", "2"]) for case in arguments.cases or all_of_list]
        for case, _ in cases:
            if case.split("/")[-1] not in UNITS or case.count("/") != 3:
                print(f"pytorch.py: {case}: not SUBJECT/SIZES/DEVICE/POLICY with a policy of {', '.join(UNITS)}", file=sys.stderr)
                return 2
        if not arguments.cases:
            import json
            for training in listed.trainings():
                cases.append(("mlp/b8_i16_h24_o10/cpu/fp64", ["--steps", "4", "--training", ",".join(training)]))
            for model in listed.loss_models():
                path = folder / f"{model['name']}.json"
                path.write_text(json.dumps(model), encoding="utf-8")
                cases.append((f"{model['name']}/b8/cpu/fp64", ["--steps", "2", "--model", str(path)]))
        bad = compare(arguments.halfmark, folder, cases)
        bad_scales = 0 if arguments.cases else compare_scales(arguments.halfmark, folder)
    print(f"{len(cases) - bad} of {len(cases)} cases agree with PyTorch {torch.__version__}")
    return 1 if bad or bad_scales else 0


if __name__ == "__main__":
    sys.exit(main())
