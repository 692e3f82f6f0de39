"""Images in files, which worker processes read while the features are computed.

The scanned digits of scikit-learn are written to JPEG files first, so nothing is downloaded. A
small convolutional network learns the digits 0 to 4 with torch's own DataLoader. Its last layer is
then sampled for the digits 5 to 9 from the same kind of dataset, of which no more than some
minibatches are in memory. It takes a minute on one core.

python examples/image_files.py
"""

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
    """One JPEG file of 24 x 24 pixels for each image, named by its number and label."""
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
            pixels = np.asarray(image, np.float32)[None] / 255.0
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
        network = nn.Sequential(
            nn.Conv2d(1, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU(),
            nn.Flatten(), nn.Linear(16 * 36, 32), nn.ReLU(), nn.Linear(32, 5),
        )  # fmt: skip
        train(network, known, epochs=5)
        order = np.random.default_rng(0).permutation(len(new))
        rows, test = Subset(new, order[:300]), Subset(new, order[300:])
        clf = BayesianModuleClassifier(
            network, sample_parameters="last_layer", n_workers=2, random_state=0
        )
        p = clf.fit(rows).predict_proba(test)
        labels = new.targets[order[300:]]
        error = np.mean(p.argmax(1) != labels)
        print(f"{len(rows)} files of new digits: error {100 * error:.1f}%, "
              f"log loss {log_loss(labels, p):.3f}")  # fmt: skip


if __name__ == "__main__":
    main()
