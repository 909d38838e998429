"""Times taken in turn by processes of two programs: ratios with intervals, controls, and reports in halfmark's form.

Needs neither PyTorch nor NumPy.
"""

import math
import os
import statistics

# Two processes of one program differ for as long as they live: their memory and their code lie elsewhere. A control that
# holds 1 within this share is taken as equal; halfmark's own two trials of one process need 1 % (bench/run/time_in_turn.h).
OFFSET_OF_PROCESSES = 0.03


def hodges_lehmann(values, confidence=0.95):
    """(estimate, lower, upper) of the centre of values that are symmetric about it.

    The median of the means of all pairs, each value with itself included, and the signed-rank interval (Hollander and Wolfe,
    Nonparametric Statistical Methods, 3.3). Infinite bounds: too few values for this confidence."""
    n = len(values)
    means = sorted((values[i] + values[j]) / 2 for i in range(n) for j in range(i, n))
    # ways[s]: how many subsets of the ranks 1..n have the sum s.
    ways = [1] + [0] * (n * (n + 1) // 2)
    for rank in range(1, n + 1):
        for total in range(len(ways) - 1, rank - 1, -1):
            ways[total] += ways[total - rank]
    tail, cut = 0, 0
    while cut < len(ways) and (tail + ways[cut]) / 2**n <= (1 - confidence) / 2:
        tail += ways[cut]
        cut += 1
    if cut == 0:
        return statistics.median(means), -math.inf, math.inf
    return statistics.median(means), means[cut - 1], means[len(means) - cut]


def ratio(logs, confidence=0.95, offset=0.0):
    """A ratio with its interval, from the logarithms of the rounds; `offset` widens the interval at both ends."""
    value, lower, upper = (math.exp(each) if each < 700 else math.inf for each in hodges_lehmann(logs, confidence))
    return value, lower / (1 + offset), upper * (1 + offset)


def holds_one(interval):
    return interval[1] <= 1 <= interval[2]


def summary(rounds):
    """Of rounds {"ours": [s, s], "peer": [s, s]} with the seconds of both processes of each program."""
    log = math.log
    speed = ratio([(log(r["peer"][0]) + log(r["peer"][1]) - log(r["ours"][0]) - log(r["ours"][1])) / 2 for r in rounds])
    controls = {who: ratio([log(r[who][1]) - log(r[who][0]) for r in rounds], 0.99, OFFSET_OF_PROCESSES)
                for who in ("ours", "peer")}
    seconds = {who: [value for r in rounds for value in r[who]] for who in ("ours", "peer")}
    return {"ratio": speed, "controls": controls, "seconds": seconds}


def reasons_to_doubt(found, contention, threads, cores):
    """Why the times of a case are not valid; empty: they are."""
    reasons = [f"the control of {name} is {found['controls'][who][0]:.3f} "
               f"[{found['controls'][who][1]:.3f}, {found['controls'][who][2]:.3f}], which does not hold 1"
               for who, name in (("ours", "halfmark"), ("peer", "PyTorch")) if not holds_one(found["controls"][who])]
    taken = contention["others"] + contention["stolen"]
    if taken > cores - threads + 0.1 * threads:  # as contention_reason of bench/run/contention.h
        reasons.append(f"other processes or the host kept {taken:.2f} of {cores} cores busy")
    return reasons


class ContentionMeter:
    """Cores that processes other than these kept busy, from /proc (proc(5)); zeros where the system does not tell."""

    def __init__(self, pids):
        self.pids = pids
        self.begin = self.now()

    def now(self):
        tick = os.sysconf("SC_CLK_TCK")
        try:
            with open("/proc/stat", encoding="ascii") as file:
                user, nice, system, _, _, irq, soft, steal = (int(word) for word in file.readline().split()[1:9])
            with open("/proc/uptime", encoding="ascii") as file:
                wall = float(file.readline().split()[0])
            own = 0
            for pid in self.pids:
                with open(f"/proc/{pid}/stat", encoding="ascii") as file:
                    words = file.read().rsplit(")", 1)[1].split()
                own += int(words[11]) + int(words[12])
        except (OSError, ValueError, IndexError):
            return None
        return {"wall": wall, "busy": (user + nice + system + irq + soft) / tick, "own": own / tick, "stolen": steal / tick}

    def read(self):
        end = self.now()
        if not self.begin or not end or end["wall"] <= self.begin["wall"]:
            return {"others": 0.0, "stolen": 0.0}
        of = {key: end[key] - self.begin[key] for key in end}
        return {"others": max(0.0, (of["busy"] - of["own"]) / of["wall"]), "stolen": max(0.0, of["stolen"] / of["wall"])}


def number(value):
    if math.isnan(value):
        return "NaN"
    return value if math.isfinite(value) else ("Infinity" if value > 0 else "-Infinity")


def measurement(metric, value, unit, kind="information", better="neither", interval=None, samples=None):
    made = {"metric": metric, "at": "hot", "value": number(value), "unit": unit, "better": better, "kind": kind}
    if interval:
        made["interval"] = [number(each) for each in interval]
    if samples:
        made["samples"] = [number(each) for each in samples]
    return made


def device_of(who, threads, device="cpu"):
    """As a report names it: each number of threads is a device, so that `halfmark compare` gives it a column."""
    if device == "cpu":
        return f"{'cpu' if who == 'ours' else 'pytorch'}-t{threads}"
    return device if who == "ours" else f"pytorch-{device}"


def record(who, subject, policy, threads, found, contention, reasons, seconds, device="cpu", axes=None, forms=None):
    """A record of one program: `who` is ours or peer; the ratio to the other program is in ours. `forms`: seconds of each
    form of PyTorch's step that was tried."""
    device, axes = device_of(who, threads, device), axes or {}
    times = found["seconds"][who]
    measured = [measurement("time.step", statistics.median(times), "s", "sampled", "lower", samples=times),
                measurement("speedup.control", found["controls"][who][0], "1", interval=found["controls"][who][1:]),
                measurement("contention.others", contention["others"], "1"),
                measurement("contention.stolen", contention["stolen"], "1")]
    if who == "ours":
        measured.append(measurement("speedup.pytorch", found["ratio"][0], "1", interval=found["ratio"][1:]))
    else:
        measured += [dict(measurement("time.form", value, "s"), at=form) for form, value in (forms or {}).items()]
    return {"id": "/".join([subject, device, policy, "throughput"] + [f"{key}={value}" for key, value in axes.items()]),
            "case_version": 1, "subject": subject, "device": device, "policy": policy, "harness": "throughput",
            "axes": axes, "status": "suspect" if reasons else "ok", "reason": "; ".join(reasons), "seconds": seconds,
            "kernels": [], "measurements": measured, "series": []}


def report(records, environment, command, started, seconds, planned=None):
    planned = len(records) if planned is None else planned
    return {"schema": 1, "minor": 3, "environment": environment,
            "run": {"started": started, "seconds": seconds, "command": command, "seed": 0, "suite": "pytorch_speed",
                    "complete": len(records) == planned, "planned": planned},
            "records": records}


def geometric_mean(values):
    return math.exp(statistics.fmean(math.log(value) for value in values))
