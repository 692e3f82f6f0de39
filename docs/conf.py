"""Sphinx configuration of the site: ``sphinx-build -W --keep-going -n docs docs/_build/html``."""

import inspect
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "docs/_extensions")]

from gallery_style import make_thumbnails  # noqa: E402
from run_pages import make_cells  # noqa: E402

import skbayes_sgmcmc  # noqa: E402 - from this source tree

project = "skbayes_sgmcmc"
author = "The skbayes_sgmcmc developers"
version = release = skbayes_sgmcmc.__version__.partition("+")[0]  # without the commit
html_title = f"skbayes_sgmcmc {release}"

extensions = [
    "myst_nb",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx.ext.viewcode",  # the source, without which a link to it needs a public address
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "native_maths",
    "parameter_groups",
]
html_math_renderer = "native"
exclude_patterns = ["_build", "results/runs", "gallery/**/*.ipynb", "gallery/**/*.py"]
templates_path = ["_templates"]

# pages in markdown
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath", "substitution"]
myst_substitutions = {"release": release}
myst_heading_anchors = 4

# their code: one that fails, or warns unawares, fails the build. A cache would keep what another
# version of the package printed
nb_execution_mode = "force"
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_merge_streams = True

# docstrings
autosummary_generate = True
autodoc_typehints = "signature"  # in words, they are in numpydoc's sections
autodoc_typehints_format = "short"
autodoc_type_aliases = {"ArrayLike": "~numpy.typing.ArrayLike"}
python_maximum_signature_line_length = 88
numpydoc_show_class_members = False
numpydoc_xref_param_type = False
add_module_names = False
toc_object_entries_show_parents = "hide"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

#: examples, run in the build: one that fails, or warns unawares, fails the build
sphinx_gallery_conf = {
    "examples_dirs": "../examples/gallery",
    "gallery_dirs": "gallery",
    "subsection_order": [
        f"../examples/gallery/{section}"
        for section in (
            "first_steps",
            "regression",
            "networks",
            "sparse",
            "unsupervised",
            "samplers",
            "scale",
            "tutorials",
        )
    ],
    "within_subsection_order": "gallery_style.reading_order",
    "reset_modules": ("matplotlib", "gallery_style.begin_example"),
    "backreferences_dir": "api/examples",
    "doc_module": ("skbayes_sgmcmc",),
    "reference_url": {"skbayes_sgmcmc": None},
    "download_all_examples": False,
    "image_scrapers": ("gallery_style.scrape",),
    "image_srcset": ["2x"],
    "show_signature": False,
    "write_computation_times": False,  # a page whose table takes scripts from a network
    "remove_config_comments": True,
    "capture_repr": ("_repr_html_", "__repr__"),
}

html_theme = "pydata_sphinx_theme"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_favicon = "_static/logo.svg"
html_search_scorer = str(ROOT / "docs/_static/scorer.js")
html_show_sourcelink = False
html_sidebars = {"**": ["site-nav.html"]}
html_theme_options = {
    # with the version, the bar is wider than a phone
    "logo": {"text": project, "image_light": "_static/logo.svg", "image_dark": "_static/logo.svg"},
    "navbar_persistent": ["search-button"],  # the field needs a second line
    "show_nav_level": 2,
    "navigation_with_keys": False,
    # examples and tables of results take the whole width
    "secondary_sidebar_items": {
        place: ["page-toc"] for place in ("*", "api/*", "project/*", "versus/*")
    },
    "show_prev_next": True,
}

#: where other packages describe what this site names. The inventories are files of the repository,
#: in Sphinx's first format, which is text, so that the build needs no network
intersphinx_mapping = {
    "sklearn": ("https://scikit-learn.org/stable", "_inventories/sklearn.inv"),
    "matplotlib": ("https://matplotlib.org/stable", "_inventories/matplotlib.inv"),
    "numpy": ("https://numpy.org/doc/stable", "_inventories/numpy.inv"),
    "torch": ("https://docs.pytorch.org/docs/stable", "_inventories/torch.inv"),
    "python": ("https://docs.python.org/3", "_inventories/python.inv"),
}

#: types in signatures: names that have pages, and the names that Python itself gives them
PUBLIC_TYPES = {
    r"TypeAliasForwardRef\('([^']*)'\)": r"\1",
    r"ndarray\[tuple\[[^\]]*\], ~?[\w.]*dtype\[[^\]]*\]\]": "ndarray",
    r"numpy\.random\.(_generator|mtrand)\.": "numpy.random.",
    r"(?<![\w.])np\.": "~numpy.",
    r"torch\.nn\.modules\.module\.": "torch.nn.",
    r"sklearn\.utils\._bunch\.": "sklearn.utils.",
    r": ~typing\.Any\b": "",  # says nothing
    r"(?<![\w.])Array\b": "~numpy.ndarray",
    r"(?<![\w.])ArrayLike\b": "~numpy.typing.ArrayLike",
    r"(?<![\w.])BaseEstimator\b": "~sklearn.base.BaseEstimator",
    r"(?<![\w.])Tensor\b": "~torch.Tensor",
    r"(?<![\w.])nn\.Module\b": "~torch.nn.Module",
}
#: types of values that only this library's own parts make, which have no page
INTERNAL_TYPES = (
    "Anchor|AutoValues|ChainRandom|Field|Fitted|LinearRows|LogJoint|PriorSlopes|Request|RowOdds"
    "|Summary"
)
nitpick_ignore_regex = [("py:class", rf"(skbayes_sgmcmc\..*\.)?({INTERNAL_TYPES})")]

#: texts of pictures: MyST drops their ends of lines, which glues words
ALT = re.compile(r"!\[[^\]]*\]")


def name_types(app, what, name, obj, options, signature, returns):
    """Give the types in a signature the names under which they are documented."""
    parts = [signature, returns]
    for pattern, public in PUBLIC_TYPES.items():
        parts = [part and re.sub(pattern, public, part) for part in parts]
    return tuple(parts)


def skip_inherited(app, what, name, obj, skip, options):
    """Leave out what scikit-learn adds to every estimator for its own use."""
    module = inspect.getmodule(obj)
    foreign = module is not None and module.__name__.partition(".")[0] == "sklearn"
    return True if foreign and name not in ("get_params", "set_params") else skip


def read_source(app, name, content):
    """Put pages from outside this folder in, and turn links to them into links of the site."""
    outside = ROOT / f"{Path(name).name.upper()}.md"
    if name.startswith("project/") and outside.exists():
        content[0] = outside.read_text()
        content[0] = re.sub(r"\]\((?:docs/)([\w/]+\.md)", r"](../\1", content[0])
    for page in ("CONTRIBUTING", "CHANGELOG", "SECURITY"):
        folder = "" if name.startswith("project/") else "project/"
        content[0] = re.sub(rf"\]\((\.\./)*{page}\.md", f"]({folder}{page.lower()}.md", content[0])
    content[0] = re.sub(r"\]\(\.\./README\.md#[\w-]+\)", "](guide.md)", content[0])
    content[0] = ALT.sub(lambda alt: " ".join(alt[0].split("\n")), content[0])
    if "/" not in name:
        content[0] = make_cells(name, content[0], [str(ROOT), str(ROOT / "docs/_extensions")])


def setup(app):
    """Connect the functions above."""
    app.connect("builder-inited", make_thumbnails, priority=900)  # after the gallery
    app.connect("source-read", read_source)
    app.connect("autodoc-skip-member", skip_inherited)
    app.connect("autodoc-process-signature", name_types)
