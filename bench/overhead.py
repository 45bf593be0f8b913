# SPDX-License-Identifier: Apache-2.0
"""What a checkpointed region costs in Reprise and in torch.utils.checkpoint.

Runs build/release/bench/checkpoint_bench and bench/peers/checkpoint_overhead.py in turn, takes the
minima and prints a Markdown table in microseconds; checkpoint_overhead.py says how each quantity is
defined.
"""
import argparse
import json
import os
import subprocess
import sys
from typing import NamedTuple

import environments

PROGRAM = environments.BENCH_DIR.parent / "build/release/bench/checkpoint_bench"
PEER = environments.BENCH_DIR / "peers/checkpoint_overhead.py"

Series = dict[tuple[str, str], dict[int, float]]  # (operator, mode) -> operators -> seconds


class Quantity(NamedTuple):
    name: str
    asked: float | None  # at most, in microseconds
    reprise: float
    torch: float | None


class Line(NamedTuple):
    intercept: float
    slope: float


def run_program(command: list, fastest: Series) -> None:
    """Runs one program and lowers the times in `fastest` to those that it prints."""
    variables = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=variables)
    for line in map(json.loads, output.stdout.splitlines()):
        times = fastest.setdefault((line["operator"], line["mode"]), {})
        for count, seconds in zip(line["operators_per_region"], line["seconds_per_region"]):
            times[count] = min(times.get(count, seconds), seconds)


def fit(times: dict[int, float]) -> Line:
    """The line with the least squares, each point weighed by 1/(1 + operators): the longer a step,
    the larger its error."""
    weights = {count: 1 / (1 + count) for count in times}
    total = sum(weights.values())
    mean_count = sum(weights[count] * count for count in times) / total
    mean_time = sum(weights[count] * times[count] for count in times) / total
    slope = (sum(weights[count] * (count - mean_count) * times[count] for count in times)
             / sum(weights[count] * (count - mean_count) ** 2 for count in times))
    return Line(mean_time - slope * mean_count, slope)


def derive(series: Series) -> dict[str, float]:
    """The quantities in microseconds."""
    def difference(operator: str, mode: str, base: str) -> Line:
        times, base_times = series[operator, mode], series[operator, base]
        return fit({count: times[count] - base_times[count] for count in times})

    def per_operator(operator: str) -> float:
        return (difference(operator, "checkpoint", "plain").slope
                - fit(series[operator, "forward"]).slope)

    seconds = {
        "per region": difference("sin", "checkpoint", "plain").intercept,
        "per operator that saves nothing": per_operator("neg"),
        "per saved tensor": per_operator("sin") - per_operator("neg"),
        "per operator with one saved tensor": per_operator("sin"),
        "save policy, per other operator": difference("neg", "selective", "checkpoint").slope,
        "save policy, per kept operator": difference("mm", "selective", "plain").slope,
    }
    return {name: value * 1e6 for name, value in seconds.items()}


def empty_hooks(series: Series) -> float:
    """What LibTorch's own hooks cost for each saved tensor, in microseconds: once with their use in
    backward, and once more for the second run."""
    def per_operator(operator: str, mode: str, base: str) -> float:
        times, base_times = series[operator, mode], series[operator, base]
        return fit({count: times[count] - base_times[count] for count in times}).slope

    return 1e6 * sum(per_operator("sin", mode, base) - per_operator("neg", mode, base)
                     for mode, base in (("hooks", "plain"), ("hooks, forward", "forward")))


def quantities(reprise: Series, torch: Series) -> list[Quantity]:
    asked = {
        "per region": 10.0,
        "per operator that saves nothing": 1.5,
        "per saved tensor": 0.5,
    }
    torch_values = derive(torch)
    rows = [Quantity(name, asked.get(name), value, torch_values[name])
            for name, value in derive(reprise).items()]
    after = [row.name for row in rows].index("per saved tensor") + 1
    rows.insert(after, Quantity("of it: LibTorch's hooks, empty ones", None, empty_hooks(reprise),
                                None))
    return rows


def print_table(rows: list[Quantity]) -> None:
    print("| quantity | asked at most, µs | Reprise, µs | torch.utils.checkpoint, µs | ratio |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for row in rows:
        asked = "" if row.asked is None else f"{row.asked:g}"
        other = "" if row.torch is None else f"{row.torch:.2f}"
        ratio = f"{row.torch / row.reprise:.1f}" if row.torch and row.reprise > 0 else ""
        print(f"| {row.name} | {asked} | {row.reprise:.2f} | {other} | {ratio} |")


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=5, help="runs of each program (default: 5)")


def run(options: argparse.Namespace) -> int:
    """Exit code 3 where Reprise exceeds what is asked."""
    python = environments.set_up("torch")
    reprise: Series = {}
    torch: Series = {}
    for _ in range(options.rounds):
        run_program([options.program], reprise)
        run_program([python, PEER], torch)
    rows = quantities(reprise, torch)
    print_table(rows)
    missed = [row.name for row in rows if row.asked is not None and row.reprise > row.asked]
    if missed:
        print(f"compare.py: more than asked: {', '.join(missed)}", file=sys.stderr)
    return 3 if missed else 0
