"""The page in a real browser: live, by keyboard, at both widths, in both colour schemes, and with hostile names."""

from __future__ import annotations

import msgspec
import pytest

from tests.page.chromium import PROGRAM, tab
from tests.page.pages import HOSTILE, busy
from tests.page.test_app import served

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PROGRAM is None, reason="Chromium is not installed (apt-get install chromium)"),
]
CONTRAST = """
(() => {
  const rgb = (text) => text.match(/[\\d.]+/g).slice(0, 3).map(Number);
  const alpha = (text) => { const found = text.match(/[\\d.]+/g); return found.length > 3 ? Number(found[3]) : 1; };
  const light = (color) => rgb(color).map((v) => v / 255)
    .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (one) => {
    for (; one; one = one.parentElement) {
      const found = getComputedStyle(one).backgroundColor;
      if (alpha(found)) return found;
    }
    return "rgb(255, 255, 255)";
  };
  const poor = [];
  for (const one of document.querySelectorAll("body *")) {
    const own = Array.from(one.childNodes).some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!own || !one.getClientRects().length || one.closest("svg")) continue;
    const pair = [light(getComputedStyle(one).color), light(ground(one))].sort((a, b) => b - a);
    const contrast = (pair[0] + 0.05) / (pair[1] + 0.05);
    if (contrast < 4.5) poor.push([one.tagName, one.className, one.textContent.slice(0, 30), contrast]);
  }
  return poor;
})()
"""
"""Elements whose text has less contrast with its ground than WCAG 2.2 asks for (1.4.3, AA)."""

TOO_WIDE = """
Array.from(document.querySelectorAll("table")).filter((one) => {
  const around = getComputedStyle(one.parentElement);
  const end = one.parentElement.getBoundingClientRect().right - parseFloat(around.paddingRight);
  return one.getBoundingClientRect().right > end + 1;
}).map((one) => one.caption.textContent)
"""
"""Tables that stand out of what they are in."""


async def test_in_a_browser():
    """One browser, one page, looked at in every way: starting it takes longer than all that is asked of it."""
    async with served() as (client, shown), tab() as page:
        shown.page = busy()
        url = str(client.make_url("/"))
        for width in (1280, 1000, 801, 390):
            for scheme in ("light", "dark"):
                await page.open(url, width=width, scheme=scheme)
                await page.value("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
                assert await page.value("document.documentElement.scrollWidth") <= width, (width, scheme)
                assert await page.value(TOO_WIDE) == [], (width, scheme)
                assert await page.value(CONTRAST) == [], (width, scheme)
        await page.until("document.getElementById('live').textContent === 'live'")

        await page.press("Tab")
        assert await page.value("document.activeElement.className") == "skip"
        summary = "document.querySelector('#decisions summary')"
        await page.value(f"{summary}.parentElement.open = false")
        await page.value(f"{summary}.focus()")
        await page.press("Enter")
        assert await page.value("document.querySelector('#decisions details').open")
        shown.page = msgspec.structs.replace(busy(), waiting_total=77)
        await page.until("document.getElementById('summary').textContent.includes('77')")
        more = msgspec.structs.replace(busy().decisions[0], plan="another", preemptor="team/another")
        shown.page = msgspec.structs.replace(busy(), decisions=(more, *busy().decisions))
        await page.until("document.querySelectorAll('#decisions details').length === 2")
        kept = "document.querySelectorAll('#decisions details')[1]"
        assert await page.value(f"{kept}.open"), "what the reader has opened stays open"
        assert await page.value(f"document.activeElement === {kept}.querySelector('summary')"), "the focus stays"

        shown.page = busy(HOSTILE)
        await page.until("document.getElementById('queue').textContent.includes('<script>')")
        await page.open(url)
        await page.until("document.getElementById('live').textContent === 'live'")
        assert await page.value("document.title") == "giveway"
        assert await page.value("document.images.length") == 0
        assert [line for line in page.said if "Content" in line] == []
        await client.server.close()
        await page.until("document.getElementById('live').textContent.startsWith('not live')")
