"""Runs commands with a time limit each, and keeps what a failure needs in a few files of bounded size.

Takes commands; gives their output. Leaves to `gpu_run.py` what is run, and what is a failure.
"""

import os
import re
import signal
import subprocess
import tempfile
import threading
import time
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

# What comes back from the machine with the card: eight files of 16 MiB. Four are left for these.
VOLUMES, VOLUME = 4, 15 << 20
# The most that is kept of one file, packed or not: results of a large launch are cut.
LONGEST = 12 << 20
# The most of a program's output.
OUTPUT = 1 << 20
# Seconds after which a killed program is left alone: a card that hangs may keep it.
GONE = 5.0


class Failed(Exception):
    """A program ended badly, in words."""

    def __init__(self, why: str, done: "Done | None" = None):
        super().__init__(why)
        self.done = done


@dataclass
class Done:
    """A command that ended, or was ended."""

    command: list[str]
    env: dict[str, str]
    code: int | None
    out: str
    err: str
    seconds: float

    def why(self) -> str:
        """What went wrong, in words."""
        if self.code is None:
            return f"stopped after {self.seconds:.0f} s"
        said = self.err.strip() or self.out.strip()
        return said[-1500:] or f"ended with {self.code}"


def run(command: list[str], seconds: float, env: dict[str, str] | None = None, cwd: Path | None = None) -> Done:
    """Runs a command, and everything that it starts no longer than so many seconds."""
    env = env or {}
    began = time.monotonic()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=cwd, env=os.environ | env, start_new_session=True
            )
        except OSError as error:
            return Done(command, env, 127, "", str(error), 0.0)
        code: int | None
        try:
            code = process.wait(max(1.0, seconds))
        except subprocess.TimeoutExpired:
            code = None
            os.killpg(process.pid, signal.SIGKILL)
            try:
                process.wait(GONE)
            except subprocess.TimeoutExpired:
                pass
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
        return Done(command, env, code, texts[0], texts[1], time.monotonic() - began)


def entry(ptx: str, symbol: str) -> str | None:
    """One kernel's part of a module."""
    found = re.search(rf"^.*\.entry {re.escape(symbol)}\(", ptx, re.MULTILINE)
    if not found:
        return None
    end = re.search(r"^}", ptx[found.start() :], re.MULTILINE)
    return ptx[found.start() : found.start() + (end.end() if end else len(ptx))]


class Evidence:
    """`log.txt` of all commands, and `failures-N.zip`: whole after each addition."""

    def __init__(self, out: Path):
        self.out, self.lock, self.number = out, threading.Lock(), 0
        self.began = time.monotonic()
        self.left_out = 0

    def log(self, label: str, done: Done) -> None:
        """A line for a command."""
        settings = "".join(f"{name}={value} " for name, value in done.env.items())
        words = [Path(done.command[0]).name, *done.command[1:]]
        code = "stopped" if done.code is None else done.code
        line = f"{time.monotonic() - self.began:6.1f} s  {done.seconds:6.1f} s  {code!s:>7}  {label}: {settings}{' '.join(words)}\n"
        with self.lock, (self.out / "log.txt").open("a", encoding="utf-8") as file:
            file.write(line)

    def keep(self, label: str, done: Done | None, why: str, artifact: Path | None = None, dump: Path | None = None) -> None:
        """All that is known of a failure: what was said, the code of the kernels that it names, operands and results."""
        files: dict[str, bytes] = {"why.txt": why.encode()}
        if done:
            settings = "".join(f"{name}={value} " for name, value in done.env.items())
            files["command.txt"] = (settings + " ".join(done.command)).encode()
            files["stdout.txt"] = done.out.encode()[-OUTPUT:]
            files["stderr.txt"] = done.err.encode()[-OUTPUT:]
        if artifact and (artifact / "kernels.ptx").is_file():
            ptx = (artifact / "kernels.ptx").read_text(encoding="utf-8", errors="replace")
            said = why + (done.out + done.err if done else "")
            for symbol in sorted(set(re.findall(r"\b[a-z_]+_[0-9a-f]{16}\b", said)))[:8]:
                text = entry(ptx, symbol)
                if text:
                    files[f"kernels/{symbol}.ptx"] = text.encode()
            if not any(name.startswith("kernels/") for name in files):
                files["kernels.ptx"] = ptx.encode()
        if dump and dump.is_dir():
            for path in sorted(dump.iterdir()):
                files[f"dump/{path.name}"] = path.read_bytes()
        with self.lock:
            self.number += 1
            folder = f"{self.number:03}-{re.sub(r'[^A-Za-z0-9._-]', '-', label)}"
            for name, data in files.items():
                self.add(f"{folder}/{name}", data)

    def add(self, name: str, data: bytes) -> None:
        """One file, cut where it is too long, in the first volume that has room."""
        if len(data) > LONGEST:
            name, data = f"{name}.cut", data[:LONGEST]
        packed = len(zlib.compress(data, 1)) + 1024
        for volume_number in range(1, VOLUMES + 1):
            path = self.out / f"failures-{volume_number}.zip"
            if (path.stat().st_size if path.is_file() else 0) + packed <= VOLUME:
                with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED, compresslevel=6) as volume:
                    volume.writestr(name, data)
                return
        self.left_out += 1
