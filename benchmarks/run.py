"""Every ratio in one table: printed, and saved as benchmarks/results.json and results.png.

The suites of quality (quality.py, suite.py, imputation.py, outliers.py, em_steps.py) take long, and
have tables of their own.
"""

from __future__ import annotations

import json
from pathlib import Path

import draws
import first_use
import importance
import kernels
import large
import matplotlib.pyplot as plt
import memory
import mixture_fit
import network_mixture
import profile_fit
import vae_speed

Row = tuple[str, float, str, bool]  # what, value, target, whether it is met

FOLDER = Path(__file__).parent
# Those that need PyTorch say so where it is missing, and add nothing to the table.
SUITES = (
    kernels,
    draws,
    large,
    memory,
    first_use,
    profile_fit,
    mixture_fit,
    network_mixture,
    importance,
    vae_speed,
)


def shortfall(value: float, target: str) -> float:
    """Return by which factor a target is missed; below 1 if it is met."""
    relation, bound = target.split()
    return value / float(bound) if relation.startswith("<") else float(bound) / value


def draw_picture(table: list[Row], path: Path) -> None:
    """Draw how far every value is from its target."""
    rows = [row for row in reversed(table) if row[2]]
    figure, axes = plt.subplots(figsize=(12, 0.35 * len(rows) + 1.2), layout="constrained")
    factors = [shortfall(value, target) for _, value, target, _ in rows]
    colors = ["tab:green" if met else "tab:red" for *_, met in rows]
    bars = [factor - 1.0 for factor in factors]
    labels = [f"{name.strip()}: {value:.3g} ({target})" for name, value, target, _ in rows]
    axes.barh(labels, bars, color=colors, left=1.0)
    axes.set_xscale("log")
    axes.axvline(1.0, color="black", linewidth=1.0)
    axes.set_xlabel("value relative to its target, the smaller the better; 1: just met")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def save(table: list[Row]) -> None:
    """Write the table to files."""
    names = ("name", "value", "target", "met")
    results = [dict(zip(names, row, strict=True)) for row in table]
    (FOLDER / "results.json").write_text(json.dumps(results, indent=1))
    draw_picture(table, FOLDER / "results.png")


def main() -> None:
    """Measure, print and save."""
    table: list[Row] = []
    for suite in SUITES:
        for name, value, target, met in suite.measure():
            verdict = ("met" if met else "NOT MET") if target else ""
            print(f"{name:80s} {value:10.3f}  {target:8s} {verdict}", flush=True)
            table.append((name, float(value), target, bool(met)))
        save(table)  # a run that is interrupted keeps what it has


if __name__ == "__main__":
    main()
