#!/usr/bin/env python3
"""Speed of training steps beside PyTorch on a CPU or an NVIDIA GPU, in one interleaved run.

  scripts/peers/pytorch.py --install               installs PyTorch, as for the comparison of numbers
  scripts/peers/pytorch_speed.py                   all layers and models, fp32 and amp-bf16, 1 and 2 threads
  scripts/peers/pytorch_speed.py models            the models only; also: layers, or SUBJECT/SIZES ...
  scripts/peers/pytorch_speed.py mlp/b32_i64_h128_o10 --policies fp32 --threads 1 --rounds 20
  scripts/peers/pytorch_speed.py models --device cuda:0 --python python3 --forms eager graph --budget 240

Two processes of halfmark and two of PyTorch stay alive and take turns in slices of --slice seconds, in random order and
then in the reverse order. A step is forward, loss, backward with the gradient of the input, and the optimizer, from the same
numbers with the same shapes, batch, optimizer and number of threads. PyTorch gets images in channels_last, the fastest of its
three forms of the optimizer, and one pair of caches of casts per step, as autocast has.

On a GPU PyTorch also gets the faster layout of images, cuDNN's benchmark, and under amp-fp16 its GradScaler with the fused
optimizer. Both programs time each step alone between two events of the stream, after waiting for the GPU and with 50 us of
work before it. --launch kernels: halfmark's launches beside PyTorch eager. graph: halfmark's CUDA graph beside the fastest of
--forms; compiled forms are first compiled by --compilers processes at once. Inputs are dumped once, on the CPU in fp32.

ratio: time of PyTorch / time of halfmark; above 1 halfmark is faster. Hodges-Lehmann over the rounds with the 95 % signed-rank
interval. Controls: the second process of each program against the first must hold 1 in its 99 % interval, widened by 3 %.
`suspect`: a control does not, or other work took the cores.

Exit codes: 0 measured, 2 wrong input, 77 PyTorch is not installed, or sees no such device.
"""

import argparse
import collections
import concurrent.futures
import datetime
import json
import os
import pathlib
import platform
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time

import turns
from pytorch import NOT_INSTALLED, ROOT, VENV
from speed_team import Case, Ended, Team, compile_all

LAYERS = ["linear/b64_i1024_o1024", "conv2d/b16_c64_o64_s28_k3", "conv2d/b16_c64_o128_s28_k3_t2",
          "conv2d/b16_c128_o128_s28_k1", "conv2d/b16_c128_o128_s28_k3_g128", "conv2d/b8_c64_o64_s32_k3x1_d2",
          "convtranspose2d/b16_c64_o32_s14_k3_t2", "batchnorm2d/b16_c64_s28", "layernorm/b512_d768", "rmsnorm/b512_d768",
          "groupnorm/b16_c64_s28_g8", "maxpool/b16_c64_s28_k3_t2", "avgpool/b16_c64_s28_k2", "globalpool/b16_c64_s28",
          "adaptivepool/b16_c64_s28_o7", "upsample/b16_c64_s28_f2", "relu/b16_c64_s28", "sigmoid/b16_c64_s28",
          "tanh/b16_c64_s28", "silu/b16_c64_s28", "gelu/b16_c64_s28", "gelu_tanh/b16_c64_s28", "softmax/b512_d1024",
          "attention/b8_h8_t128_d32", "lstm/b32_t32_i128_h128"]
MODELS = ["mlp/b32_i64_h128_o10", "mlp/b256_i256_h512_o10", "resnet/b64_s32", "erfnet/b1_s128x256", "xception/b4_s64_n2",
          "gpt/b32_t64_n2_h4_d64_v64", "gpt/b8_t128_n4_h6_d384_v256", "lstm_classifier/b64_t32_n1_e32_h64_v64_o4"]
MODELS_GPU = ["mlp/b256_i256_h512_o10", "mlp/b4096_i1024_h4096_o1000", "resnet/b64_s32", "resnet50/b32_s224",
              "gpt/b8_t128_n4_h6_d384_v256", "gpt/b8_t512_n6_h12_d768_v1024", "bert/b64_t128_n4_h8_d512_v1024_o4",
              "erfnet/b4_s256x512", "lstm_classifier/b64_t32_n1_e32_h64_v64_o4"]
LAYERS_GPU = ["linear/b64_i1024_o1024", "linear/b4096_i4096_o4096", "conv2d/b16_c64_o64_s28_k3", "conv2d/b32_c128_o128_s56_k3",
              "conv2d/b32_c256_o256_s28_k1", "attention/b8_h8_t128_d32", "attention/b8_h12_t1024_d64",
              "batchnorm2d/b32_c128_s56", "layernorm/b8192_d1024", "rmsnorm/b8192_d1024", "softmax/b8192_d1024",
              "gelu/b32_c128_s56", "lstm/b32_t32_i128_h128"]
POLICIES = {"cpu": ["fp32", "amp-bf16"], "cuda": ["fp32", "tf32", "amp-fp16", "amp-bf16"]}
FORMS = ("eager", "compiled", "graph", "compiled-graph")  # of torch_forms.py
FEWEST_ROUNDS = 8  # with fewer there is no 99 % interval of the control
IDLE_WAIT = 60     # seconds to wait for idle cores, with --tries
DUMPS_AT_ONCE = 4
MOST_ENDS = 3      # cases one after the other in which a process ended
BEGIN = time.monotonic()

# Prints what is to be known of the PyTorch of --python; its last line of errors says why it cannot be used.
PROBE = """
import json, sys
try:
    import numpy, torch
except Exception as error:
    sys.exit(f"cannot import {getattr(error, 'name', None) or 'torch'}: {error}".splitlines()[0])
found = {"version": torch.__version__}
if sys.argv[1] != "cpu":
    if not torch.cuda.is_available():
        sys.exit(f"torch {torch.__version__} has no CUDA device for --device {sys.argv[1]}")
    if torch.device(sys.argv[1]).index >= torch.cuda.device_count():
        sys.exit(f"torch {torch.__version__} has {torch.cuda.device_count()} CUDA devices, --device {sys.argv[1]} is not one")
    found.update(gpu=torch.cuda.get_device_name(sys.argv[1]), cuda=torch.version.cuda,
                 cudnn=str(torch.backends.cudnn.version()))
print(json.dumps(found))
"""


def say(text):
    print(f"[{time.monotonic() - BEGIN:5.0f} s] {text}", flush=True)


def dumped(halfmark, subject, policy, folder):
    """The folder of the dump, which is made once."""
    target = folder / f"{subject}-{policy}".replace("/", "-")
    if target.exists():
        return target
    command = [halfmark, "dump", f"{subject}/cpu/{policy}", "-o", str(target)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"pytorch_speed.py: {' '.join(command)}: {done.stderr.strip()}")
    return target


def probed(python, device):
    """(what is known of PyTorch, or none; why it cannot be used)."""
    try:
        done = subprocess.run([python, "-c", PROBE, device], capture_output=True, text=True, check=False)
    except OSError as error:
        return None, error.strerror
    if done.returncode != 0:
        return None, (done.stderr.strip().splitlines() or [f"ended with code {done.returncode}"])[-1]
    return json.loads(done.stdout.splitlines()[-1]), ""


def driver_version():
    if not shutil.which("nvidia-smi"):
        return "unknown"
    done = subprocess.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"], capture_output=True, text=True,
                          check=False)
    return (done.stdout.split() or ["unknown"])[0]


def environment_of(halfmark, torch):
    model = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo", encoding="utf-8")
                  if line.startswith("model name")), platform.machine())
    version = subprocess.run([halfmark, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    made = {"halfmark": {"program": version}, "machine": platform.node(), "pytorch": {"version": torch["version"]},
            "cpu": {"model": model, "cores": os.cpu_count()}, "os": {"kernel": platform.release()}}
    if "gpu" in torch:
        made["pytorch"].update(cuda=torch["cuda"], cudnn=torch["cudnn"])
        made["gpu"] = {"name": torch["gpu"], "driver": driver_version()}
    return made


HEAD = (f"{'case':42} {'policy':9} {'threads':>7} {'ours':>9} {'PyTorch':>9}  {'ratio':>5} {'interval':14} "
        f"{'control':>7} {'torch':>6}")


def line_of(case, threads, found, reasons, made=""):
    ours, peer = (sorted(found["seconds"][who])[len(found["seconds"][who]) // 2] * 1e3 for who in ("ours", "peer"))
    value, lower, upper = found["ratio"]
    column = f"{threads:7d}" if case.device == "cpu" else f"{case.launch:7}"
    return (f"{case.subject:42} {case.policy:9} {column} {ours:6.3f} ms {peer:6.3f} ms  {value:5.2f} "
            f"{f'[{lower:.2f}, {upper:.2f}]':14} {found['controls']['ours'][0]:7.3f} {found['controls']['peer'][0]:6.3f}"
            + (f"  {made}" if made else "") + ("  suspect: " + "; ".join(reasons) if reasons else ""))


def wait_for_idle_cores(pids, threads, cores):
    """Until other work leaves the cores for a third of a second, at most IDLE_WAIT seconds."""
    begin = time.monotonic()
    while time.monotonic() - begin < IDLE_WAIT:
        meter = turns.ContentionMeter(pids)
        time.sleep(0.3)
        contention = meter.read()
        if contention["others"] + contention["stolen"] <= cores - threads + 0.1 * threads:
            return


class Measuring:
    """The cases one after the other, their records and the ratios without doubt."""

    def __init__(self, arguments, subjects, folder, save):
        self.arguments, self.folder, self.save = arguments, folder, save
        self.draw, self.cores = random.Random(arguments.seed), os.cpu_count() or 1
        self.ours, self.peer = [], []
        self.ratios, self.measured = {}, collections.Counter()  # by launch
        self.on_gpu = arguments.device != "cpu"
        axes = tuple(tuple(one.split("=", 1)) for one in arguments.axis)
        launches = {"kernels": axes, "graph": (("launch", "graph"),) + axes}
        self.cases = [Case(subject, arguments.device, policy, launches[launch]) for subject in subjects
                      for policy in arguments.policies for launch in arguments.launch]
        self.planned = len(self.cases) * len(arguments.threads)

    def dump_of(self, case):
        """All policies of a GPU have the parameters in f32 and so the numbers of fp32."""
        return dumped(self.arguments.halfmark, case.subject, "fp32" if self.on_gpu else case.policy, self.folder)

    def is_over(self):
        return self.arguments.budget and time.monotonic() - BEGIN > self.arguments.budget

    def compile(self):
        cases = [case for case in self.cases if case.graph]
        if cases and self.arguments.compilers and any(form.startswith("compiled") for form in self.arguments.forms):
            compile_all(self.arguments, [(case, self.dump_of(case)) for case in cases], say)
            say(f"compiled all of {len(cases)}")

    def dump_all(self):
        """Some at a time, before anything is timed."""
        first = {case.subject: case for case in self.cases}
        with concurrent.futures.ThreadPoolExecutor(DUMPS_AT_ONCE) as pool:
            list(pool.map(self.dump_of, first.values()))
        say(f"dumped the inputs of {len(first)} subjects")

    def run(self):
        if self.on_gpu:
            self.dump_all()
            self.compile()
        print(HEAD if not self.on_gpu else HEAD.replace("threads", "launch "), flush=True)
        for threads in self.arguments.threads:
            team, ended = Team(self.arguments, threads), 0
            for case in self.cases:
                if ended == MOST_ENDS:
                    say(f"stopped: processes ended in {MOST_ENDS} cases one after the other")
                    break
                if self.is_over():
                    say(f"--budget is spent: {self.planned - len(self.ours)} cases were not measured")
                    break
                try:
                    self.measure(team, case, threads)
                    ended = 0
                except Ended as error:
                    if not self.on_gpu:
                        raise SystemExit(f"pytorch_speed.py: {error}") from None
                    print(f"{case.subject:42} {case.policy:9} {case.launch:7} not measured: {error}", flush=True)
                    team.end()
                    team, ended = Team(self.arguments, threads), ended + 1
            team.end()

    def choose_form(self, team, case, dump):
        """The form of PyTorch's step, and the seconds of all that ran."""
        if not case.graph:
            return "eager", {}
        form, taken, failed = team.choose_form(case, dump, self.arguments.forms)
        say(f"{case.subject} {case.policy}: "
            + ", ".join([f"{one} {seconds * 1e3:.3f} ms" for one, seconds in taken.items()]
                        + [f"{one} failed: {reason}" for one, reason in failed.items()]))
        return form, taken

    def measure(self, team, case, threads):
        dump = self.dump_of(case)
        form, forms = self.choose_form(team, case, dump)
        rounds, made = None, "PyTorch: no form of its step ran"
        for _ in range(self.arguments.tries if form else 0):
            if self.arguments.tries > 1:
                wait_for_idle_cores(team.pids(), threads, self.cores)
            start, meter = time.monotonic(), turns.ContentionMeter(team.pids())
            rounds, made = team.measure(case, dump, form, self.arguments.rounds, self.draw)
            if rounds is None:
                break
            found, contention = turns.summary(rounds), meter.read()
            reasons = turns.reasons_to_doubt(found, contention, 1 if self.on_gpu else threads, self.cores)
            if not reasons:
                break
        if rounds is None:
            column = f"{case.launch:7}" if self.on_gpu else f"{threads:7d}"
            print(f"{case.subject:42} {case.policy:9} {column} not measured: {made}", flush=True)
            return
        for who, records in (("ours", self.ours), ("peer", self.peer)):
            records.append(turns.record(who, case.subject, case.policy, threads, found, contention, reasons,
                                        time.monotonic() - start, case.device, dict(case.axes), forms))
        self.measured[case.launch] += 1
        if not reasons:
            self.ratios.setdefault(case.launch, []).append(found["ratio"][0])
        print(line_of(case, threads, found, reasons, f"{form}, {made}" if self.on_gpu else ""), flush=True)
        self.save(self)


def parsed():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", help="layers, models, or SUBJECT/SIZES; none: layers and models")
    parser.add_argument("--halfmark", default=str(ROOT / "build" / "release" / "halfmark"), help="the program")
    parser.add_argument("--python", default=str(VENV / "bin" / "python"), help="the Python that has PyTorch and NumPy")
    parser.add_argument("--device", default="cpu", help="cpu or cuda:N")
    parser.add_argument("--policies", nargs="+", choices=POLICIES["cuda"], help="default: fp32 and amp-bf16, on a GPU all")
    parser.add_argument("--threads", nargs="+", type=int,
                        help="of the CPU; default: 1 2, on a GPU at most 8, for preparing cases")
    parser.add_argument("--rounds", type=int, default=10, help=f"at least {FEWEST_ROUNDS}")
    parser.add_argument("--slice", type=float, default=0.03, help="seconds of one turn")
    parser.add_argument("--tries", type=int, default=1,
                        help="measure a suspect case again, up to so many times, each after waiting for idle cores")
    parser.add_argument("--seed", type=int, default=0, help="of the order of the turns")
    parser.add_argument("--json", nargs=2, metavar=("OURS", "PYTORCH"),
                        help="two reports, for halfmark compare; written after each case")
    parser.add_argument("--list", action="store_true", help="the cases, without measuring")
    gpu = parser.add_argument_group("on a GPU")
    gpu.add_argument("--launch", nargs="+", choices=["kernels", "graph"], help="default: both")
    gpu.add_argument("--forms", nargs="+", choices=FORMS, default=["eager", "graph", "compiled-graph"],
                     help="of PyTorch's step, for --launch graph; default: eager graph compiled-graph")
    gpu.add_argument("--compilers", type=int, default=8, help="processes that compile at once; 0: compile only when timed")
    gpu.add_argument("--form-seconds", type=float, default=0,
                     help="give up a form that is not ready then; default: 150 on a GPU")
    gpu.add_argument("--budget", type=float, default=0, help="begin no case after so many seconds; 0: no limit")
    gpu.add_argument("--axis", nargs="+", default=[], metavar="KEY=VALUE", help="further axes of halfmark's cases, as fused=on")
    return parser.parse_args()


def wrong_input(arguments):
    """One line, or nothing. Fills in what depends on the device."""
    if not re.fullmatch(r"cpu|cuda:\d+", arguments.device):
        return f"--device {arguments.device}: cpu or cuda:N"
    on_gpu = arguments.device != "cpu"
    known = POLICIES["cuda" if on_gpu else "cpu"]
    arguments.policies = arguments.policies or known
    arguments.threads = arguments.threads or ([min(8, os.cpu_count() or 1)] if on_gpu else [1, 2])
    arguments.launch = arguments.launch or (["kernels", "graph"] if on_gpu else ["kernels"])
    arguments.form_seconds = arguments.form_seconds or (150 if on_gpu else 0)
    if wrong := [policy for policy in arguments.policies if policy not in known]:
        return f"--policies {wrong[0]}: on {arguments.device} there are {', '.join(known)}"
    if not on_gpu and "graph" in arguments.launch:
        return "--launch graph: graphs are of CUDA, so it needs --device cuda:N"
    if on_gpu and len(arguments.threads) > 1:
        return "--threads: one number with --device cuda:N"
    if wrong := [one for one in arguments.axis if not re.fullmatch(r"[^=/]+=[^=/]+", one) or one.startswith("launch=")]:
        return f"--axis {wrong[0]}: KEY=VALUE of halfmark list harnesses; for launch there is --launch"
    if arguments.rounds < FEWEST_ROUNDS or arguments.slice <= 0 or min(arguments.threads) < 1 or arguments.tries < 1:
        return f"--rounds is at least {FEWEST_ROUNDS}, --slice above 0, --threads and --tries at least 1"
    if min(arguments.form_seconds, arguments.budget, arguments.compilers) < 0:
        return "--form-seconds, --budget and --compilers are not negative"
    return None


def main():
    arguments = parsed()
    if wrong := wrong_input(arguments):
        print(f"pytorch_speed.py: {wrong}", file=sys.stderr)
        return 2
    lists = {"layers": LAYERS, "models": MODELS} if arguments.device == "cpu" else {"layers": LAYERS_GPU, "models": MODELS_GPU}
    subjects = [one for word in arguments.cases or ["layers", "models"] for one in lists.get(word, [word])]
    if arguments.list:
        print("\n".join(subjects))
        return 0
    if not os.access(arguments.halfmark, os.X_OK):
        print(f"pytorch_speed.py: {arguments.halfmark} is no program; build it, or name another with --halfmark",
              file=sys.stderr)
        return 2
    torch, problem = probed(arguments.python, arguments.device)
    if torch is None:
        print(f"pytorch_speed.py: PyTorch is not usable with {arguments.python}: {problem}; scripts/peers/pytorch.py --install "
              "installs it, --python names another", file=sys.stderr)
        return NOT_INSTALLED
    started = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    environment = environment_of(arguments.halfmark, torch)
    print(f"{environment['cpu']['model']}, {os.cpu_count()} cores; PyTorch {torch['version']}; load {os.getloadavg()[0]:.2f}"
          + (f"; {torch['gpu']}, driver {environment['gpu']['driver']}, CUDA {torch['cuda']}, cuDNN {torch['cudnn']}"
             if "gpu" in torch else ""), flush=True)

    def save(measuring):
        for path, records in zip(arguments.json or (), (measuring.ours, measuring.peer), strict=False):
            made = turns.report(records, environment, " ".join(sys.argv), started, time.monotonic() - BEGIN, measuring.planned)
            pathlib.Path(path).write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    with tempfile.TemporaryDirectory() as name:
        measuring = Measuring(arguments, subjects, pathlib.Path(name), save)
        measuring.run()
    for launch, ratios in measuring.ratios.items():
        print((f"{launch}: " if measuring.on_gpu else "")
              + f"{len(ratios)} of {measuring.measured[launch]} cases without doubt: geometric mean "
              f"{turns.geometric_mean(ratios):.3f}, lowest {min(ratios):.3f}, "
              f"{sum(ratio < 0.95 for ratio in ratios)} below 0.95")
    save(measuring)
    return 0


if __name__ == "__main__":
    sys.exit(main())
