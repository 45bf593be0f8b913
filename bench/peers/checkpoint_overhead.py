# SPDX-License-Identifier: Apache-2.0
"""What a checkpointed region of torch.utils.checkpoint costs beyond the kernels it runs again.

The same measurements as checkpoint_bench.cpp, in the same format; bench/overhead.py runs both.

A step is forward and backward of a chain of 16 regions of k operators on a tensor of one element,
in one thread; its time is CPU time, the minimum of many repetitions. `sin` saves one tensor, `neg`
none; a region of `neg` or `mm` ends in one `sin`, so that backward recomputes it. Modes:
  plain       the step without checkpointing
  forward     its forward pass alone, which builds the graph and drops it
  checkpoint  each region checkpointed, with default options
  selective   the same with a policy that keeps the results of aten::mm
One line of JSON for each pair of operator and mode: seconds per region for each k. From the lines
over k overhead.py takes, where extra = checkpoint - plain:
  per region                     intercept of extra of sin
  per operator                   slope of extra of neg - slope of its forward, which is run again
  per operator, one saved tensor the same of sin
  per saved tensor               the difference of these two
  policy, per other operator     slope of neg's selective - slope of its checkpoint
  policy, per kept operator      slope of selective - plain of mm
"""
import argparse
import functools
import gc
import json
import time
from collections.abc import Callable, Iterator

import torch
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

REGIONS = 16
OPERATORS_PER_REGION = [1, 2, 4, 8, 16, 32]
WEIGHT = torch.ones(1, 1)
OPERATORS = {"sin": torch.sin, "neg": torch.neg, "mm": lambda x: torch.mm(x, WEIGHT)}
SERIES = [
    ("sin", "plain"), ("sin", "forward"), ("sin", "checkpoint"),
    ("neg", "plain"), ("neg", "forward"), ("neg", "checkpoint"), ("neg", "selective"),
    ("mm", "plain"), ("mm", "selective"),
]

keep_matrix_products = functools.partial(
    create_selective_checkpoint_contexts, [torch.ops.aten.mm.default])


def make_region(operator: str, count: int) -> Callable[[torch.Tensor], torch.Tensor]:
    apply = OPERATORS[operator]
    ends_in_sin = operator != "sin"

    def region(x: torch.Tensor) -> torch.Tensor:
        for _ in range(count):
            x = apply(x)
        return torch.sin(x) if ends_in_sin else x

    return region


def run_chain(region: Callable, mode: str, x: torch.Tensor) -> torch.Tensor:
    for _ in range(REGIONS):
        if mode == "checkpoint":
            x = checkpoint(region, x, use_reentrant=False)
        elif mode == "selective":
            x = checkpoint(region, x, use_reentrant=False, context_fn=keep_matrix_products)
        else:
            x = region(x)
    return x


def run_step(region: Callable, mode: str, leaf: torch.Tensor) -> None:
    result = run_chain(region, mode, leaf)
    if mode != "forward":
        result.backward()


def time_step(region: Callable, mode: str, leaf: torch.Tensor) -> float:
    """The shortest of three, because the first finds the caches as the step before left them."""
    shortest = float("inf")
    for _ in range(3):
        begin = time.process_time()
        run_step(region, mode, leaf)
        shortest = min(shortest, time.process_time() - begin)
    return shortest


def new_leaf() -> torch.Tensor:
    leaf = torch.full((1, 1), 0.5, requires_grad=True)
    leaf.grad = torch.zeros_like(leaf)
    return leaf


def check_gradients() -> None:
    """Nothing is timed before checkpointed gradients equal plain ones."""
    for operator, mode in SERIES:
        if mode in ("checkpoint", "selective"):
            plain, other = new_leaf(), new_leaf()
            run_step(make_region(operator, 4), "plain", plain)
            run_step(make_region(operator, 4), mode, other)
            if not torch.equal(plain.grad, other.grad):
                raise SystemExit(f"gradients of {operator} ({mode}) differ from plain ones")


def measure(repetitions: int) -> Iterator[dict]:
    """Goes through all series in each repetition: a slow moment of the machine hits all of them."""
    leaf = new_leaf()
    regions = {(operator, count): make_region(operator, count)
               for operator in OPERATORS for count in OPERATORS_PER_REGION}
    fastest = {(operator, mode, count): float("inf")
               for operator, mode in SERIES for count in OPERATORS_PER_REGION}
    for _ in range(repetitions):
        gc.collect()
        for operator, mode, count in fastest:
            seconds = time_step(regions[operator, count], mode, leaf)
            fastest[operator, mode, count] = min(fastest[operator, mode, count], seconds)
    for operator, mode in SERIES:
        times = [fastest[operator, mode, count] / REGIONS for count in OPERATORS_PER_REGION]
        yield {"operator": operator, "mode": mode, "operators_per_region": OPERATORS_PER_REGION,
               "seconds_per_region": times}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=20)
    repetitions = parser.parse_args().repetitions
    torch.set_num_threads(1)
    check_gradients()
    gc.disable()  # as timeit does
    for line in measure(repetitions):
        print(json.dumps(line))


if __name__ == "__main__":
    main()
