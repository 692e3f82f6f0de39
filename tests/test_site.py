"""The gallery and the inventories have the form that the build and its readers expect."""

from __future__ import annotations

import ast
import inspect
import pydoc
import re
import runpy
import typing
from pathlib import Path

from _cases import cases

import skbayes_sgmcmc

DOCS = Path(skbayes_sgmcmc.__file__).parent.parent / "docs"
GALLERY = DOCS.parent / "examples" / "gallery"
EXAMPLES = sorted(GALLERY.rglob("*.py"))
CONF = (DOCS / "conf.py").read_text()


def test_gallery_has_its_sections_in_the_order_of_conf_py():
    """Every folder is a section with a header, and conf.py names all of them."""
    folders = {path.parent for path in EXAMPLES}
    assert {folder.parent for folder in folders} == {GALLERY}  # no example outside of a section
    for folder in {GALLERY, *folders}:
        header = (folder / "GALLERY_HEADER.rst").read_text().splitlines()
        assert set(header[1]) in ({"="}, {"-"}) and len(header[1]) == len(header[0])
    named = re.search(r'"subsection_order": \[.*?in \((.*?)\)\s*\]', CONF, re.S)
    assert set(re.findall(r'"(\w+)"', named[1])) == {folder.name for folder in folders}


@cases("path", EXAMPLES)
def test_example_of_the_gallery_is_a_page(path):
    """The build runs what is named plot_*; a page has a title, text, and a figure at its end."""
    source = path.read_text()
    assert path.name.startswith("plot_")
    title, line, blank, text = ast.get_docstring(ast.parse(source)).split("\n", 3)
    assert set(line) == {"="} and len(line) == len(title) and not blank and text
    assert not re.search(r"^# \S.* -{3,}$", source, re.M)  # the line below a heading is its own
    blocks = source.split("\n# %%\n")
    assert len(blocks) >= 4
    assert blocks[-1].rstrip().endswith("plt.show()")
    assert "plt.subplot" in blocks[-1]  # a figure is kept as it is at the end of its block
    assert source.count("plt.show()") == 1


def test_pages_show_figures_whatever_the_environment_says():
    """With MPLBACKEND=Agg, which .ci/run sets, no figure of a page was shown.

    .ci/browse.py looks for the figures themselves.
    """
    names = runpy.run_path(str(DOCS / "_extensions/run_pages.py"))
    page = names["make_cells"]("guide", "Text.\n\n```python\nx = 1\n```\n", [])
    first, last = page.split("```{code-cell}\n")[1:]
    assert "\n%matplotlib inline\n" in first
    assert last == "x = 1\n```\n"


def test_figures_of_pages_have_texts():
    """The names of their files were all that a screen reader had to say of them."""
    names = runpy.run_path(str(DOCS / "_extensions/run_pages.py"))
    drawn = '<!-- alt: A "line" -->\n\n```python\nplot()\n```\n'
    cell = names["make_cells"]("guide", drawn, []).split("```{code-cell}\n")[-1]
    assert cell == ':mystnb: {image: {alt: "A \\"line\\""}}\n\nplot()\n```\n'
    for path in DOCS.glob("*.md"):
        for kind, _, code in names["BLOCK"].findall(path.read_text()):
            if re.search(r"Display\.from_|plt\.subplots|az\.plot", code):
                assert kind, path.name


def test_texts_of_pictures_keep_their_spaces():
    """MyST drops the ends of lines in them: "the quantile that ituses"."""
    read_source = runpy.run_path(str(DOCS / "conf.py"))["read_source"]
    content = ["![one\ntwo](a.png) [a\nlink](b)"]
    read_source(None, "results/x", content)
    assert content == ["![one two](a.png) [a\nlink](b)"]


INVENTORIES = [
    line
    for file in sorted((DOCS / "_inventories").glob("*.inv"))
    for line in file.read_text().splitlines()
    if not line.startswith("#")
]


#: pages of other packages that describe several objects
SHARED_PAGES = {
    "library/collections.abc.html",
    "library/os.html",
    "reference/random/generator.html",
    "reference/random/legacy.html",
    "reference/typing.html",
    "tensor_attributes.html",
    "tensors.html",
}


@cases("line", INVENTORIES)
def test_inventories_name_what_exists(line):
    """Links to other packages: the object exists, is of this kind, and its page has its name."""
    name, kind, page = line.split()
    found = pydoc.locate(name)
    in_class = inspect.isclass(pydoc.locate(name.rpartition(".")[0]))
    # from numpy 2.5 on, its types are aliases with a value
    alias = typing.get_origin(found) is not None or hasattr(found, "__value__")
    type_like = inspect.isclass(found) or alias
    assert kind == ("class" if type_like else "method" if in_class else "function")
    assert type_like or callable(found)
    assert page.endswith(f"/{name}.html") or page in SHARED_PAGES
