# SPDX-License-Identifier: Apache-2.0
"""Unpacks the source of rockmate and rkgb from a clone, changed to run on a CPU.

The package rkgb 2.0.0 of PyPI lacks most of its source, so it is taken from a clone of
topal-team/rockmate at a fixed commit. The source names CUDA as its device; here it names the CPU.
"""
import pathlib
import shutil
import subprocess

COMMIT = "aabc29b45b7c430d7d3227066874bd8797473018"
FOLDERS = ["rkgb/src", "rockmate/src"]
CHANGES = [
    ('"cuda"', '"cpu"'),
    ("pin_memory=True", "pin_memory=False"),
    ('self.kwargs["pin_memory"] = True', 'self.kwargs["pin_memory"] = False'),
]


def change(folder: pathlib.Path) -> None:
    """Makes every change wherever its text is; each must be somewhere."""
    texts = {path: path.read_text() for path in (folder / "rockmate").rglob("*.py")}
    for old, new in CHANGES:
        if not any(old in text for text in texts.values()):
            raise SystemExit(f"rockmate_source.py: {old} is nowhere in rockmate's source")
        texts = {path: text.replace(old, new) for path, text in texts.items()}
    for path, text in texts.items():
        path.write_text(text)


def unpack(clone: pathlib.Path, folder: pathlib.Path) -> list[pathlib.Path]:
    """Writes the source into `folder`; returns what must be on Python's path."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    archive = subprocess.run(["git", "-C", clone, "archive", COMMIT, *FOLDERS], check=True,
                             stdout=subprocess.PIPE)
    subprocess.run(["tar", "-x", "-C", folder], check=True, input=archive.stdout)
    change(folder)
    return [folder / name for name in FOLDERS]
