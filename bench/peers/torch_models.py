# SPDX-License-Identifier: Apache-2.0
"""The models of remat_bench.cpp in PyTorch, a training step of them, and its exact peak."""
import gc
from collections.abc import Callable

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

Forward = Callable[[torch.Tensor], torch.Tensor]


class MlpLayer(nn.Sequential):
    def __init__(self, width: int) -> None:
        super().__init__(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width))


class Block(nn.Module):
    """A layer of a transformer."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, steps, width = x.shape
        parts = self.qkv(self.norm1(x)).view(batch, steps, 3, self.heads, width // self.heads)
        parts = parts.permute(2, 0, 3, 1, 4)
        attended = nn.functional.scaled_dot_product_attention(parts[0], parts[1], parts[2])
        y = x + self.out(attended.transpose(1, 2).reshape(batch, steps, width))
        return y + self.down(nn.functional.gelu(self.up(self.norm2(y))))


def make(model: str, small: bool) -> tuple[nn.Sequential, torch.Tensor]:
    """The layers and a batch. The sizes are those of remat_bench.cpp."""
    torch.manual_seed(1)
    if model == "mlp":
        layers, width, batch = (8, 256, 512) if small else (32, 1024, 2048)
        return nn.Sequential(*(MlpLayer(width) for _ in range(layers))), torch.randn(batch, width)
    layers, width, steps, batch = (8, 128, 64, 4) if small else (12, 512, 256, 16)
    blocks = (Block(width, 8) for _ in range(layers))
    return nn.Sequential(*blocks), torch.randn(batch, steps, width)


def prepare_gradients(model: nn.Module) -> None:
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)


def step_of(forward: Forward, model: nn.Module, x: torch.Tensor) -> Callable[[], None]:
    """Gradients to zero, forward, loss and backward into gradients that exist already."""
    def step() -> None:
        for parameter in model.parameters():
            parameter.grad.zero_()
        forward(x).square().mean().backward()

    return step


def gradients_after(step: Callable[[], None], model: nn.Module) -> list[torch.Tensor]:
    step()
    return [parameter.grad.clone() for parameter in model.parameters()]


def are_equal(some: list[torch.Tensor], others: list[torch.Tensor]) -> bool:
    return all(torch.equal(one, other) for one, other in zip(some, others, strict=True))


def bytes_of(work: Callable[[], object]) -> tuple[int, int]:
    """The bytes in use in PyTorch's CPU allocator after `work`, and the most meanwhile, both above
    what was in use when it began: the sums over the allocator's events, in their order."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        work()
    events = [(event.start_ns(), event.nbytes())
              for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
    current = peak = 0
    for _, nbytes in sorted(events, key=lambda event: event[0]):  # keeps the order of equal times
        current += nbytes
        peak = max(peak, current)
    return current, peak


def peak_bytes(step: Callable[[], None]) -> int:
    gc.collect()
    return bytes_of(step)[1]
