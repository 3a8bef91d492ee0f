"""What `bench` measured on this machine: memory bandwidth, and the share of it that decoding reaches.

One small JSON file: {machine: {backend: {"bandwidth_bytes_s", "flops", "mbu": {weight type: share}, "verify": {tokens:
cost}, "when"}}}. It is replaced as a whole, so a reader never sees half of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from localinfer.paths import measured_speed_file
from localinfer.records import dataclass, field
from localinfer.state_file import positive, read_state, replace_state


@dataclass(frozen=True)
class MeasuredSpeed:
    """Of one backend on one machine; None where it was not measured."""

    bandwidth_bytes_s: float | None = None  # large sequential reads
    flops: float | None = None  # reached in prefill
    mbu: Mapping[str, float] = field(default_factory=dict)  # share of the bandwidth that decoding reaches, by type
    verify: dict[int, float] = field(default_factory=dict)  # cost of a pass over so many tokens, in plain steps
    when: str = ""  # date of the newest figure
    answers: Mapping[str, float] = field(default_factory=dict)  # bytes/s of decoding in answers, by type (ledger.py)

    def share_for(self, weight_type: str) -> tuple[float, str] | None:
        """Decoding's share of the bandwidth and the type it was measured with: this type's, else the lowest."""
        if weight_type in self.mbu:
            return self.mbu[weight_type], weight_type
        if not self.mbu:
            return None
        lowest = min(self.mbu, key=lambda t: self.mbu[t])
        return self.mbu[lowest], lowest


def record_speed(
    machine: str,
    backend: str,
    *,
    when: str,
    bandwidth_bytes_s: float | None = None,
    flops: float | None = None,
    mbu: Mapping[str, float] | None = None,
    verify: Mapping[int, float] | None = None,
    path: Path | None = None,
) -> None:
    """Keep what was measured now; what was not measured now stays as it was. Shares are clipped to 0..1."""
    path = path or measured_speed_file()
    everything = read_state(path)
    entry = everything.setdefault(machine, {}).setdefault(backend, {})
    if bandwidth_bytes_s:
        entry["bandwidth_bytes_s"] = bandwidth_bytes_s
    if flops:
        entry["flops"] = flops
    if mbu:
        entry.setdefault("mbu", {}).update({t: min(1.0, max(0.0, share)) for t, share in mbu.items()})
    if verify:
        entry["verify"] = {str(n): cost for n, cost in verify.items()}
    entry["when"] = when
    replace_state(path, everything)


def load_speed(machine: str, backend: str, path: Path | None = None) -> MeasuredSpeed:
    """What is known; an empty MeasuredSpeed where nothing was measured or the file is damaged."""
    machines = read_state(path or measured_speed_file()).get(machine)
    entry = machines.get(backend) if isinstance(machines, dict) else None
    if not isinstance(entry, dict):
        return MeasuredSpeed()
    shares, verify = entry.get("mbu"), entry.get("verify")
    return MeasuredSpeed(
        positive(entry.get("bandwidth_bytes_s")),
        positive(entry.get("flops")),
        {t: s for t, s in shares.items() if positive(s)} if isinstance(shares, dict) else {},
        {int(n): c for n, c in verify.items() if n.isdigit() and positive(c)} if isinstance(verify, dict) else {},
        str(entry.get("when", "")),
    )


@dataclass(frozen=True)
class StorageSpeed:
    """What a disk was measured to read."""

    bytes_s: float
    when: str  # date


def record_storage(machine: str, disk: str, speed: StorageSpeed, path: Path | None = None) -> None:
    """Keep a disk's speed, by its mount point. A full disk only means that it is measured again."""
    path = path or measured_speed_file()
    everything = read_state(path)
    disks = everything.setdefault(machine, {}).setdefault("storage", {})
    disks[disk] = {"bytes_s": speed.bytes_s, "when": speed.when}
    with suppress(OSError):
        replace_state(path, everything)


def load_storage(machine: str, disk: str, path: Path | None = None) -> StorageSpeed | None:
    """None where it was not measured."""
    machines = read_state(path or measured_speed_file()).get(machine)
    disks = machines.get("storage") if isinstance(machines, dict) else None
    entry = disks.get(disk) if isinstance(disks, dict) else None
    if not isinstance(entry, dict):
        return None
    bytes_s = positive(entry.get("bytes_s"))
    return StorageSpeed(bytes_s, str(entry.get("when", ""))) if bytes_s else None
