"""Augmentations change each image by itself, as they say, with each chain's random numbers."""

import pytest
import torch
from _cases import cases
from _inside import streams

from skbayes_sgmcmc.augmentation import (
    Compose,
    RandomCrop,
    RandomErasing,
    RandomFlip,
    RandomRotation,
)

ALL = [RandomCrop(2), RandomFlip(), RandomRotation(30.0), RandomErasing()]


@pytest.fixture
def images():
    """Of two chains, 300 rows, two channels; not square, with nothing at 0."""
    return torch.rand(2, 300, 2, 6, 9, generator=torch.manual_seed(0)) + 1.0


@cases("augment", [*ALL, Compose(ALL)])
def test_shapes_kinds_and_chains(images, augment):
    """A chain's images do not depend on the chains beside it; shared ones are one minibatch."""
    before = images.clone()
    changed = augment(images, streams(2))
    assert changed.shape == images.shape and changed.dtype == images.dtype
    assert torch.equal(images, before) and not torch.equal(changed, images)
    assert torch.equal(augment(images[:1], streams(1))[0], changed[0])
    assert torch.equal(augment(images[0], streams(2)), changed[0])


def test_flips_are_mirror_images(images):
    """Half of 600 images, within 5 sd (61), and the others as they were."""
    changed = RandomFlip()(images, streams(2))
    same = (changed == images).all(-1).all(-1).all(-1)
    mirrored = (changed == images.flip(-1)).all(-1).all(-1).all(-1)
    assert (same ^ mirrored).all() and abs(int(mirrored.sum()) - 300) < 61
    assert torch.equal(RandomFlip(0.0)(images, streams(2)), images)
    assert torch.equal(RandomFlip(1.0)(images, streams(2)), images.flip(-1))


def test_crops_are_shifts_with_zeros(images):
    """Every one of the 25 shifts by up to two pixels occurs among 600 images, and no other."""
    changed = RandomCrop(2)(images, streams(2))
    wide = torch.nn.functional.pad(images, (2, 2, 2, 2))
    found = torch.zeros(2, 300, dtype=torch.int)
    for dy in range(5):
        for dx in range(5):
            shifted = wide[..., dy : dy + 6, dx : dx + 9]
            equal = (changed == shifted).all(-1).all(-1).all(-1)
            assert equal.any()
            found += equal
    assert (found == 1).all()


def test_rotations_turn_about_the_centre():
    """A half turn is two mirrors; a small one moves no weight; the sides' lengths do not matter."""
    x = torch.zeros(1, 50, 1, 9, 15, dtype=torch.float64)
    x[..., 3:6, 6:9] = torch.rand(50, 1, 3, 3, dtype=torch.float64)
    half = RandomRotation(180.0).change(x[0], torch.ones(50, 1, dtype=torch.float64))
    torch.testing.assert_close(half, x[0].flip(-1, -2), atol=1e-12, rtol=0)
    quarter = RandomRotation(90.0).change(x[0], torch.ones(50, 1, dtype=torch.float64))
    turned = x[0][..., 3:6, 6:9].rot90(1, (-2, -1))
    other = x[0][..., 3:6, 6:9].rot90(-1, (-2, -1))
    inner = quarter[..., 3:6, 6:9]
    assert torch.allclose(inner, turned, atol=1e-9) or torch.allclose(inner, other, atol=1e-9)
    assert torch.equal(RandomRotation(0.0)(x, streams(1)).round(decimals=9), x.round(decimals=9))


def test_rotations_go_either_way():
    """Angles of 2000 copies of a spot, by where it is then: uniform within 30 degrees either way.

    Mean 0 and sd 30/sqrt(3), each within 5 standard errors (1.9 and 1.2), and both ends are almost
    reached. On this grid a spot of sd 2 is found to a tenth of a degree, at 10 from the centre.
    """
    at = torch.arange(41.0) - 20.0
    spot = torch.exp(-0.125 * (at[:, None] ** 2 + (at - 10.0) ** 2))
    turned = RandomRotation(30.0)(spot.expand(1, 2000, 1, 41, 41), streams(1))[0, :, 0]
    mass = turned.sum((1, 2))
    height, width = (turned.sum(2) * at).sum(1) / mass, (turned.sum(1) * at).sum(1) / mass
    angle = torch.rad2deg(torch.atan2(height, width))
    assert abs(float(angle.mean())) < 1.9 and abs(float(angle.std()) - 17.3) < 1.2
    assert -30.2 < angle.min() < -29.5 and 29.5 < angle.max() < 30.2


def test_erasing_sets_one_rectangle_to_zero(images):
    """The same in all channels, of at most 40% of each side; about half of the images have one.

    Rectangles narrower than a pixel may fall between two: fewer than half show one.
    """
    changed = RandomErasing()(images, streams(2))
    gone = changed == 0.0
    assert torch.equal(changed[~gone], images[~gone])
    assert torch.equal(gone[:, :, 0], gone[:, :, 1])
    area = gone[:, :, 0]
    rows, columns = area.any(-1).sum(-1), area.any(-2).sum(-1)
    assert torch.equal(area.sum((-1, -2)), rows * columns)
    assert rows.max() <= 3 and columns.max() <= 4  # 2.4 and 3.6 pixels
    assert 0.2 < float((rows > 0).float().mean()) < 0.5


@cases(
    "augment, name",
    [
        (RandomCrop(-1), "padding=-1"),
        (RandomFlip(1.5), "probability=1.5"),
        (RandomRotation(270.0), "degrees=270.0"),
        (RandomErasing(largest=0.0), "largest=0.0"),
    ],
)
def test_bad_parameters(images, augment, name):
    with pytest.raises(ValueError, match=f"{name} is not allowed"):
        augment(images, streams(2))
