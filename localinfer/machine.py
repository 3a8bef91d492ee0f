"""What a measurement was taken on, and whether it was quiet there: processor, system, power, load."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any


def describe_machine() -> dict[str, Any]:
    """Plain values for JSON. What the system does not tell is absent."""
    from localinfer.device import machine_name, processor_name
    from localinfer.engine.planning import usable_cores

    found: dict[str, Any] = {
        "name": machine_name(),
        "cpu": processor_name(),
        "cores": os.cpu_count(),
        "usable_cores": usable_cores(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load_average": _load(),
        **power_state(),
    }
    return {key: value for key, value in found.items() if value is not None}


def power_state(root: Path = Path("/sys")) -> dict[str, Any]:
    """Mains or battery, frequency governor, hottest sensor in degrees Celsius: whatever the system says."""
    if sys.platform == "darwin":
        return {"power": _mac_power()}
    zones = (_number(p) for p in root.glob("class/thermal/thermal_zone*/temp"))
    hottest = max((z for z in zones if z is not None), default=None)
    return {
        "power": _linux_power(root),
        "governor": _text(root / "devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "temperature_c": hottest / 1000 if hottest is not None else None,
    }


def _linux_power(root: Path) -> str | None:
    supplies = list(root.glob("class/power_supply/*"))
    if any(_text(s / "online") == "1" for s in supplies):
        return "mains"
    return "battery" if any(_text(s / "type") == "Battery" for s in supplies) else None


def _mac_power() -> str | None:
    try:
        said = subprocess.run(["pmset", "-g", "batt"], capture_output=True, text=True, timeout=2).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    return "battery" if "Battery Power" in said else "mains"


def _load() -> float | None:
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None


def _text(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None


def _number(path: Path) -> int | None:
    text = _text(path)
    return int(text) if text and text.lstrip("-").isdigit() else None
