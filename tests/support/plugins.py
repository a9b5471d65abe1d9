"""Plugins of the tests and benchmarks, made known to a server that they start."""

from __future__ import annotations

from pathlib import Path


def environment(folder: Path, name: str, entry_point: str, *paths: Path) -> dict[str, str]:
    """Write a plugin's metadata to `folder`, and return the variables that make SGLang load it.

    `entry_point` is `module:function`; `paths` are the folders where Python finds the module.
    """
    metadata = folder / f"{name}-0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0\n")
    (metadata / "entry_points.txt").write_text(f"[sglang.srt.plugins]\n{name} = {entry_point}\n")
    return {"PYTHONPATH": ":".join(map(str, (folder, *paths)))}
