"""The environment when the packages that set variables have been imported, and ours has not."""

import os

import joblib  # noqa: F401 - sets KMP_INIT_AT_FORK
import sklearn  # noqa: F401 - sets KMP_DUPLICATE_LIB_OK, as threadpoolctl does
import threadpoolctl  # noqa: F401
import torch  # noqa: F401

BEFORE = dict(os.environ)
