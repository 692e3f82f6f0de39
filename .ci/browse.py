"""Look at the built site in a browser, from the file system, without a network.

.ci/browse.py SITE [--only PART] [--shots FOLDER]

Every page is looked at on a desk and on a phone, in light and in dark mode: nothing is wider than
the screen, text is readable, code that draws has its figure, figures load, and nothing asks for a
network. On a desk, code is not cut, the left sidebar leads somewhere, and a page that is read from
top to bottom ends within twelve screens. The search finds the guide before the gallery. Needs
playwright and a Chromium: its own, or one on the path. Without them it says so and ends well.
"""

import argparse
import shutil
import sys
from pathlib import Path

PHONE, DESK, HEIGHT = 390, 1280, 900
#: most screens of a page, but of those that are looked up: the API, results and pages of developers
SCREENS = 12
LOOKED_UP = (
    "api", "results", "project", "design", "warnings", "genindex", "py-modindex", "_modules",
)  # fmt: skip
#: WCAG's smallest contrast of text
CONTRAST = 4.5
#: what people search for, which a page of the guide answers
SEARCHES = ("max_steps", "progress bar", "gpu", "thermostat", "missing values", "save")

#: contrast of the texts of a page with what is behind them
CONTRASTS = """() => {
  const canvas = document.createElement('canvas').getContext('2d');
  const seen = new Map();  // a drawn pixel takes long, and a page has few colours
  const parse = (colour) => {
    if (!seen.has(colour)) {
      canvas.clearRect(0, 0, 1, 1);
      canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
      seen.set(colour, [...canvas.getImageData(0, 0, 1, 1).data]);
    }
    return seen.get(colour);
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
  const texts = 'p, td, th, li, h1, h2, h3, pre, pre span, a, code, figcaption, summary';
  const own = (e) => [...e.childNodes].some((n) => n.nodeType == 3 && n.data.trim());
  return [...document.querySelectorAll('article, .bd-sidebar, header, footer')]
    .flatMap((place) => [...place.querySelectorAll(texts)])
    .filter((e) => own(e) && e.offsetParent && e.innerText.trim()).slice(0, 400).map((e) => {
      const [a, b] = [light(parse(getComputedStyle(e).color)), light(behind(e))];
      return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), e.innerText.slice(0, 30)];
    });
}"""


#: text of blocks of code that are wider than their boxes
CUT = """() => [...document.querySelectorAll('article pre')]
  .filter((e) => e.offsetParent && e.scrollWidth > e.clientWidth + 1)
  .map((e) => e.innerText.slice(0, 60))"""
#: what sticks out of the column of text, and is in no box that scrolls
OUTSIDE = """() => {
  const article = document.querySelector('article');
  if (!article) return [];
  const right = article.getBoundingClientRect().right;
  const scrolls = (e) => {
    for (; e && e !== article; e = e.parentElement)
      if (['auto', 'scroll', 'hidden'].includes(getComputedStyle(e).overflowX)) return true;
    return false;
  };
  return [...article.querySelectorAll('img, svg, table, pre, math, p, dt, .classifier')]
    .filter((e) => e.offsetParent && e.getBoundingClientRect().right > right + 2 && !scrolls(e))
    .map((e) => e.tagName + ' ' + (e.innerText || e.src || '').slice(0, 40));
}"""
#: code of a page that draws, as in "ReliabilityDisplay.from_estimator(...)", without its figure
UNDRAWN = r"""() => [...document.querySelectorAll('div.cell')]
  .map((e) => [e, (e.querySelector('.cell_input') || e).innerText])
  .filter(([e, code]) => /Display\.from_|plt\.subplots|\.plot_\w+\(/.test(code))
  .filter(([e]) => !e.querySelector('.cell_output img'))
  .map(([e, code]) => code.trim().slice(-60))"""
#: a default such as (16, 16) of a signature, in two lines
SPLIT = r"""() => [...document.querySelectorAll('dt .sig-param')].map((e) => e.innerText)
  .filter((text) => text.split('(').length != text.split(')').length)"""
SIDEBAR = "document.querySelectorAll('.bd-sidebar-primary .bd-toc-item a').length"


def look(page, name, shots):
    """Faults of the page that a browser shows, as text."""
    # figures below the screen load when they are scrolled to
    page.evaluate("document.querySelectorAll('img').forEach((i) => i.loading = 'eager')")
    page.wait_for_function("[...document.images].every((i) => i.complete)")
    broken = page.evaluate("[...document.images].filter((i) => !i.naturalWidth).map((i) => i.src)")
    if broken:
        yield f"has no {broken}"
    if undrawn := page.evaluate(UNDRAWN):
        yield f"has no figure of {undrawn}"
    if split := page.evaluate(SPLIT):
        yield f"splits parameters: {split[:3]}"
    for width in (DESK, PHONE):
        page.set_viewport_size({"width": width, "height": HEIGHT})
        wide = page.evaluate("document.documentElement.scrollWidth")
        if wide > width:
            yield f"is {wide} pixels wide on a screen of {width}"
        if outside := page.evaluate(OUTSIDE):
            yield f"has {outside[:3]} beyond its column on a screen of {width}"
        if width == DESK:
            yield from look_at_desk(page, name)
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            pale = [(round(c, 1), text) for c, text in page.evaluate(CONTRASTS) if c < CONTRAST]
            if pale:
                yield f"has text of contrast {min(pale)} in {scheme} mode"
            if shots:
                shot = "-".join(name.with_suffix("").parts) + f"-{width}-{scheme}.png"
                page.screenshot(path=shots / shot, full_page=True)


def look_at_desk(page, name):
    """What only a wide screen can be asked for: lines of 76 characters, and a sidebar.

    Pages for developers, and the source, may have longer lines, in boxes that scroll.
    """
    if name.parts[0] not in ("project", "_modules") and (cut := page.evaluate(CUT)):
        yield f"cuts code: {cut[:3]}"
    if name.stem not in ("search", "genindex", "py-modindex") and page.evaluate(SIDEBAR) < 5:
        yield "has an empty left sidebar"
    screens = page.evaluate("document.documentElement.scrollHeight") / HEIGHT
    if screens > SCREENS and name.with_suffix("").parts[0] not in LOOKED_UP:
        yield f"has {screens:.1f} screens"


def look_for(page, site, words):
    """Faults of a search for some words: a page of the guide should be the first that is found."""
    page.goto((site / "search.html").as_uri() + f"?q={words.replace(' ', '+')}")
    try:
        page.wait_for_selector("#search-results li a", timeout=20_000)
    except Exception:
        yield f"the search for '{words}' finds nothing"
        return
    page.wait_for_function("document.querySelector('#search-results p')")
    first = Path(page.locator("#search-results li a").first.get_attribute("href").partition("?")[0])
    if len(first.parts) > 1:
        yield f"the search for '{words}' finds {first} first"


def look_at_site(browser, site, part, shots):
    """Faults of all pages with a part in their names, as text."""
    faults = []
    pages = [path for path in sorted(site.rglob("*.html")) if "_static" not in path.parts]
    pages = [path for path in pages if part in path.relative_to(site).as_posix()]
    # one page of source code is as good as all of them
    sources = [path for path in pages if "_modules" in path.relative_to(site).parts]
    pages = [path for path in pages if path not in sources[1:]]
    page = browser.new_page(offline=True)
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    for path in pages:
        name = path.relative_to(site)
        page.set_viewport_size({"width": DESK, "height": HEIGHT})
        page.goto(path.as_uri())
        faults += [f"{name} {fault}" for fault in look(page, name, shots)]
        outside = {url for url in asked if not url.startswith(("file:", "data:"))}
        if outside:
            faults.append(f"{name} asks for {sorted(outside)}")
        asked.clear()
    for words in SEARCHES:
        faults += look_for(page, site, words)
    print(f"{len(pages)} pages, {len(faults)} faults")
    return faults


def main():
    """Start a browser, and end with status 1 if there are faults."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("site", type=Path)
    parser.add_argument("--only", default="", metavar="PART", help="pages with this in their names")
    parser.add_argument("--shots", type=Path, help="folder for pictures of the pages")
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
        faults = look_at_site(browser, args.site.resolve(), args.only, args.shots)
    print("\n".join(faults))
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
