"""What every example of the gallery starts from: one style of figures, and no silent warnings."""

import warnings
from pathlib import Path

import matplotlib as mpl
from cycler import cycler

from skbayes_sgmcmc import SamplingWarning

#: colours that colour-blind readers can tell apart (Okabe & Ito 2008), without the yellow
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#444444")

STYLE = {
    "axes.prop_cycle": cycler(color=COLOURS),
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": "medium",
    "figure.constrained_layout.use": True,
    "figure.dpi": 100,
    "figure.figsize": (7.0, 4.0),
    "font.size": 10.0,
    "image.cmap": "viridis",
    "legend.fontsize": "small",
    "legend.frameon": False,
    "lines.linewidth": 1.8,
}

#: the panel that is an example's thumbnail where the first of the largest does not show the point;
#: None: the whole figure
PANEL = {
    "plot_decision": 1,
    "plot_inclusion_path": 1,
    "plot_mixed_signals": None,
    "plot_quickstart": 2,
}


def begin_example(gallery_conf, file_name):
    """Set the style, and make a sampler's warning that the example does not expect an error."""
    mpl.rcParams.update(STYLE)
    warnings.simplefilter("error", SamplingWarning)
    # the first import of a day says what changes in ArviZ: pages would show it on some builds only
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"arviz\Z")


def reading_order(file_name):
    """Sort key of the examples of a section: the quickstart, then the others by their names."""
    return file_name != "plot_quickstart.py", file_name


def scrape(block, block_vars, gallery_conf, **options):
    """Keep one panel of a block's figure for the thumbnail; then do as matplotlib's scraper."""
    import matplotlib.pyplot as plt
    from sphinx_gallery.scrapers import matplotlib_scraper

    if plt.get_fignums():
        figure = plt.figure(plt.get_fignums()[-1])
        figure.draw_without_rendering()
        panels = [ax for ax in figure.axes if ax.get_visible()]
        name = Path(block_vars["src_file"]).stem
        sizes = [round(ax.bbox.width * ax.bbox.height, -2) for ax in panels]
        chosen = PANEL.get(name, sizes.index(max(sizes)))
        box = figure.bbox if chosen is None else panels[chosen].get_tightbbox()
        inches = box.padded(5).transformed(figure.dpi_scale_trans.inverted())
        template = block_vars["image_path_iterator"].image_path
        shared = [legend for legend in figure.legends if legend.get_visible()]
        plt.setp(shared, visible=False)
        figure.savefig(template.format(0), dpi=200, bbox_inches=inches)
        plt.setp(shared, visible=True)
    return matplotlib_scraper(block, block_vars, gallery_conf, **options)


def make_thumbnails(app):
    """Replace the thumbnails, which show whole figures, by the panels that ``scrape`` kept."""
    from sphinx_gallery.utils import scale_image

    size = app.config.sphinx_gallery_conf["thumbnail_size"]
    for panel in Path(app.srcdir, "gallery").glob("*/images/*_000.png"):
        thumbnail = f"{panel.stem.removesuffix('_000')}_thumb.png"
        scale_image(panel, panel.parent / "thumb" / thumbnail, *size)
