"""How a step of PyTorch is started and timed: eager, compiled, or as one CUDA graph of the whole step.

eager            each operation from Python
compiled         forward and loss through torch.compile, the optimizer as in eager
graph            the whole eager step, scaler and optimizer included, as a torch.cuda.CUDAGraph
compiled-graph   the same of the compiled step
"""

import contextlib
import gc
import signal
import sys
import time

import torch

FORMS = ("eager", "compiled", "graph", "compiled-graph")
PAUSE = 50e-6  # seconds that the GPU waits before a timed step, as CudaDevice::time of kernels/cuda/cuda_device.cpp has it
WARM_UP_STEPS = 3  # before a capture


class HostClock:
    def __call__(self, work):
        start = time.perf_counter()
        work()
        return time.perf_counter() - start


class CudaClock:
    """As CudaDevice::time: wait for the GPU, keep it busy while the host enqueues, the time between two events of the stream.
    Work that takes the host longer to enqueue than the pause includes that."""

    def __init__(self):
        self.start, self.stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin, cycles = time.perf_counter(), 1_000_000
        while time.perf_counter() - begin < 0.3:  # until the clocks of the GPU are up
            torch.cuda._sleep(cycles)
            torch.cuda.synchronize()
        self.cycles = 0
        self.cycles = int(PAUSE * cycles / self(lambda: torch.cuda._sleep(cycles)))

    def __call__(self, work):
        torch.cuda.synchronize()
        if self.cycles:
            torch.cuda._sleep(self.cycles)
        self.start.record()
        work()
        self.stop.record()
        self.stop.synchronize()
        return self.start.elapsed_time(self.stop) * 1e-3


def open_device(name):
    """(torch.device, its clock). All work of CUDA is on one stream that is not the default one, so that it can be captured."""
    device = torch.device(name)
    if device.type != "cuda":
        return device, HostClock()
    torch.cuda.set_device(device)
    torch.cuda.set_stream(torch.cuda.Stream())
    torch.backends.cudnn.benchmark = True
    return device, CudaClock()


def set_precision(device, policy):
    """tf32 in products and convolutions for the policy tf32 only; PyTorch's own choice has it in convolutions of fp32."""
    if device.type == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = policy == "tf32"


def forget_all(device):
    """Compiled code and memory of the steps before, which nothing refers to any more."""
    if "torch._dynamo" in sys.modules:
        torch._dynamo.reset()
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


@contextlib.contextmanager
def time_limit(seconds):
    """Raises TimeoutError in the work after so many seconds; 0: never."""
    def ring(*_):
        raise TimeoutError(f"not ready after {seconds:g} s")
    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def captured(run, step):
    """A function that replays `run` as one CUDA graph. The gradients are those that it allocates in the capture."""
    for _ in range(WARM_UP_STEPS):
        run()
    torch.cuda.synchronize()
    step.forget_gradients()
    gc.collect()  # what is freed during the capture may end it
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
        run()
    gradients = [leaf.grad for leaf in step.leaves() if leaf.grad is not None]
    for gradient in gradients:
        gradient.zero_()
    graph.replay()
    if not any(gradient.count_nonzero() for gradient in gradients):
        raise RuntimeError("the captured step computes no gradients")
    return graph.replay


def made(form, step):
    """A function that takes a step in this form."""
    run = step
    if form.startswith("compiled"):
        forward = torch.compile(step.forward, dynamic=False)
        def run():
            step(forward)
    return captured(run, step) if form.endswith("graph") else run


def reason_of(error):
    """One line: what was raised, and what that came from."""
    first, root = error, error
    while root.__cause__ or root.__context__:
        root = root.__cause__ or root.__context__
    lines = [next((line.strip() for line in str(one).splitlines() if line.strip()), type(one).__name__)
             for one in (first, root)]
    return lines[0] if lines[0] == lines[1] else f"{lines[0]} ({lines[1]})"
