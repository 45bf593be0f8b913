# SPDX-License-Identifier: Apache-2.0
"""A step of rockmate or rotor within a budget, beside the plain step of the same process.

    rockmate_ways.py rotor-SHARE|rockmate-SHARE --model mlp|transformer

The budget is a share of the plain step's exact peak. Prints a line of JSON as torch_ways.py does,
with the seconds to trace, measure and solve, or one without a peak where there is no solution.
"""
import contextlib
import copy
import importlib
import sys
import time
from collections.abc import Callable

import measuring
import torch
import torch_models


class Chain(torch.nn.Module):
    """rkgb cannot read a Sequential, whose argument has the name of a builtin function."""

    def __init__(self, layers: torch.nn.Sequential) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


class Nothing:
    """Stands in for CUDA's streams and events: every call does nothing."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __enter__(self) -> "Nothing":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_, **__: None


def measured(_: object, function: Callable, *arguments: object) -> tuple[object, int, int]:
    """What rkgb's memory tracker has to say of a call: result, bytes that it left, and its peak."""
    results = []
    left, peak = torch_models.bytes_of(lambda: results.append(function(*arguments)))
    return results[0], left, peak


def import_rockmate() -> object:
    """rockmate, with CPU stand-ins for what it asks of CUDA."""
    cuda = torch.cuda
    cuda.current_stream = cuda.Stream = cuda.stream = cuda.Event = Nothing
    cuda.synchronize = cuda.reset_peak_memory_stats = lambda *_: None
    cuda.get_rng_state, cuda.set_rng_state = lambda *_: torch.get_rng_state(), lambda *_: None
    cuda.memory_allocated = cuda.max_memory_allocated = lambda *_: 0
    importlib.import_module("torch._dynamo")  # rkgb expects these to be loaded
    importlib.import_module("torch.export._trace")
    import rockmate
    import rockmate.rockmate
    from rkgb.lowlevel import measure
    measure.MemoryTrackerCPU.measure = measured
    rockmate.rockmate.measure_bandwidth = lambda *_: 1e12  # nothing is offloaded
    return rockmate


def solve(kind: str, model: torch.nn.Module, x: torch.Tensor,
          budget_bytes: float) -> torch_models.Forward | None:
    """The model's forward within the budget, or None where there is no schedule."""
    with contextlib.redirect_stdout(sys.stderr):
        solved = import_rockmate().from_config(model, (x,), budget_bytes, config_type=kind)
    if solved.op_sched is None:
        return None

    def forward(batch: torch.Tensor) -> torch.Tensor:
        result = solved(batch)
        return result[0] if isinstance(result, tuple) else result

    return forward


def main() -> None:
    parser = measuring.parser_of(__doc__)
    parser.add_argument("way")
    options = parser.parse_args()
    kind, share = options.way.split("-")
    layers, x = torch_models.make(options.model, options.small)
    own = Chain(copy.deepcopy(layers))
    torch_models.prepare_gradients(layers)
    plain = torch_models.step_of(layers, layers, x)
    expected = torch_models.gradients_after(plain, layers)
    plain_peak = torch_models.peak_bytes(plain)
    begin = time.perf_counter()
    forward = solve(kind, own, x, float(share) * plain_peak)
    prepare_s = time.perf_counter() - begin
    if forward is None:
        measuring.print_point(options.way, plain_peak_bytes=plain_peak, prepare_s=prepare_s)
        return
    torch_models.prepare_gradients(own)
    step = torch_models.step_of(forward, own, x)
    step()  # builds its storage
    gradients = torch_models.gradients_after(step, own)
    peak = torch_models.peak_bytes(step)
    fastest = measuring.interleaved({"plain": plain, "step": step}, options.repetitions)
    measuring.print_point(
        options.way, plain_s=fastest["plain"], step_s=fastest["step"], plain_peak_bytes=plain_peak,
        peak_bytes=peak, gradients_equal=torch_models.are_equal(expected, gradients),
        prepare_s=prepare_s)


if __name__ == "__main__":
    main()
