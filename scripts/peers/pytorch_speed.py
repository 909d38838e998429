#!/usr/bin/env python3
"""Speed of training steps on the CPU beside PyTorch eager, in one interleaved run.

  scripts/peers/pytorch.py --install               installs PyTorch, as for the comparison of numbers
  scripts/peers/pytorch_speed.py                   all layers and models, fp32 and amp-bf16, 1 and 2 threads
  scripts/peers/pytorch_speed.py models            the models only; also: layers, or SUBJECT/SIZES ...
  scripts/peers/pytorch_speed.py mlp/b32_i64_h128_o10 --policies fp32 --threads 1 --rounds 20

Two processes of halfmark and two of PyTorch stay alive and take turns in slices of --slice seconds, in random order and
then in the reverse order. A step is forward, loss, backward with the gradient of the input, and the optimizer, from the same
numbers with the same shapes, batch, optimizer and number of threads. PyTorch gets images in channels_last, the fastest of its
three forms of the optimizer, and one pair of caches of casts per step, as autocast has.

ratio: time of PyTorch / time of halfmark; above 1 halfmark is faster. Hodges-Lehmann over the rounds with the 95 % signed-rank
interval. Controls: the second process of each program against the first must hold 1 in its 99 % interval, widened by 3 %.
`suspect`: a control does not, or other work took the cores.

Exit codes: 0 measured, 2 wrong input, 77 PyTorch is not installed.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import random
import select
import subprocess
import sys
import tempfile
import time

import turns
from pytorch import NOT_INSTALLED, ROOT, VENV

LAYERS = ["linear/b64_i1024_o1024", "conv2d/b16_c64_o64_s28_k3", "conv2d/b16_c64_o128_s28_k3_t2",
          "conv2d/b16_c128_o128_s28_k1", "conv2d/b16_c128_o128_s28_k3_g128", "conv2d/b8_c64_o64_s32_k3x1_d2",
          "convtranspose2d/b16_c64_o32_s14_k3_t2", "batchnorm2d/b16_c64_s28", "layernorm/b512_d768", "rmsnorm/b512_d768",
          "groupnorm/b16_c64_s28_g8", "maxpool/b16_c64_s28_k3_t2", "avgpool/b16_c64_s28_k2", "globalpool/b16_c64_s28",
          "adaptivepool/b16_c64_s28_o7", "upsample/b16_c64_s28_f2", "relu/b16_c64_s28", "sigmoid/b16_c64_s28",
          "tanh/b16_c64_s28", "silu/b16_c64_s28", "gelu/b16_c64_s28", "gelu_tanh/b16_c64_s28", "softmax/b512_d1024",
          "attention/b8_h8_t128_d32", "lstm/b32_t32_i128_h128"]
MODELS = ["mlp/b32_i64_h128_o10", "mlp/b256_i256_h512_o10", "resnet/b64_s32", "erfnet/b1_s128x256", "xception/b4_s64_n2",
          "gpt/b32_t64_n2_h4_d64_v64", "gpt/b8_t128_n4_h6_d384_v256", "lstm_classifier/b64_t32_n1_e32_h64_v64_o4"]
POLICIES = ("fp32", "amp-bf16")
FEWEST_ROUNDS = 8  # with fewer there is no 99 % interval of the control
PAUSE = 0.012      # seconds between slices: idle OpenMP threads of PyTorch keep a core busy for about so long
IDLE_WAIT = 60     # seconds to wait for idle cores, with --tries
TIMEOUT = 300      # seconds for one answer


class Peer:
    """A process that answers each line with a line of JSON."""

    def __init__(self, command):
        self.command = command
        environment = dict(os.environ, PYTHONWARNINGS="ignore")  # PyTorch warns where it has no fused kernel
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        if not select.select([self.process.stdout], [], [], TIMEOUT)[0]:
            raise SystemExit(f"pytorch_speed.py: {self.command[0]} gave no answer for {line} in {TIMEOUT} s")
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit(f"pytorch_speed.py: {self.command[0]} ended at {line}; its messages are above")
        return json.loads(answer)

    def end(self):
        self.process.stdin.close()
        self.process.wait()


class Team:
    """Two processes of each program with the same number of threads."""

    def __init__(self, halfmark, threads, seconds):
        self.seconds = seconds
        worker = str(pathlib.Path(__file__).resolve().parent / "torch_worker.py")
        ours = [halfmark, "sample", "--seconds", str(seconds), "--threads", str(threads)]
        theirs = [str(VENV / "bin" / "python"), worker, str(threads)]
        self.peers = {"ours": [Peer(ours), Peer(ours)], "peer": [Peer(theirs), Peer(theirs)]}

    def pids(self):
        return [one.process.pid for pair in self.peers.values() for one in pair] + [os.getpid()]

    def ask(self, who, index, subject, policy, dump):
        line = f"{subject}/cpu/{policy}/throughput" if who == "ours" else json.dumps(
            {"dump": str(dump), "policy": policy, "seconds": self.seconds})
        answer = self.peers[who][index].ask(line)
        time.sleep(PAUSE)
        return answer

    def measure(self, subject, policy, dump, rounds, draw):
        """Rounds of seconds, or the reason why there are none; and PyTorch's form of the optimizer."""
        everyone = [(who, index) for who in ("ours", "peer") for index in (0, 1)]
        form = ""
        for who, index in everyone:  # builds the model, warms up
            answer = self.ask(who, index, subject, policy, dump)
            if answer["reason"]:
                return None, f"{'halfmark' if who == 'ours' else 'PyTorch'}: {answer['reason']}"
            form = answer.get("optimizer", form)
        taken = []
        for _ in range(rounds):
            order = everyone[:]
            draw.shuffle(order)
            one = {"ours": [0.0, 0.0], "peer": [0.0, 0.0]}
            for who, index in order + order[::-1]:
                one[who][index] += self.ask(who, index, subject, policy, dump)["seconds"] / 2
            taken.append(one)
        return taken, form

    def end(self):
        for pair in self.peers.values():
            for one in pair:
                one.end()


def dumped(halfmark, subject, policy, folder):
    target = folder / f"{subject}-{policy}".replace("/", "-")
    command = [halfmark, "dump", f"{subject}/cpu/{policy}", "-o", str(target)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"pytorch_speed.py: {' '.join(command)}: {done.stderr.strip()}")
    return target


def environment_of(halfmark):
    done = subprocess.run([str(VENV / "bin" / "python"), "-c", "import torch; print(torch.__version__)"], capture_output=True,
                          text=True, check=True)
    model = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo", encoding="utf-8")
                  if line.startswith("model name")), platform.machine())
    version = subprocess.run([halfmark, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    return {"halfmark": {"program": version}, "machine": platform.node(), "pytorch": {"version": done.stdout.strip()},
            "cpu": {"model": model, "cores": os.cpu_count()}, "os": {"kernel": platform.release()}}


HEAD = (f"{'case':42} {'policy':9} {'threads':>7} {'ours':>9} {'PyTorch':>9}  {'ratio':>5} {'interval':14} "
        f"{'control':>7} {'torch':>6}")


def line_of(subject, policy, threads, found, reasons):
    ours, peer = (sorted(found["seconds"][who])[len(found["seconds"][who]) // 2] * 1e3 for who in ("ours", "peer"))
    value, lower, upper = found["ratio"]
    return (f"{subject:42} {policy:9} {threads:7d} {ours:6.3f} ms {peer:6.3f} ms  {value:5.2f} "
            f"{f'[{lower:.2f}, {upper:.2f}]':14} {found['controls']['ours'][0]:7.3f} {found['controls']['peer'][0]:6.3f}"
            + ("  suspect: " + "; ".join(reasons) if reasons else ""))


def wait_for_idle_cores(pids, threads, cores):
    """Until other work leaves the cores for a third of a second, at most IDLE_WAIT seconds."""
    begin = time.monotonic()
    while time.monotonic() - begin < IDLE_WAIT:
        meter = turns.ContentionMeter(pids)
        time.sleep(0.3)
        contention = meter.read()
        if contention["others"] + contention["stolen"] <= cores - threads + 0.1 * threads:
            return


def measure_all(arguments, subjects, folder):
    """(records of ours, records of PyTorch, ratios without doubt)."""
    draw, cores = random.Random(arguments.seed), os.cpu_count() or 1
    ours, peer, ratios = [], [], []
    print(HEAD)
    for threads in arguments.threads:
        team = Team(arguments.halfmark, threads, arguments.slice)
        for subject in subjects:
            for policy in arguments.policies:
                dump = folder / f"{subject}-{policy}".replace("/", "-")
                if not dump.exists():
                    dumped(arguments.halfmark, subject, policy, folder)
                for _ in range(arguments.tries):
                    if arguments.tries > 1:
                        wait_for_idle_cores(team.pids(), threads, cores)
                    start, meter = time.monotonic(), turns.ContentionMeter(team.pids())
                    rounds, form = team.measure(subject, policy, dump, arguments.rounds, draw)
                    if rounds is None:
                        break
                    found, contention = turns.summary(rounds), meter.read()
                    reasons = turns.reasons_to_doubt(found, contention, threads, cores)
                    if not reasons:
                        break
                if rounds is None:
                    print(f"{subject:42} {policy:9} {threads:7d} not measured: {form}", flush=True)
                    continue
                for who, records in (("ours", ours), ("peer", peer)):
                    records.append(turns.record(who, subject, policy, threads, found, contention, reasons,
                                                time.monotonic() - start))
                if not reasons:
                    ratios.append(found["ratio"][0])
                print(line_of(subject, policy, threads, found, reasons), flush=True)
        team.end()
    return ours, peer, ratios


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", help="layers, models, or SUBJECT/SIZES; none: layers and models")
    parser.add_argument("--halfmark", default=str(ROOT / "build" / "release" / "halfmark"), help="the program")
    parser.add_argument("--policies", nargs="+", default=list(POLICIES), choices=["fp32", "amp-bf16"])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=10, help=f"at least {FEWEST_ROUNDS}")
    parser.add_argument("--slice", type=float, default=0.03, help="seconds of one turn")
    parser.add_argument("--tries", type=int, default=1,
                        help="measure a suspect case again, up to so many times, each after waiting for idle cores")
    parser.add_argument("--seed", type=int, default=0, help="of the order of the turns")
    parser.add_argument("--json", nargs=2, metavar=("OURS", "PYTORCH"), help="two reports, for halfmark compare")
    parser.add_argument("--list", action="store_true", help="the cases, without measuring")
    arguments = parser.parse_args()
    subjects = []
    for word in arguments.cases or ["layers", "models"]:
        subjects += {"layers": LAYERS, "models": MODELS}.get(word, [word])
    if arguments.list:
        print("\n".join(subjects))
        return 0
    if arguments.rounds < FEWEST_ROUNDS or arguments.slice <= 0 or min(arguments.threads) < 1 or arguments.tries < 1:
        print(f"pytorch_speed.py: --rounds is at least {FEWEST_ROUNDS}, --slice above 0, --threads and --tries at least 1",
              file=sys.stderr)
        return 2
    if not os.access(arguments.halfmark, os.X_OK):
        print(f"pytorch_speed.py: {arguments.halfmark} is no program; build it, or name another with --halfmark", file=sys.stderr)
        return 2
    if not (VENV / "bin" / "python").exists():
        print("pytorch_speed.py: PyTorch is not installed; scripts/peers/pytorch.py --install does it", file=sys.stderr)
        return NOT_INSTALLED
    started, begin = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"), time.monotonic()
    environment = environment_of(arguments.halfmark)
    print(f"{environment['cpu']['model']}, {os.cpu_count()} cores; PyTorch {environment['pytorch']['version']}; "
          f"load {os.getloadavg()[0]:.2f}")
    with tempfile.TemporaryDirectory() as name:
        ours, peer, ratios = measure_all(arguments, subjects, pathlib.Path(name))
    if ratios:
        print(f"{len(ratios)} of {len(ours)} cases without doubt: geometric mean {turns.geometric_mean(ratios):.3f}, "
              f"lowest {min(ratios):.3f}, {sum(ratio < 0.95 for ratio in ratios)} below 0.95")
    for path, records in zip(arguments.json or (), (ours, peer), strict=False):
        made = turns.report(records, environment, " ".join(sys.argv), started, time.monotonic() - begin)
        pathlib.Path(path).write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
