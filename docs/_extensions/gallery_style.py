"""What every example of the gallery starts from: one style of figures, and no silent warnings."""

import warnings

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


def begin_example(gallery_conf, file_name):
    """Set the style, and make a warning of a sampler that the example does not expect an error."""
    mpl.rcParams.update(STYLE)
    warnings.simplefilter("error", SamplingWarning)


def reading_order(file_name):
    """Sort key of the examples of a section: the quickstart, then the others by their names."""
    return file_name != "plot_quickstart.py", file_name
