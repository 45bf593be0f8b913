#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares Reprise with what Python has for the same purpose, and prints Markdown.

    compare.py overhead             the cost of a checkpointed region, beside torch.utils.checkpoint
    compare.py rematerialisation    training within fewer bytes, beside PyTorch, rockmate and JAX

Build first: scripts/build release checkpoint_bench remat_bench. The peers live in environments of
their own in the cache folder, made at the first run.
"""
import argparse
import pathlib
import platform
import sys

import overhead
import rematerialisation

SECTIONS = {"overhead": overhead, "rematerialisation": rematerialisation}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="section", required=True)
    for name, section in SECTIONS.items():
        command = commands.add_parser(name, description=section.__doc__.splitlines()[0])
        command.add_argument("--program", type=pathlib.Path, default=section.PROGRAM,
                             help=f"the C++ program (default: build/release/bench/"
                                  f"{section.PROGRAM.name})")
        section.add_options(command)
    options = parser.parse_args()
    if platform.machine() != "x86_64":
        parser.error("the pinned packages are for Linux on x86_64")
    if not options.program.exists():
        parser.error(f"{options.program} is missing: run scripts/build release or give --program")
    return SECTIONS[options.section].run(options)


if __name__ == "__main__":
    sys.exit(main())
