# SPDX-License-Identifier: Apache-2.0
"""What the peers' programs share: times, and the line of JSON for each point."""
import argparse
import json
import time
from collections.abc import Callable


def parser_of(description: str) -> argparse.ArgumentParser:
    """With what every peer's program takes."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--model", choices=["mlp", "transformer"], required=True)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--small", action="store_true")
    return parser


def seconds_of(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def interleaved(steps: dict[str, Callable[[], object]], repetitions: int) -> dict[str, float]:
    """The shortest wall time of each step. Each repetition goes through all of them, so that a slow
    moment of the machine hits all."""
    fastest = dict.fromkeys(steps, float("inf"))
    for _ in range(repetitions):
        for name, step in steps.items():
            fastest[name] = min(fastest[name], seconds_of(step))
    return fastest


def print_point(way: str, **fields: object) -> None:
    print(json.dumps({"way": way, **fields}), flush=True)
