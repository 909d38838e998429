"""For tests of the charts: a synthetic report with all data that the charts can draw, and variants of it."""

import copy
import json
import math
import pathlib
import random

SCRIPTS = pathlib.Path(__file__).resolve().parent
FIXTURES = SCRIPTS.parent / "reports" / "fixtures"
QUICK = SCRIPTS.parent / "reports" / "pictures" / "report.json"  # of a real run, behind the pictures

#        speed-up, nmse of a small GEMM, bytes of a parameter and of an activation, master copy, loss scale
POLICIES = {
    "fp32": (1.00, 4e-14, 4, 4, False, None),
    "tf32": (1.55, 9e-8, 4, 4, False, None),
    "bf16": (2.30, 6e-6, 2, 2, False, None),
    "fp16": (2.45, 4e-7, 2, 2, False, None),
    "amp-fp16": (2.05, 2e-7, 4, 2, True, 65536.0),
    "amp-bf16": (1.95, 3e-6, 4, 2, True, None),
    "apex-o2": (2.15, 2.4e-7, 2, 2, True, 32768.0),
    "fp8": (2.90, 8e-4, 4, 1, True, None),
}
#              exponents of the largest, the least normal and the least number of the low format
LOW_FORMATS = dict.fromkeys(("bf16", "amp-bf16"), (127, -126, -133)) | dict.fromkeys(
    ("fp16", "amp-fp16", "apex-o2"), (15, -14, -24)) | {
    "fp32": (127, -126, -149), "tf32": (127, -126, -136), "fp8": (8, -6, -9)}
SUBJECTS = {  # parameters, activation values, seconds a step
    "mlp/b64_i784_h512_o10": (4.1e5, 8e4, 6e-4),
    "cnn/b32_c3_s32": (1.2e6, 3.5e6, 4.2e-3),
    "transformer/b8_t128_d256_l4": (3.4e6, 9e6, 1.1e-2),
}
PURPOSES = ("weights", "master", "gradients", "optimizer", "state", "saved", "temporary", "casts", "workspace", "emulation", "input",
            "other")


def measurement(metric, at, value, unit="1", better="lower", kind="exact", **more):
    return {"metric": metric, "at": at, "value": number(value), "unit": unit, "better": better, "kind": kind, **more}


def number(value):
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def series(metric, at, x, y, x_unit="1", y_unit="1"):
    return {"metric": metric, "at": at, "x": x, "y": [number(value) for value in y], "x_unit": x_unit, "y_unit": y_unit}


def record(subject, device, policy, harness, measurements=(), curves=(), status="ok", reason="", **axes):
    name = "/".join([subject, device, policy, harness] + [f"{key}={value}" for key, value in axes.items()])
    return {"id": name, "case_version": 1, "subject": subject, "device": device, "policy": policy, "harness": harness,
            "axes": axes, "status": status, "reason": reason, "repro": f"halfmark run --case {name}", "kernels": [],
            "measurements": list(measurements), "series": list(curves)}


def throughput(subject, device, policy, draw):
    speed_up, _, _, _, _, _ = POLICIES[policy]
    seconds = SUBJECTS[subject][2] / speed_up * (1 + 0.05 * draw.random())
    suspect = policy == "fp8"
    operations, moved = 6 * SUBJECTS[subject][0] * 32, 40 * (SUBJECTS[subject][0] + SUBJECTS[subject][1])
    samples = [seconds * (1 + 0.01 * draw.random()) for _ in range(9)]
    return record(subject, device, policy, "throughput", [
        measurement("time.step", "hot", seconds, "s", kind="sampled", samples=samples),
        measurement("throughput.step", "hot", 32 / seconds, "1/s", "higher", "sampled"),
        measurement("throughput.flops", "hot", operations / seconds, "FLOP/s", "higher", "sampled"),
        measurement("roofline.intensity", "hot", operations / moved, "FLOP/B", "neither", "information"),
        measurement("roofline.attainable_copy", "", 2e11, "B/s", "neither", "information"),
        measurement("roofline.attainable_matmul", "", 1e12 if policy == "fp32" else 4e12, "FLOP/s", "neither", "information"),
        *([] if policy == "fp32" else [measurement("speedup.step", "hot", speed_up, "1", "higher", "sampled",
                                                   interval=[0.95 * speed_up, 1.06 * speed_up], samples=[speed_up] * 12)]),
        *([] if policy == "tf32" else [measurement("timing.half_width", "hot/step", 0.03, "1", "neither", "information")]),
    ], status="suspect" if suspect else "ok",
        reason="emulated kernel in the timed region: matmul e4m3,e4m3->f16 (reference)" if suspect else "")


def error(subject, device, policy, draw):
    nmse = POLICIES[policy][1] * (1 + draw.random()) * SUBJECTS[subject][0] / 4e5
    if policy == "fp16" and subject.startswith("transformer"):
        nmse = math.nan
    return record(subject, device, policy, "error", [
        measurement("error.nmse", "output", nmse, kind="bounded", bound=1e-2),
        measurement("error.cosine", "output", 1 - nmse / 2, better="higher"),
        measurement("error.zeroed", "gradient/fc1/weight", 0.04 if policy == "fp16" else 0.0),
        measurement("error.infinite", "output", 0.0),
        measurement("error.nmse", "gradient/fc1/weight", nmse * 9),
        measurement("error.nmse", "gradient/input", nmse * 5),
    ], [series("error.ulp_histogram", "output", [0, 1, 2, 4], [80, 30, 8, 1])])


def memory(subject, device, policy):
    parameters, activations, _ = SUBJECTS[subject]
    _, _, parameter, activation, master, _ = POLICIES[policy]
    purposes = {
        "weights": parameters * (2 if master and parameter == 2 else parameter),
        "master": parameters * 4 if master and parameter == 2 else 0, "gradients": parameters * parameter,
        "optimizer": parameters * 8, "state": 1e4, "saved": activations * activation,
        "temporary": activations * activation * 0.3, "casts": parameters * 2 if master and parameter == 4 else 0,
        "workspace": 2e5, "input": activations * 0.05, "other": 2e4,
    }
    found = [measurement(f"memory.peak.{purpose}", "train", round(size), "B") for purpose, size in purposes.items()]
    found.append(measurement("memory.peak", "train", sum(round(size) for size in purposes.values()), "B"))
    # The tensors have most bytes at another instant than all memory: with less waiting, and with more casts.
    of_tensors = {purpose: round(size) for purpose, size in purposes.items() if purpose not in ("workspace", "emulation")}
    of_tensors["temporary"] += round(activations * activation * 0.2)
    found += [measurement(f"memory.tensors.{purpose}", "train", size, "B") for purpose, size in of_tensors.items()]
    found.append(measurement("memory.tensors", "train", sum(of_tensors.values()), "B"))
    found.append(measurement("memory.peak", "evaluate", round(purposes["weights"] + purposes["temporary"]), "B"))
    return record(subject, device, policy, "memory", found)


def bell(centre, width, count):
    exponents = list(range(centre - 26, centre + 17))
    return exponents, [round(count * math.exp(-((x - centre) / width) ** 2 / 2)) for x in exponents]


def ranges(subject, device, policy):
    centre = -17 - 3 * list(SUBJECTS).index(subject)
    exponents, counts = bell(centre, 4.5, 2e5)
    if policy == "fp16":  # values below the subnormals became zero
        counts = [count if exponent >= -24 else 0 for exponent, count in zip(exponents, counts)]
    if policy == "fp8":
        counts = [count if exponent >= -16 else 0 for exponent, count in zip(exponents, counts)]
    curves = [series("range.histogram", "gradients", exponents, counts)]
    curves += [series("range.histogram", f"gradient/layer{i}", *bell(centre - i, 3.5, 4e4)) for i in range(3)]
    curves.append(series("range.histogram", "activations", *bell(-1, 2, 3e5)))
    return record(subject, device, policy, "range", [
        measurement("range.headroom", "gradients", 3.0, "bit", "higher"),
        measurement("range.zero", "gradients", 0.03),
        measurement("range.underflow", "gradients", 0.12),
        *(measurement(f"range.format_{name}_exponent", "", exponent, "1", "neither", "information")
          for name, exponent in zip(("max", "min_normal", "min"), LOW_FORMATS[policy])),
    ], curves)


def drift(subject, device, policy, draw):
    found = []
    for momentum, storage in (("0.1", "f32"), ("0.01", "f32"), ("0.1", "f16"), ("0.01", "f16")):
        steps = list(range(0, 400, 4))
        floor = {"fp32": 3e-8, "bf16": 4e-3, "fp16": 6e-4}.get(policy, 2e-5) * (1 if storage == "f32" else 12)
        rise = float(momentum) * 0.4
        curves = []
        for layer, factor in (("bn1", 1.0), ("bn2", 1.7)):
            values = [factor * floor * (1 - math.exp(-rise * step)) * (0.9 + 0.2 * draw.random()) for step in steps]
            curves.append(series("batchnorm.running_var_error", layer, steps, values))
            curves.append(series("batchnorm.running_mean_error", layer, steps, [value * 0.6 for value in values]))
        found.append(record(subject, device, policy, "batchnorm_drift",
                            [measurement("batchnorm.running_var_drift", "bn2", floor * 1.7)], curves,
                            momentum=momentum, storage=storage))
    return found


def training(subject, device, policy, draw, **axes):
    steps = list(range(295))
    scale = POLICIES[policy][5]
    fp32 = [2.3 * math.exp(-step / 90) + 0.12 + 0.05 * draw.random() for step in steps]
    blown = policy == "fp16" and subject.startswith("transformer")
    loss = [math.nan if blown and step > 140 else value * (1 + POLICIES[policy][1] ** 0.35 * draw.random())
            for step, value in enumerate(fp32)]
    if blown:
        loss[110:141] = [value * 1.04 ** i for i, value in enumerate(loss[110:141])]
    curves = [series("training.loss", "", steps, loss), series("training.loss_fp32", "", steps, fp32)]
    skipped = 0
    if scale:
        history = []
        for step in steps:
            if step in (0, 1, 120, 251):
                scale, skipped = scale / 2, skipped + 1
            elif step % 60 == 59:
                scale *= 2
            history.append(scale)
        curves.append(series("training.scale", "", steps, history))
    return record(subject, device, policy, "training", [
        measurement("training.final_loss", "", loss[-1]),
        measurement("training.skipped_steps", "", skipped),
        measurement("training.noop_updates", "", 0.21 if policy == "bf16" else 0.001),
        measurement("evaluation.samples", "", 1024),
        {**measurement("evaluation.accuracy", "fp32", 0.85 + 0.02 * int(axes.get("replicate", 0)), better="higher"),
         "standard_error": 0.011},
    ], curves, **axes)


def made_up_report(subjects=tuple(SUBJECTS), device="cuda:0"):
    draw = random.Random(1)
    records = []
    for subject in subjects:
        for policy in POLICIES:
            records += [throughput(subject, device, policy, draw), error(subject, device, policy, draw),
                        memory(subject, device, policy), ranges(subject, device, policy),
                        training(subject, device, policy, draw)]
            if subject.startswith("mlp"):
                records += [training(subject, device, policy, draw, replicate=str(i)) for i in (1, 2)]
            if subject.startswith("cnn"):
                records += drift(subject, device, policy, draw)
    return {"schema": 1, "minor": 0, "environment": {"machine": "made up", "halfmark": {"version": "0.1.0", "git": "0123456789ab"},
                                                   "devices": {device: {"name": "Example GPU 9000"}}},
            "run": {"started": "2025-03-01T12:00:00Z", "seconds": 60, "command": "", "seed": 1, "suite": "made up"},
            "records": records}


def replaced(report, **names):
    """A copy with other subjects or policies: replaced(report, policy={"bf16": "my-bf16"})."""
    report = copy.deepcopy(report)
    for one in report["records"]:
        for key, table in names.items():
            one[key] = table.get(one[key], one[key])
    return report


def many_policies(report, count, name="policy-{}"):
    """A copy with the given number of policies; additional ones are copies of the first."""
    report = copy.deepcopy(report)
    known = list(dict.fromkeys(one["policy"] for one in report["records"]))
    for index in range(count - len(known)):
        more = [copy.deepcopy(one) for one in report["records"] if one["policy"] == known[index % len(known)]]
        for one in more:
            one["policy"] = name.format(index)
        report["records"] += more
    return report


def of_other_machine(report, factor=0.5):
    """A copy as if from another machine and build, with other times."""
    report = copy.deepcopy(report)
    report["environment"]["machine"] = "second"
    report["environment"]["halfmark"]["git"] = "ba9876543210"
    for one in report["records"]:
        for found in one["measurements"]:
            if found["metric"] == "time.step":
                found["value"] *= factor
                found["samples"] = [sample * factor for sample in found["samples"]]
    return report
