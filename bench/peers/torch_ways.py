# SPDX-License-Identifier: Apache-2.0
"""One of PyTorch's ways to train in fewer bytes, beside the plain step of the same process.

    torch_ways.py WAY --model mlp|transformer

Ways: per-layer (each layer checkpointed), segments-N (checkpoint_sequential), selective (each layer
checkpointed, matrix products kept), compile-B (torch.compile with an activation memory budget B).
Prints a line of JSON: the shortest times, the exact peaks, whether the gradients are bitwise those
of the plain step, and for torch.compile what the first step took longer than a later one.
"""
import functools

import measuring
import torch
import torch_models
from torch import nn
from torch.utils.checkpoint import (checkpoint, checkpoint_sequential,
                                    create_selective_checkpoint_contexts)

KEPT = [
    torch.ops.aten.mm.default, torch.ops.aten.addmm.default, torch.ops.aten.bmm.default,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default,
]


def checkpoint_layers(layers: nn.Sequential, **options: object) -> torch_models.Forward:
    def forward(x: torch.Tensor) -> torch.Tensor:
        for layer in layers:
            x = checkpoint(layer, x, use_reentrant=False, **options)
        return x

    return forward


def forward_of(way: str, layers: nn.Sequential) -> torch_models.Forward:
    name, _, argument = way.partition("-")
    if way == "per-layer":
        return checkpoint_layers(layers)
    if way == "selective":
        keep = functools.partial(create_selective_checkpoint_contexts, KEPT)
        return checkpoint_layers(layers, context_fn=keep)
    if name == "segments":
        return lambda x: checkpoint_sequential(layers, int(argument), x, use_reentrant=False)
    if name == "compile":
        from torch._functorch import config
        config.activation_memory_budget = float(argument)  # read at the first step
        return torch.compile(layers)
    raise SystemExit(f"torch_ways.py: unknown way {way}")


def main() -> None:
    parser = measuring.parser_of(__doc__)
    parser.add_argument("way")
    options = parser.parse_args()
    layers, x = torch_models.make(options.model, options.small)
    torch_models.prepare_gradients(layers)
    plain = torch_models.step_of(layers, layers, x)
    step = torch_models.step_of(forward_of(options.way, layers), layers, x)
    expected = torch_models.gradients_after(plain, layers)
    first_s = measuring.seconds_of(step)
    gradients = torch_models.gradients_after(step, layers)
    peaks = [torch_models.peak_bytes(work) for work in (plain, step)]
    fastest = measuring.interleaved({"plain": plain, "step": step}, options.repetitions)
    measuring.print_point(
        options.way, plain_s=fastest["plain"], step_s=fastest["step"], plain_peak_bytes=peaks[0],
        peak_bytes=peaks[1], gradients_equal=torch_models.are_equal(expected, gradients),
        prepare_s=first_s - fastest["step"] if options.way.startswith("compile") else None)


if __name__ == "__main__":
    main()
