"""The processes of halfmark and of PyTorch that pytorch_speed.py times in turn."""

import concurrent.futures
import dataclasses
import json
import os
import pathlib
import queue
import select
import subprocess
import time

PAUSE = 0.012  # seconds between slices on a CPU: idle OpenMP threads of PyTorch keep a core busy for about so long
TIMEOUT = 300  # seconds for one answer


class Ended(Exception):
    """A process that gave no answer, in one line."""


@dataclasses.dataclass(frozen=True)
class Case:
    subject: str
    device: str
    policy: str
    axes: tuple = ()  # of halfmark's throughput, as (key, value)

    @property
    def graph(self):
        return ("launch", "graph") in self.axes

    @property
    def launch(self):
        return "graph" if self.graph else "kernels"

    def id(self):
        return "/".join([self.subject, self.device, self.policy, "throughput"] + [f"{key}={value}" for key, value in self.axes])


class Peer:
    """A process that answers each line with a line of JSON."""

    def __init__(self, command, **variables):
        self.command = command
        environment = dict(os.environ, PYTHONWARNINGS="ignore", **variables)  # PyTorch warns where it has no fused kernel
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)

    def ask(self, line):
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise Ended(f"{self.command[0]} ended before {line}; its messages are above") from None
        if not select.select([self.process.stdout], [], [], TIMEOUT)[0]:
            raise Ended(f"{self.command[0]} gave no answer for {line} in {TIMEOUT} s")
        answer = self.process.stdout.readline()
        if not answer:
            raise Ended(f"{self.command[0]} ended at {line}; its messages are above")
        return json.loads(answer)

    def end(self):
        try:
            self.process.stdin.close()
            self.process.wait(10)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()


def torch_worker(arguments, threads, **variables):
    worker = str(pathlib.Path(__file__).resolve().parent / "torch_worker.py")
    return Peer([arguments.python, worker, str(threads), arguments.device], **variables)


class Team:
    """Two processes of each program with the same number of threads."""

    def __init__(self, arguments, threads):
        self.arguments, self.threads, self.seconds = arguments, threads, arguments.slice
        ours = [arguments.halfmark, "sample", "--seconds", str(self.seconds), "--threads", str(threads)]
        self.on_gpu = arguments.device != "cpu"
        self.pause = 0 if self.on_gpu else PAUSE
        self.chosen = {}  # (subject, policy): layout and optimizer of the first process of PyTorch, for the second too
        self.peers = {"ours": [Peer(ours), Peer(ours)],
                      "peer": [torch_worker(arguments, threads), torch_worker(arguments, threads)]}

    def pids(self):
        return [one.process.pid for pair in self.peers.values() for one in pair] + [os.getpid()]

    def ask(self, who, index, case, dump, form):
        line = case.id() if who == "ours" else json.dumps(
            {"dump": str(dump), "policy": case.policy, "seconds": self.seconds, "form": form,
             "limit": self.arguments.form_seconds, "as": self.chosen.get((case.subject, case.policy), {})})
        answer = self.peers[who][index].ask(line)
        if who == "peer" and self.on_gpu and not answer["reason"]:
            self.chosen.setdefault((case.subject, case.policy), {key: answer[key] for key in ("layout", "optimizer")})
        time.sleep(self.pause)
        return answer

    def replace_worker(self):
        """After a capture that failed, the allocator of PyTorch is not as before."""
        self.peers["peer"][0].end()
        self.peers["peer"][0] = torch_worker(self.arguments, self.threads)

    def choose_form(self, case, dump, forms):
        """(the fastest form of PyTorch's step or none, its seconds by form, why others have none)."""
        taken, failed = {}, {}
        for form in forms:
            answer = self.ask("peer", 0, case, dump, form)
            if answer["reason"]:
                failed[form] = answer["reason"]
                self.replace_worker()
            else:
                taken[form] = answer["seconds"]
        return min(taken, key=taken.get, default=None), taken, failed

    def measure(self, case, dump, form, rounds, draw):
        """Rounds of seconds, or the reason why there are none; and PyTorch's form of the optimizer and layout."""
        everyone = [(who, index) for who in ("ours", "peer") for index in (0, 1)]
        made = ""
        for who, index in everyone:  # builds the model, warms up
            answer = self.ask(who, index, case, dump, form)
            if answer["reason"]:
                return None, f"{'halfmark' if who == 'ours' else 'PyTorch'}: {answer['reason']}"
            made = f"{answer['optimizer']}, {answer['layout']}" if who == "peer" else ""
        taken = []
        for _ in range(rounds):
            order = everyone[:]
            draw.shuffle(order)
            one = {"ours": [0.0, 0.0], "peer": [0.0, 0.0]}
            for who, index in order + order[::-1]:
                answer = self.ask(who, index, case, dump, form)
                if answer["reason"]:
                    return None, f"{'halfmark' if who == 'ours' else 'PyTorch'}: {answer['reason']}"
                one[who][index] += answer["seconds"] / 2
            taken.append(one)
        return taken, made

    def end(self):
        for pair in self.peers.values():
            for one in pair:
                one.end()


def compile_all(arguments, cases, say):
    """Compiles the steps of [(case, dump)] in some processes at once, for torch.compile's cache on the disk: a compilation
    takes a core for most of a minute, and the processes that are timed then only load its result."""
    waiting = queue.SimpleQueue()
    for one in cases:
        waiting.put(one)

    def work(_):
        peer = torch_worker(arguments, 1, TORCHINDUCTOR_COMPILE_THREADS="2")
        try:
            while True:
                case, dump = waiting.get_nowait()
                begin = time.monotonic()
                answer = peer.ask(json.dumps({"dump": str(dump), "policy": case.policy, "seconds": 0, "form": "compiled",
                                              "limit": arguments.form_seconds}))
                say(f"compiled {case.subject} {case.policy} in {time.monotonic() - begin:.0f} s"
                    + (f": {answer['reason']}" if answer["reason"] else ""))
        except queue.Empty:
            pass
        except Ended as error:
            say(f"compiling: {error}")
        finally:
            peer.end()
    with concurrent.futures.ThreadPoolExecutor(arguments.compilers) as pool:
        list(pool.map(work, range(min(arguments.compilers, len(cases)))))
