"""`localinfer doctor`: what this machine and installation can do, what is missing and how to get it."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from importlib.util import find_spec
from typing import Any

from localinfer.cli.progress import StatusLine
from localinfer.cli.styled import has_colors, styled
from localinfer.errors import BackendError

COLORS = {"PASS": "green", "WARN": "yellow", "FAIL": "red"}


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("doctor", help="what this machine can do, and what is missing", description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true", help="do not measure bandwidth and FLOP/s")
    parser.add_argument("--gpu-selftest", action="store_true", help="run the GPU kernels against numpy, with a report")


def run(args: argparse.Namespace) -> int:
    if args.gpu_selftest:
        return selftest(args.json)
    from localinfer.doctor import examine

    line, found = StatusLine(), []
    for finding in examine(measure=not args.quick):
        line.clear()
        found.append(finding)
        if not args.json:
            print(f"{_level(finding.level)}  {finding.topic:12} {finding.text}")
            if finding.hint:
                print(f"{'':18} -> {finding.hint}")
        line.show("looking ...")
    line.clear()
    if args.json:
        print(json.dumps([asdict(f) for f in found]))
    return 1 if any(f.level == "FAIL" for f in found) else 0


def selftest(as_json: bool) -> int:
    """The GPU's kernels against numpy: exit 0 when all agree, 6 where one does not or there is no GPU."""
    if find_spec("mlx") is None:
        raise BackendError("gpu-selftest: the package mlx is not installed", "pip install mlx")
    from localinfer.backends.mlx.selftest import run as run_checks

    line = StatusLine()
    report = run_checks(progress=lambda name: line.show(f"checking {name}"))
    line.clear()
    checks = [asdict(check) for check in report.checks]
    print(
        json.dumps({"device": report.device, "passed": report.passed, "checks": checks}) if as_json else report.text()
    )
    return 0 if report.passed else BackendError.exit_code


def _level(level: str) -> str:
    return styled([(level, COLORS[level])], has_colors(sys.stdout))
