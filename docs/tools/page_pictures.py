"""Writes docs/page*.png: the page of the submissions and what others published, in a browser.

Chromium takes them; without one, or without playwright, the pictures stay as they are.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

from fourmin.report import load_renderer
from fourmin.report.collect import collect

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


def main() -> None:
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        sys.exit("no playwright: pip install '.[dev]'; docs/page*.png stay as they are")
    if CHROMIUM is None:
        sys.stderr.write("no Chromium: docs/page*.png stay as they are\n")
        return
    os.chdir(ROOT)
    comparison = collect([Path("submissions")], published=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as starter:
        page = Path(folder) / "page.html"
        page.write_text(load_renderer("html")(comparison), encoding="utf-8")
        browser = starter.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": 1200, "height": 900})
        tab.set_default_timeout(90_000)
        tab.goto(page.as_uri())
        chips = tab.locator("[data-figure^=chips]").first
        chips.evaluate("figure => figure.closest('.group').scrollIntoView()")
        chips.locator("svg").wait_for()
        tab.locator("[data-figure^=times] svg").first.wait_for()
        tab.screenshot(path=DOCS / "page.png")
        tab.get_by_role("link", name="xeon-2cpu").first.click()
        tab.locator("#result svg").first.wait_for()
        tab.screenshot(path=DOCS / "page-result.png")
        browser.close()


if __name__ == "__main__":
    main()
