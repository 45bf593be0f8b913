# SPDX-License-Identifier: Apache-2.0
"""Writes tft_<case>.safetensors: what the reference model computes, for tests/tft_parity_test.cpp.

A file holds every parameter under its own name, its gradient as "grad.<name>", inputs as "input.<name>", "target" and
"mask", and results as "expected.<name>"; its metadata holds the fields of TftOptions that differ from case to case.
"""
import dataclasses
import json
import pathlib

import numpy as np
from safetensors.numpy import save

from tft_cases import CASES, data_of
from tft_reference import loss_and_gradients

FOLDER = pathlib.Path(__file__).parent


def as_text(value):
    """A number, or a list of them with commas between."""
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(int(value) if isinstance(value, bool) else value)


def with_sorted_metadata(data):
    """The package writes metadata in another order each time; the length of the header does not change."""
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode().ljust(length)
    assert len(text) == length
    return data[:8] + text + data[8 + length :]


def fixture(case):
    options = CASES[case]
    parameters, inputs, target = data_of(case)
    loss, output, gradients = loss_and_gradients(options, parameters, inputs, target)
    mask = np.ones(target.shape)
    mask[0, 1:] = 0  # the first sample's future ends after one step
    masked_loss, _, _ = loss_and_gradients(options, parameters, inputs, target, mask)
    tensors = dict(parameters) | {f"grad.{name}": gradient for name, gradient in gradients.items()}
    tensors |= {f"input.{name}": value for name, value in inputs.items()} | {"target": target, "mask": mask}
    output |= {"loss": np.array(loss), "masked_loss": np.array(masked_loss)}
    tensors |= {f"expected.{name}": value for name, value in output.items()}
    tensors = {name: np.ascontiguousarray(value).reshape(value.shape) for name, value in tensors.items()}
    return tensors, {name: as_text(value) for name, value in dataclasses.asdict(options).items()}


def main():
    for case in CASES:
        tensors, metadata = fixture(case)
        file = FOLDER / f"tft_{case}.safetensors"
        file.write_bytes(with_sorted_metadata(save(tensors, metadata)))
        print(f"{file.name}: {file.stat().st_size} bytes")


if __name__ == "__main__":
    main()
