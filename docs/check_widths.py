"""Ask a browser whether any built page is wider than a phone; ``make widths``.

    python docs/check_widths.py docs/_build/html

Chromium must be on the path.  Every page is put into a frame as wide as a phone, and a script in
the page around it looks for what sticks out on the right and cannot be scrolled to.
"""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from check_links import html_files

PHONE_WIDTH = 390  # pixels
MILLISECONDS_PER_PAGE = 3000

HARNESS = """<!doctype html><body><pre id="result"></pre><script>
function scrolls(element) {
  for (let e = element; e.tagName != "ARTICLE"; e = e.parentElement)
    if (["auto", "scroll"].includes(getComputedStyle(e).overflowX)
        && e.getBoundingClientRect().right <= %(width)d + 1) return true;
  return false;
}
async function measure(page) {
  const frame = document.createElement("iframe");
  frame.style = "width: %(width)dpx; height: 844px; border: 0";
  const loaded = new Promise(resolve => frame.onload = resolve);
  frame.src = page;
  document.body.append(frame);
  await loaded;
  const found = [];
  const root = frame.contentDocument.documentElement;
  if (root.scrollWidth > %(width)d) found.push("the page is " + root.scrollWidth + " wide");
  for (const element of frame.contentDocument.querySelectorAll("main article *"))
    if (element.getBoundingClientRect().right > %(width)d + 1 && !scrolls(element))
      found.push(element.tagName + ": " + element.textContent.trim().slice(0, 40));
  frame.remove();
  return [page, found];
}
(async () => {
  const pages = [];
  for (const page of %(pages)s) pages.push(await measure(page));
  document.getElementById("result").textContent = JSON.stringify(pages);
})();
</script>"""


class Quiet(SimpleHTTPRequestHandler):
    """A server of files that does not talk; the page around the frames is in its memory."""

    harness = b""

    def do_GET(self) -> None:
        """Serve a page."""
        if self.path != "/widths":
            return super().do_GET()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(self.harness)

    def log_message(self, *arguments: object) -> None:
        """Stay silent."""


def measure_pages(folder: Path, browser: str) -> list[tuple[str, list[str]]]:
    """Return the path of every page, and what sticks out."""
    pages = [f"/{path.relative_to(folder).as_posix()}" for path in html_files(folder)]
    Quiet.harness = (HARNESS % {"width": PHONE_WIDTH, "pages": json.dumps(pages)}).encode()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as profile:
        command = [
            browser,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-background-networking",
            "--no-first-run",
            f"--user-data-dir={profile}",
            f"--virtual-time-budget={MILLISECONDS_PER_PAGE * len(pages)}",
            "--dump-dom",
            f"http://127.0.0.1:{server.server_port}/widths",
        ]
        process = subprocess.run(command, capture_output=True, text=True, check=True)
    server.shutdown()
    found = re.search(r'<pre id="result">(.+?)</pre>', process.stdout, re.DOTALL)
    if found is None:
        raise RuntimeError(f"the browser did not answer: {process.stderr[-2000:]}")
    return [tuple(entry) for entry in json.loads(html.unescape(found.group(1)))]


def main(folder: Path) -> str | None:
    """Print what is too wide."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        return "Chromium is not installed: widths were not measured."
    pages = measure_pages(folder, browser)
    wide = {page: found for page, found in pages if found}
    print(f"{len(pages)} pages at {PHONE_WIDTH} pixels, {len(wide)} too wide")
    return "\n".join(f"{page}: {'; '.join(found[:5])}" for page, found in wide.items()) or None


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
