"""Images in files, which worker processes read while the features are computed.

Nothing is downloaded: if the folder SKBAYES_DATA has cifar10_jpeg.npz (CIFAR-10 as JPEG files, and
the position of each), 8,000 of them are written to a folder; otherwise, scikit-learn's scanned
digits are, as JPEG files. A small convolutional network learns the classes 0 to 4 with torch's own
DataLoader. Its last layer is then sampled for the classes 5 to 9 from the same kind of dataset,
with only a few minibatches in memory. It takes a minute on one core.

python examples/image_files.py
"""

import os
import tempfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.metrics import log_loss
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset

from skbayes_sgmcmc import BayesianModuleClassifier


def write_files(folder):
    """One JPEG file for each image, named by its number and label."""
    data = Path(os.environ.get("SKBAYES_DATA", ".")) / "cifar10_jpeg.npz"
    if data.exists():
        write_cifar(folder, data)
    else:
        write_digits(folder)


def write_cifar(folder, data):
    """Images of 3 x 32 x 32 pixels, with all files in one array of bytes."""
    with np.load(data) as arrays:
        files, starts, y = (arrays[f"{name}_train"] for name in ("bytes", "offsets", "y"))
    for i in np.random.default_rng(0).permutation(len(y))[:8000]:
        path = folder / f"{i:05d}_{y[i]}.jpg"
        path.write_bytes(files[starts[i] : starts[i + 1]].tobytes())


def write_digits(folder):
    """Images of 1 x 24 x 24 pixels."""
    X, y = load_digits(return_X_y=True)
    for i, (pixels, label) in enumerate(zip(X, y, strict=True)):
        image = Image.fromarray((255 / 16 * pixels.reshape(8, 8)).astype(np.uint8))
        image.resize((24, 24)).save(folder / f"{i:04d}_{label}.jpg", quality=90)


class ImageFiles(Dataset):
    """Images of some classes; files are read when an item is asked for."""

    def __init__(self, folder, classes):
        paths = sorted(Path(folder).glob("*.jpg"))
        self.paths = [path for path in paths if int(path.stem[-1]) in classes]
        # targets with this name spare reading all files for their labels
        self.targets = np.array([classes.index(int(path.stem[-1])) for path in self.paths])

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        with Image.open(self.paths[index]) as image:
            pixels = np.asarray(image, np.float32) / 255.0
        pixels = pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
        return pixels, self.targets[index]


def train(module, dataset, epochs):
    adam = torch.optim.Adam(module.parameters(), lr=2e-3)
    for _ in range(epochs):
        for x, codes in DataLoader(dataset, batch_size=50, shuffle=True):
            adam.zero_grad()
            nn.functional.cross_entropy(module(x), codes).backward()
            adam.step()
    return module.eval()


def main():
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        write_files(Path(folder))
        known, new = (ImageFiles(folder, list(classes)) for classes in (range(5), range(5, 10)))
        channels, side, _ = known[0][0].shape
        network = nn.Sequential(
            nn.Conv2d(channels, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(),
            nn.Flatten(), nn.Linear(2 * side**2, 32), nn.ReLU(), nn.Linear(32, 5),
        )  # fmt: skip
        train(network, known, epochs=5)
        order = np.random.default_rng(0).permutation(len(new))
        half = len(new) // 2
        rows, test = Subset(new, order[:half]), Subset(new, order[half:])
        clf = BayesianModuleClassifier(
            network, sample_parameters="last_layer", n_workers=2, random_state=0
        )
        p = clf.fit(rows).predict_proba(test)
        labels = new.targets[order[half:]]
        error = np.mean(p.argmax(1) != labels)
        print(f"{len(rows)} files of new classes: error {100 * error:.1f}%, "
              f"log loss {log_loss(labels, p):.3f}")  # fmt: skip


if __name__ == "__main__":
    main()
