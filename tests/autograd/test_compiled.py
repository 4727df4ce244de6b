"""The switch of replay: at once, for a block, nested, for one thread; and what it says of the cache."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import jax
import pytest
from helpers import ROOT

import fad
import fad.numpy as fnp
from fad.autograd import compiled
from fad.core import jaxapi
from fad.core.level import state
from fad.core.replay_protocol import seam


@pytest.fixture(autouse=True)
def as_before() -> Any:
    before = state.replaying
    yield
    compiled(before)


def f(x: Any) -> Any:
    return fnp.sum(fnp.sin(x) * x)


def test_it_switches_at_once_and_until_the_block_ends() -> None:
    compiled(True)
    with compiled(False) as block:
        assert isinstance(block, compiled) and not state.replaying
        with compiled(True):
            assert state.replaying
        assert not state.replaying
    assert state.replaying
    compiled(False)  # no block: it stays
    assert not state.replaying


def test_a_block_ends_with_an_exception() -> None:
    compiled(True)
    with pytest.raises(ZeroDivisionError), compiled(False):
        1 / 0
    assert state.replaying


def test_wait_is_counted_and_off_without_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[bool] = []

    class Replay:
        def __getattr__(self, name: str) -> Any:
            return lambda *args: None

        def compile_at_once(self, on: bool) -> None:
            calls.append(on)

    monkeypatch.setattr(seam, "replay", Replay())
    with compiled(wait=True):
        assert calls == [True]
        with compiled(False, wait=True):
            assert calls == [True]
    assert calls == [True, False]


def test_it_belongs_to_its_thread() -> None:
    compiled(True)
    seen: list[bool] = []

    def work() -> None:
        with compiled(False):
            barrier.wait()
            barrier.wait()

    barrier = threading.Barrier(2)
    thread = threading.Thread(target=work)
    thread.start()
    barrier.wait()
    seen.append(state.replaying)
    barrier.wait()
    thread.join()
    assert seen == [True]


def test_what_the_cache_holds() -> None:
    compiled.clear_cache()
    info = compiled.cache_info()
    assert (info["structures"], info["compiled"], info["hits"]) == (0, 0, 0)
    assert set(compiled.cache_info()) >= {"structures", "compiled", "queued", "refused", "hits"}
    x = fad.tensor([0.5, 1.5])
    with compiled(False):
        expected = [fad.grad(f)(x).tolist() for _ in range(3)]
    assert not compiled.cache_info()["structures"]
    with compiled(wait=True):
        assert [fad.grad(f)(x).tolist() for _ in range(3)] == expected
    info = compiled.cache_info()
    assert info["structures"] and info["compiled"] and info["hits"]
    assert "f" in compiled.explain()
    with compiled(wait=True):
        for _ in range(5):
            fad.grad(f)(x)
            compiled.explain()  # in between
    lines = compiled.explain().splitlines()
    assert re.match(r"\d+ × f \(\d+ operations\): replayed", lines[-1]), lines
    assert all(a != b for a, b in itertools.pairwise(lines))
    compiled.clear_cache()
    assert not compiled.cache_info()["structures"]


@pytest.mark.parametrize(
    ("platform", "variables", "expected"),
    [
        ("linux", {}, ".cache/fad"),
        ("linux", {"XDG_CACHE_HOME": "of the user"}, "of the user/fad"),
        ("darwin", {"XDG_CACHE_HOME": "of the user"}, "Library/Caches/fad"),
        ("win32", {}, "AppData/Local/fad"),
        ("win32", {"LOCALAPPDATA": "of the user"}, "of the user/fad"),
    ],
)
def test_the_cache_on_disk_is_in_the_directory_that_the_platform_has_for_it(
    platform: str,
    variables: dict[str, str],
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    chosen: list[str] = []
    monkeypatch.setattr(sys.modules[compiled.__module__], "keep_compiled", chosen.append)
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, str(tmp_path / value))
    assert compiled.cache_on_disk() == str(tmp_path / expected)
    assert compiled.cache_on_disk(tmp_path / "chosen") == str(tmp_path / "chosen")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # which the specification says to ignore
    if platform == "linux":
        assert compiled.cache_on_disk() == str(tmp_path / ".cache/fad")
    assert chosen[:2] == [str(tmp_path / expected), str(tmp_path / "chosen")]


def test_another_folder_counts_from_now_on(tmp_path: Path) -> None:
    before = jax.config.jax_compilation_cache_dir
    try:
        for name in ("one", "two"):
            compiled.cache_on_disk(tmp_path / name)
            jax.jit(lambda x, name=name: x * len(name) + 0.125)(1.0)
            assert list((tmp_path / name).iterdir())
    finally:
        jaxapi.keep_compiled(before)


CALLS = """
import json, sys
import jax, jax.numpy as jnp
import fad, fad.numpy as fnp
gradient = fad.grad(lambda x: fnp.sum(fnp.sin(x) * x))
x = jnp.ones(3)
def calls():
    before = fad.autograd.compiled.cache_info()["hits"]
    with fad.autograd.compiled(False):
        gradient(x)
    with fad.autograd.compiled(wait=True):
        for _ in range(6):
            gradient(x)
    return fad.autograd.compiled.cache_info()["hits"] - before
events = []
jax.monitoring.register_event_listener(lambda event, **_: events.append(event))
hits = [] if sys.argv[2:] else [calls()]
fad.autograd.compiled.cache_on_disk(sys.argv[1])
fad.autograd.compiled.clear_cache()
jax.clear_caches()
hits.append(calls())
found = "/jax/compilation_cache/cache_hits"
missed = "/jax/compilation_cache/cache_misses"
print(json.dumps([hits, events.count(found), events.count(missed)]))
"""


def test_replay_goes_on_with_the_cache_on_disk_and_the_next_process_reads_it(
    tmp_path: Path,
) -> None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("JAX_")}
    environment["PYTHONPATH"] = str(ROOT)

    def process(*arguments: str) -> Any:
        command = [sys.executable, "-W", "error", "-c", CALLS, str(tmp_path / "kept"), *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    hits, _, missed = process("at the beginning")
    assert min(hits) > 0 and missed > 0
    written = {file.name for file in (tmp_path / "kept").iterdir() if "-cache" in file.name}
    assert len(written) >= 4  # small programs, too
    hits, found, missed = process()
    assert len(hits) == 2 and min(hits) > 0 and found > 0 and missed == 0
