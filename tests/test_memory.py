"""How much memory there is, as Linux says it."""

from __future__ import annotations

from _cases import cases

from skbayes_sgmcmc._data import memory


def test_the_machine_has_more_than_what_is_free():
    assert 2**20 < memory.free_memory() < memory._bytes_of("MemTotal")
    assert memory.whole_memory() <= memory._bytes_of("MemTotal")


@cases(
    "groups, files, expected",
    [
        ("5:memory:/a/b", {"memory/a/b/memory.limit_in_bytes": "1000"}, [1000]),
        ("0::/a", {"a/memory.max": "3000"}, [3000]),
        # in a container, the path is that of the machine outside
        ("4:cpu:/\n5:memory:/docker/7", {"memory/memory.limit_in_bytes": "2000"}, [2000]),
        ("0::/../7", {"memory.max": "2000"}, [2000]),
        # no limit, no file, no groups
        ("0::/a", {"a/memory.max": "max"}, []),
        ("0::/a", {}, []),
        (None, {}, []),
    ],
)
def test_limits_of_control_groups(groups, files, expected, tmp_path):
    """Of both versions; a group's own limit comes before that of the root."""
    if groups is not None:
        (tmp_path / "own").write_text(groups + "\n")
    for name, text in files.items():
        (tmp_path / "root" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "root" / name).write_text(text + "\n")
    assert list(memory._limits_of_groups(tmp_path / "own", tmp_path / "root")) == expected


def test_the_smallest_limit_counts(monkeypatch):
    monkeypatch.setattr(memory, "_limits_of_groups", lambda: iter([2**70, 5000]))
    assert memory.whole_memory() == 5000
    monkeypatch.setattr(memory, "_bytes_of", lambda name: None)
    monkeypatch.setattr(memory, "_limits_of_groups", lambda: iter([]))
    assert memory.whole_memory() is None
