#!/usr/bin/env python3
"""The page of `odec report` in headless Chromium:  browser.py ODEC [RUNS]

Without RUNS, trains three small models, one in a folder whose name is markup. Checks at 390, 820 and 1400 pixels, dark, printed and without scripts that
nothing is wider than the window, that the table sorts and curves are switched off and on, and that nothing is loaded or run but the page's
own. Pictures are left in target/browser. Needs tests/browser.txt and Chromium (`make browser`)."""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

MODEL = """
// </pre><script>window.hostile = true</script>
field att   = rmsnorm |> attention(heads: 2, causal, rope)
field ffn   = rmsnorm |> swiglu(hidden: 24)
field layer = increment(lie(att, ffn))

model tiny {
  input  tokens(vocab: 256, context: 16)
  embed  learned(width: 16)
  evolve FLOW for 2 steps { h = 1;  weights per step;  report size = square }
  output rmsnorm |> logits(tied)
}

train {
  data      text("corpus.txt", tokenizer: bytes)
  loss      cross_entropy
  optimizer adamw(lr: 1e-2)
  batch 4;  steps 60
}
"""
HOSTILE = '<img src=x onerror="hostile=true">'
FLOWS = {"lie": "lie(att, ffn)", "rk4": "rk4(layer)", HOSTILE: "strang(ffn, att)"}


def trained(odec, folder):
    (folder / "corpus.txt").write_text("the quick brown fox jumps over the lazy dog\n" * 200)
    for name, flow in FLOWS.items():
        (folder / "model.ode").write_text(MODEL.replace("FLOW", flow))
        command = [odec, "train", "model.ode", "--out", f"runs/{name}"]
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return folder / "runs"


def column(page, n):
    return page.eval_on_selector_all(f"table.runs tbody tr td:nth-child({n})", "cells => cells.map(c => c.dataset.v)")


def sorts(page):
    heads = page.locator("table.runs th").all_inner_texts()
    n = 1 + next(i for i, h in enumerate(heads) if "held-out" in h)
    for order in (sorted, lambda v: sorted(v, reverse=True)):
        page.locator(f"table.runs th:nth-child({n}) button").click()
        values = [float(v) for v in column(page, n)]
        assert values == order(values), values


def switches(page):
    drawn = ".plot.wide .run[data-kind='0']"
    first = page.locator(".legend input").first
    first.uncheck()
    assert page.locator(drawn).first.is_hidden()
    first.check()
    assert page.locator(drawn).first.is_visible()
    shown = [f.get_attribute("data-name") for f in page.locator("figure.losses").all() if f.is_visible()]
    assert shown == ["steps"], shown
    page.get_by_role("button", name="time", exact=True).click()
    shown = [f.get_attribute("data-name") for f in page.locator("figure.losses").all() if f.is_visible()]
    assert shown == ["time"], shown
    page.get_by_role("button", name="steps", exact=True).click()


def looked_at(browser, file, out):
    for width, colours in [(390, "light"), (820, "light"), (1400, "light"), (1400, "dark")]:
        page = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=colours).new_page()
        said, asked = [], []
        page.on("console", lambda m: said.append(m.text))
        page.on("pageerror", lambda e: said.append(str(e)))
        page.on("request", lambda r: asked.append(r.url))
        page.goto(file.as_uri())
        page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"wider than {width}"
        assert page.evaluate("document.querySelectorAll('img').length && [...document.images].every(i => i.complete && i.naturalWidth)")
        assert page.evaluate("window.hostile === undefined")
        page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = false; })")
        page.screenshot(path=out / f"{width}-{colours}.png", full_page=True)
        if width == 1400 and colours == "light":
            sorts(page)
            switches(page)
            page.pdf(path=out / "printed.pdf", format="A4")
        outside = [url for url in asked if not url.startswith((file.as_uri(), "data:"))]
        assert not said and not outside, (said, outside)
    page = browser.new_context(viewport={"width": 1000, "height": 900}, java_script_enabled=False).new_page()
    page.goto(file.as_uri())
    assert all(f.is_visible() for f in page.locator("figure.losses").all())
    page.screenshot(path=out / "no-script.png", full_page=True)


def main(odec, runs=None):
    odec = Path(odec).resolve()
    out = Path("target/browser").resolve()
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as p:
        runs = Path(runs).resolve() if runs else trained(odec, Path(folder))
        file = out / "report.html"
        subprocess.run([odec, "report", runs, "-o", file, "--prompt", "<b>the quick"], check=True)
        browser = p.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        looked_at(browser, file, out)
        browser.close()
    print(f"the page is well in Chromium; pictures are in {out}")


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    main(*sys.argv[1:])
