"""Look at the built site in a browser, from the file system, without a network.

.ci/browse.py SITE [--shots FOLDER]

Checks that the search finds a page, that all figures load, that no page is wider than a phone's
screen, that text is readable in dark mode, and that nothing asks for a network. Needs playwright
and a Chromium: its own, or one on the path. Without them it says so and ends well.
"""

import argparse
import shutil
import sys
from pathlib import Path

PHONE, DESK = 390, 1280
#: WCAG's smallest contrast of text
CONTRAST = 4.5

#: contrast of the paragraphs of a page with what is behind them
CONTRASTS = """() => {
  const canvas = document.createElement('canvas').getContext('2d');
  const parse = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = (c) => [0.2126, 0.7152, 0.0722].reduce((sum, w, k) => {
    const v = c[k] / 255;
    return sum + w * (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  }, 0);
  const behind = (e) => {
    for (; e; e = e.parentElement) {
      const c = parse(getComputedStyle(e).backgroundColor);
      if (c[3] > 250) return c;
    }
    return [255, 255, 255, 255];
  };
  return [...document.querySelectorAll('article p, article td, article pre')]
    .filter((e) => e.innerText.trim() && e.offsetParent).slice(0, 60).map((e) => {
      const [a, b] = [light(parse(getComputedStyle(e).color)), light(behind(e))];
      return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    });
}"""


def look(browser, site, shots):
    """Faults of the site, as text."""
    faults = []
    pages = sorted(path for path in site.rglob("*.html") if "_static" not in path.parts)
    for scheme, width in (("light", DESK), ("dark", PHONE)):
        page = browser.new_page(
            viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True
        )
        asked = []
        page.on("request", lambda request, asked=asked: asked.append(request.url))
        for path in pages:
            name = path.relative_to(site)
            page.goto(path.as_uri())
            outside = {url for url in asked if not url.startswith(("file:", "data:"))}
            if outside:
                faults.append(f"{name} asks for {sorted(outside)}")
            asked.clear()
            # figures below the screen load when they are scrolled to
            page.evaluate("document.querySelectorAll('img').forEach((i) => i.loading = 'eager')")
            page.wait_for_function("[...document.images].every((i) => i.complete)")
            broken = page.evaluate(
                "[...document.images].filter((i) => !i.naturalWidth).map((i) => i.src)"
            )
            if broken:
                faults.append(f"{name} has no {broken}")
            wide = page.evaluate("document.documentElement.scrollWidth")
            if wide > width:
                faults.append(f"{name} is {wide} pixels wide on a screen of {width}")
            if scheme == "dark":
                pale = [round(each, 1) for each in page.evaluate(CONTRASTS) if each < CONTRAST]
                if pale:
                    faults.append(f"{name} has text of contrast {min(pale)} in dark mode")
            if shots:
                shot = "-".join(name.with_suffix("").parts) + f"-{scheme}.png"
                page.screenshot(path=shots / shot)
        page.close()
    page = browser.new_page()
    page.goto((site / "search.html").as_uri() + "?q=thermostat")
    try:
        page.wait_for_selector("#search-results li a", timeout=20_000)
    except Exception:
        faults.append("the search for 'thermostat' finds nothing")
    print(f"{len(pages)} pages, {len(faults)} faults")
    return faults


def main():
    """Start a browser, and end with status 1 if there are faults."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("site", type=Path)
    parser.add_argument("--shots", type=Path, help="folder for pictures of all pages")
    args = parser.parse_args()
    try:
        from playwright.sync_api import Error, sync_playwright
    except ImportError:
        sys.exit(print("skipped: playwright is not installed"))
    if args.shots:
        args.shots.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        found = shutil.which("chromium") or shutil.which("google-chrome")
        try:
            browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        except Error as error:
            sys.exit(print(f"skipped: no browser ({str(error).splitlines()[0]})"))
        faults = look(browser, args.site.resolve(), args.shots)
    print("\n".join(faults))
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
