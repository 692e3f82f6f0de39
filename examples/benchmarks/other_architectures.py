"""Networks of other packages as they are: fit, predictions, joblib and ``to_torch``.

The packages (torchvision, timm, transformers, peft) need not be installed: the page then says which
were not. Weights are random, so nothing is downloaded. Two draws of two chains show that a module
passes through; they say nothing about its posterior.

python examples/benchmarks/other_architectures.py
"""

import importlib
import io
import time
import warnings
from importlib.metadata import version

import joblib
import numpy as np
import torch
from _common import markdown_table, parse_args, write_results

from skbayes_sgmcmc import BayesianModuleClassifier, SamplingWarning, to_torch

N_ROWS, N_CLASSES, N_WORDS, LENGTH = 16, 3, 50, 6
TINY = {"n_chains": 2, "n_draws": 2, "burn_in": 2, "thinning": 1, "step_size": 1e-4,
        "prior_scale": "fan_in", "random_state": 0}  # fmt: skip
#: all parameters are sampled, too, of modules that have no more
SMALL = 1_000_000
#: by package, names with the side of the images, and with arguments that differ
IMAGES = {
    "torchvision": {
        "resnet18": 32, "densenet121": 32, "mobilenet_v3_small": 32, "efficientnet_b0": 32,
        "shufflenet_v2_x0_5": 32, "regnet_y_400mf": 32, "convnext_tiny": 32, "swin_t": 32,
    },
    "timm": {
        "resnet18": 32, "vit_tiny_patch16_224": 32, "convnext_atto": 32,
        "efficientnet_lite0": 32, "mixer_s32_224": 64, "swin_tiny_patch4_window7_224": 56,
        "deit_tiny_distilled_patch16_224": 32, "mobilevit_xxs": 64,
    },
}  # fmt: skip
#: names of timm that have a fixed size of images
SIZED = ("vit", "mixer", "swin", "deit")
#: sizes of the models of transformers, in their own words
USUAL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
         "intermediate_size": 32, "max_position_embeddings": 16}  # fmt: skip
ENDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 1}
TEXTS = {
    "Bert": USUAL,
    "Roberta": USUAL,
    "DebertaV2": USUAL,
    "DistilBert": {"dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 32},
    "ModernBert": USUAL | ENDS | {"cls_token_id": 1, "sep_token_id": 1},
    "GPT2": {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 16} | ENDS,
    "Llama": USUAL | ENDS,
}


class Attention(torch.nn.Module):
    """Torch's own transformer layer: a row of the page where no other package is installed."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.embed, self.head = torch.nn.Embedding(N_WORDS, 8), torch.nn.Linear(8, N_CLASSES)

    def forward(self, ids):
        return self.head(self.layer(self.embed(ids)).mean(1))


def images_of(package, name, rng):
    side = IMAGES[package.__name__.partition(".")[0]][name]
    X = rng.standard_normal((N_ROWS, 3, side, side)).astype(np.float32)
    if package.__name__ == "timm":
        size = {"img_size": side} if name.startswith(SIZED) else {}
        return package.create_model(name, pretrained=False, num_classes=N_CLASSES, **size), X
    return getattr(package.models, name)(weights=None, num_classes=N_CLASSES), X


def texts_of(package, name, rng):
    sizes = {"vocab_size": N_WORDS, "num_labels": N_CLASSES} | TEXTS[name]
    config = getattr(package, f"{name}Config")(**sizes)
    module = getattr(package, f"{name}ForSequenceClassification")(config)
    words = rng.integers(2, N_WORDS, (N_ROWS, LENGTH))
    return module, {"input_ids": words, "attention_mask": np.ones((N_ROWS, LENGTH), bool)}


def adapters_of(package, name, rng):
    """An adapter on a model of transformers."""
    module, X = texts_of(importlib.import_module("transformers"), name, rng)
    config = package.LoraConfig(r=2, target_modules=["query", "value"])
    return package.get_peft_model(module, config), X


def own_of(package, name, rng):
    return Attention(), rng.integers(0, N_WORDS, (N_ROWS, LENGTH))


def cases(quick):
    """Package, name, and what builds the module and its rows."""
    found = [("torch", "TransformerEncoderLayer", own_of)]
    found += [(package, name, images_of) for package, names in IMAGES.items() for name in names]
    found += [("transformers", name, texts_of) for name in TEXTS]
    found += [("peft", "Bert", adapters_of)]
    first = {package: name for package, name, _ in reversed(found)}
    return [case for case in found if not quick or first[case[0]] == case[1]]


def pass_through(module, X, chosen):
    """What is sampled, and the largest differences of probabilities after joblib and export."""
    y = np.arange(N_ROWS) % N_CLASSES
    start = time.process_time()
    clf = BayesianModuleClassifier(module, sample_parameters=chosen, **TINY).fit(X, y)
    p = clf.predict_proba(X)
    file = io.BytesIO()
    joblib.dump(clf, file)
    file.seek(0)
    again = np.abs(joblib.load(file).predict_proba(X) - p).max()
    several = isinstance(X, dict)
    given = {k: torch.from_numpy(v) for k, v in X.items()} if several else torch.from_numpy(X)
    exported = np.abs(to_torch(clf)(given).numpy() - p).max()
    n_sampled = sum(values[0, 0].size for values in clf.posterior_.draws.values())
    return n_sampled, again, exported, time.process_time() - start


def rows_of(package, name, make):
    torch.manual_seed(0)
    module, X = make(package, name, np.random.default_rng(0))
    n = sum(parameter.numel() for parameter in module.parameters())
    parts = ["trainable"] if package.__name__ == "peft" else ["last_layer"]
    parts += ["all"] if n <= SMALL and parts == ["last_layer"] else []
    for part in parts:
        n_sampled, again, exported, seconds = pass_through(module, X, part)
        yield [f"{package.__name__.partition('.')[0]} {name}", f"{n:,}", f"`{part}`",
               f"{n_sampled:,}", f"{again:.0e}", f"{exported:.0e}", f"{seconds:.0f}"]  # fmt: skip


def main():
    args = parse_args(__doc__, seeds=1, quick_seeds=1)
    warnings.simplefilter("ignore", SamplingWarning)  # of dropout, and of chains of two draws
    table, versions, missing = [], {}, []
    for package, name, make in cases(args.quick):
        try:
            module = importlib.import_module(package)
        except ImportError:
            missing += [package] if package not in missing else []
            continue
        versions[package] = version(package)
        table += rows_of(module, name, make)
    header = ["module", "parameters", "`sample_parameters`", "sampled", "after joblib",
              "`to_torch`", "processor s"]  # fmt: skip
    used = ", ".join(f"{package} {number}" for package, number in versions.items())
    write_results(
        args,
        "other_architectures",
        "Networks of other packages",
        f"""
Modules of other packages with random weights, as these packages build them: fit, `predict_proba`,
a round trip through joblib, and `to_torch`. The columns "after joblib" and "`to_torch`" have the
largest difference from the probabilities of the fitted estimator. Two draws of two chains say
nothing about a posterior.

{markdown_table(header, table)}

Versions: {used}.{f" Not installed: {', '.join(missing)}." if missing else ""}

Images have 32 to 64 pixels a side, and texts {LENGTH} of {N_WORDS} words. Of modules with at most
{SMALL:,} parameters, all are sampled, too; draws then have the running statistics of batch norms
besides. Networks whose head is no `torch.nn.Linear`, such as
SqueezeNet's convolution, have no "last_layer": name their parameters in `sample_parameters`.
""",
        spread="Seed 0.",
    )


if __name__ == "__main__":
    main()
