"""What sets variables of the environment, once the packages that do have been imported.

The process that starts this one may have set the same variables, so that values say nothing.
"""

import sys

import joblib  # noqa: F401 - sets KMP_INIT_AT_FORK
import sklearn  # noqa: F401 - sets KMP_DUPLICATE_LIB_OK, as threadpoolctl does
import threadpoolctl  # noqa: F401
import torch  # noqa: F401

SET = []


def watch(event, arguments):
    if event in ("os.putenv", "os.unsetenv"):
        SET.append(arguments)


sys.addaudithook(watch)
