"""`python -m tree_placement`: the solvers' answers, one line on bad input, nothing after Ctrl-C."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tree_placement import PrefillCost, SparseWeights, balanced, expected_recompute, place
from tree_placement.cli.main import main
from tree_placement.fitting import fit_prefill_cost
from tree_placement.path import place_priced
from tree_placement.tree.exact import place_tree
from tree_placement.tree.prefix_tree import PrefixTree, tree_recompute
from tree_placement.tree.priced import place_tree_priced

RNG = np.random.default_rng(5)
DEPTHS = np.sort(RNG.choice(9_000, 40, replace=False)) + 1
WEIGHTS = RNG.integers(1, 9, 40)
SPARSE = SparseWeights(DEPTHS, WEIGHTS)
DENSE = RNG.integers(0, 5, 200)
TREE = {"parents": [-1, 0, 1, 1, 1], "lengths": [0, 4, 2, 3, 8], "weights": [0, 1, 9, 9, 5]}
MEASURED = [(1_000, 0.35), (2_000, 0.80), (4_000, 2.0), (8_000, 5.6)]


def written(folder: Path, name: str, content: object) -> str:
    """Write `content` as the ending of `name` says, and return the path."""
    path = folder / name
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif isinstance(content, str):
        path.write_text(content)
    elif path.suffix == ".npy":
        np.save(path, content)
    else:
        plain = content if isinstance(content, dict) else np.asarray(content).tolist()
        path.write_text(json.dumps(plain))
    return str(path)


def rows(pairs: object, head: str = "") -> str:
    return head + "".join(f"{a},{b}\n" for a, b in np.asarray(pairs).tolist())


def solved(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict:
    assert main(["solve", *arguments, "--json"]) == 0
    output = capsys.readouterr()
    assert output.err == ""
    return json.loads(output.out)


PAIRS = np.stack((DEPTHS, WEIGHTS), axis=1)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("w.json", PAIRS),
        ("w.csv", rows(PAIRS)),
        ("w.csv", rows(PAIRS, "depth,weight\n")),
        ("w.csv", "\ufeff" + rows(PAIRS, "depth,weight\n").replace("\n", "\r\n")),
        ("w.npy", PAIRS),
        ("w.npy", PAIRS.astype(np.float32)),
    ],
)
def test_pairs_in_every_format(tmp_path, capsys, name: str, content: object) -> None:
    file = written(tmp_path, name, content)
    found = solved(capsys, "--weights", file, "--budget", "3", "--grid", "64")
    truth = place(SPARSE, 3, grid=64)
    assert found["depths"] == truth.depths.tolist()
    assert found["cost"] == truth.cost
    assert found["cost_without_new_states"] == expected_recompute(SPARSE, [])
    even = expected_recompute(SPARSE, balanced(int(DEPTHS[-1]), 3, grid=64))
    assert found["cost_evenly_spaced"] == even != truth.cost
    assert (found["weight"], found["unit"]) == (WEIGHTS.sum(), "tokens")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("w.json", DENSE),
        ("w.npy", DENSE),
        ("w.csv", "weight\n" + "".join(f"{weight}\n" for weight in DENSE)),
    ],
)
def test_one_weight_a_depth_in_every_format(tmp_path, capsys, name: str, content: object) -> None:
    found = solved(capsys, "--weights", written(tmp_path, name, content), "--budget", "4")
    assert found["depths"] == place(DENSE, 4).depths.tolist()


def test_every_option_of_a_path(tmp_path, capsys) -> None:
    file = written(tmp_path, "w.json", PAIRS)
    options = ["--grid", "64", "--fixed", "640", "1300", "--forbidden", "1280", "6400"]
    options += ["--minimum-depth", "900", "--cost-linear", "2", "--cost-quadratic", "0.25"]
    keywords = {"grid": 64, "fixed": [640, 1300], "forbidden": [1280, 6400]}
    keywords |= {"minimum_depth": 900, "cost": PrefillCost(2.0, 0.25)}
    found = solved(capsys, "--weights", file, "--budget", "3", *options)
    truth = place(SPARSE, 3, **keywords)
    assert (found["depths"], found["cost"]) == (truth.depths.tolist(), truth.cost)
    assert (found["cost_evenly_spaced"], found["unit"]) == (None, "units of F")
    price = str(truth.cost / 20)
    priced = place_priced(SPARSE, float(price), **keywords)
    found = solved(capsys, "--weights", file, "--price", price, *options)
    assert (found["depths"], found["cost"]) == (priced.depths.tolist(), priced.cost)
    assert 0 < len(found["depths"]) != 3


def test_measured_cost(tmp_path, capsys) -> None:
    file = written(tmp_path, "w.json", PAIRS)
    measured = written(tmp_path, "m.csv", rows(MEASURED, "tokens,seconds\n"))
    found = solved(capsys, "--weights", file, "--budget", "2", "--cost-measured", measured)
    truth = place(SPARSE, 2, cost=fit_prefill_cost(MEASURED))
    assert (found["cost"], found["unit"]) == (truth.cost, "seconds")


def test_trees(tmp_path, capsys) -> None:
    file = written(tmp_path, "t.json", TREE)
    tree = PrefixTree(**{key: np.array(value) for key, value in TREE.items()})
    found = solved(capsys, "--tree", file, "--budget", "2", "--grid", "2")
    truth = place_tree(tree, 2, grid=2)
    assert tuple(map(tuple, found["states"])) == truth.states
    assert (found["depths"], found["cost"]) == ([4, 12], truth.cost)
    assert found["cost_without_new_states"] == tree_recompute(tree, [])
    options = ["--fixed", "1:4", "--forbidden", "4:8"]
    found = solved(capsys, "--tree", file, "--price", "20", *options)
    truth = place_tree_priced(tree, 20, fixed=[(1, 4)], forbidden=[(4, 8)])
    assert tuple(map(tuple, found["states"])) == truth.states
    assert found["cost"] == truth.cost


def test_lines_for_a_reader(tmp_path, capsys) -> None:
    file = written(tmp_path, "w.json", [[1_500, 3], [9_000, 1]])
    assert main(["solve", "--weights", file, "--budget", "2", "--grid", "64"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "states          2, at depths in tokens:",
        "                1472",
        "                8960",
        "cost            124 in all, 31 tokens an overlap",
        "evenly spaced   7484 in all, 1871 tokens an overlap",
        "no new states   13500 in all, 3375 tokens an overlap",
    ]
    tree = written(tmp_path, "t.json", TREE)
    assert main(["solve", "--tree", tree, "--budget", "1"]) == 0
    assert "                1:4 (4)" in capsys.readouterr().out.splitlines()
    empty = written(tmp_path, "e.json", [])
    assert main(["solve", "--weights", empty, "--budget", "1"]) == 0
    assert "cost            0 in all" in capsys.readouterr().out


BAD = {
    "deep.json": "[" * 100_000,
    "huge.json": f"[{10**400}]",
    "b.json": "[1, ",
    "list.json": '{"a": 1}',
    "ragged.json": "[[1, 2], [3]]",
    "words.json": '["a"]',
    "truth.json": "[true]",
    "triples.json": "[[1, 2, 3]]",
    "nan.json": "[1, NaN]",
    "minus.json": "[1, -1]",
    "order.json": "[[5, 1], [4, 1]]",
    "twice.csv": "5,1\n5,2\n",
    "swapped.csv": "weight,depth\n1,5\n",
    "flat.csv": "depth,weight\n1500\n",
    "names.csv": "x\n",
    "half.csv": "1.5,1\n",
    "inf.csv": "inf,1\n",
    "words.csv": "depth,weight\n1,2\n3,x\n",
    "ragged.csv": "1,2\n3\n",
    "typo.csv": "1O0,5\n200,1\n",
    "comma.csv": "1.5.0\n2\n",
    "latin.csv": "dépth\n".encode("latin-1"),
    "bytes.npy": b"nothing",
    "empty.npy": b"",
    "w.txt": "1",
    "w.json": "[[1500, 3], [9000, 1]]",
    "two.json": "[[1, 1], [2, 2]]",
    "t.json": json.dumps(TREE),
    "cycle.json": json.dumps({**TREE, "parents": [-1, 2, 1, 1, 1]}),
    "roots.json": json.dumps({**TREE, "parents": [-1, -1, 1, 1, 1]}),
    "keys.json": '{"parents": [-1]}',
}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--weights none.json --budget 1", "none.json: got No such file or directory; need "),
        ("--weights b.json --budget 1", "b.json: got Expecting value"),
        ("--weights deep.json --budget 1", "deep.json: got maximum recursion depth exceeded"),
        ("--weights huge.json --budget 1", "huge.json: got int too large to convert to float; "),
        ("--weights list.json --budget 1", "list.json: got other values; need a list"),
        ("--weights ragged.json --budget 1", "ragged.json: got other values; need a list"),
        ("--weights words.json --budget 1", "words.json: got other values; need a list"),
        ("--weights truth.json --budget 1", "truth.json: got other values; need a list"),
        ("--weights triples.json --budget 1", "triples.json: got numbers of shape (1, 3); need "),
        ("--weights nan.json --budget 1", "weights[1]: got nan; need a finite number >= 0; "),
        ("--weights minus.json --budget 1", "weights[1]: got -1.0; need a finite number >= 0; "),
        ("--weights order.json --budget 1", "order.json: depths: got depths out of order or "),
        ("--weights twice.csv --budget 1", "twice.csv: depths: got depths out of order or below "),
        ("--weights swapped.csv --budget 1", "swapped.csv: row 1: got weight,depth; need depth,"),
        ("--weights flat.csv --budget 1", "flat.csv: got rows of different sizes; need as many "),
        ("--weights names.csv --budget 1", "names.csv: got no numbers; need a row at least; "),
        ("--weights half.csv --budget 1", "half.csv: depth 1: got 1.5; need whole tokens; "),
        ("--weights inf.csv --budget 1", "inf.csv: depth 1: got inf; need whole tokens; "),
        ("--weights words.csv --budget 1", "words.csv: row 3: got 3,x; need numbers; "),
        ("--weights ragged.csv --budget 1", "ragged.csv: got rows of different sizes; need "),
        ("--weights typo.csv --budget 1", "typo.csv: row 1: got 1O0,5; need numbers; "),
        ("--weights comma.csv --budget 1", "comma.csv: row 1: got 1.5.0; need numbers; "),
        ("--weights latin.csv --budget 1", "latin.csv: got 'utf-8' codec"),
        ("--weights bytes.npy --budget 1", "bytes.npy: got other bytes; need an array of numbers"),
        ("--weights empty.npy --budget 1", "empty.npy: got other bytes; need an array of numbers"),
        ("--weights w.txt --budget 1", "w.txt: got the ending '.txt'; need .json, .csv or .npy; "),
        ("--weights w.json --budget -1", "budget: got -1; need a whole number >= 0; "),
        ("--weights w.json --budget 1.5", "argument --budget: got '1.5'; need a whole number; "),
        ("--weights w.json --price -1", "price: got -1.0; need a finite number >= 0; "),
        ("--weights w.json --price nan", "price: got nan; need a finite number >= 0; "),
        ("--weights w.json --price x", "argument --price: got 'x'; need a number; "),
        ("--weights w.json --budget 1 --grid 0", "grid: got 0; need a whole number >= 1; "),
        (f"--weights w.json --budget 1 --grid {10**20}", f"grid: got {10**20}; need at most "),
        ("--weights w.json --budget 1 --fixed 0", "fixed: got 0; need depth >= 1; "),
        ("--weights w.json --budget 1 --fixed a", "argument --fixed: got 'a'; need DEPTH or "),
        ("--weights w.json --budget 1 --fixed 1:2", "--fixed: got 1:2; need depths on a path; "),
        ("--weights w.json --budget 1 --cost-linear 0", "linear and quadratic: got 0 and 0; "),
        ("--weights w.json --budget 1 --cost-measured two.json", "pairs: got 2 different lengths"),
        (
            "--weights w.json --budget 1 --cost-measured two.json --cost-linear 1",
            "--cost-measured: got with --cost-linear or --cost-quadratic; need one or the other; ",
        ),
        ("--weights w.json", "one of the arguments --budget --price is required; see "),
        ("--budget 1", "one of the arguments --weights --tree is required; see "),
        ("--weights w.json --budget 1 --what", "unrecognized arguments: --what; see "),
        ("--tree w.json --budget 1", "w.json: got list; need an object of parents, lengths and "),
        ("--tree keys.json --budget 1", "keys.json: got keys ['parents']; need an object of "),
        ("--tree cycle.json --budget 1", "parents[1]: got 2; need no cycle; "),
        ("--tree roots.json --budget 1", "parents[1]: got -1; need one root, node 0; "),
        ("--tree t.json --budget 1 --fixed 3", "--fixed: got 3; need NODE:DEPTH on a tree; "),
        ("--tree t.json --budget 1 --fixed 1:9", "fixed: got (1, 9); need 1 <= depth <= 4 in "),
    ],
)
def test_bad_input_is_one_line(tmp_path, capsys, monkeypatch, arguments: str, message: str) -> None:
    for name, content in BAD.items():
        written(tmp_path, name, content)
    monkeypatch.chdir(tmp_path)
    try:
        status = main(["solve", *arguments.split()])
    except SystemExit as stopped:
        status = stopped.code
    output = capsys.readouterr()
    assert (status, output.out) == (2, "")
    assert output.err.startswith(f"error: {message}")
    assert output.err.count("\n") == 1


@pytest.mark.parametrize("command", [[], ["solve"], ["figures"]])
def test_help_is_complete(capsys, command: list[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([*command, "--help"])
    assert stopped.value.code == 0
    assert len(capsys.readouterr().out) > 300


def test_without_matplotlib_one_line_says_what_to_install(tmp_path, capsys, monkeypatch) -> None:
    for name in [name for name in sys.modules if name.startswith("tree_placement.figures")]:
        monkeypatch.delitem(sys.modules, name)
    import tree_placement

    monkeypatch.delattr(tree_placement, "figures", raising=False)
    monkeypatch.setattr(sys, "meta_path", [_NoMatplotlib(), *sys.meta_path])
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    assert main(["figures", "--out", str(tmp_path / "new")]) == 2
    error = capsys.readouterr().err
    assert error == (
        "error: matplotlib: got no such package; need matplotlib >= 3.9; "
        "pip install 'sglang-sparse[figures]'\n"
    )
    assert not (tmp_path / "new").exists()


class _NoMatplotlib:
    """Finds no module of that name."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name.split(".")[0] == "matplotlib":
            raise ModuleNotFoundError(f"No module named {name!r}", name="matplotlib")


def test_a_folder_that_cannot_be_written_to_is_refused_before_the_work(tmp_path, capsys) -> None:
    file = tmp_path / "file"
    file.touch()
    procfs = Path("/proc")
    for out, present in ((file, file), (file / "below", file), (procfs / "new", procfs)):
        assert main(["figures", "--out", str(out)]) == 2
        error = capsys.readouterr().err
        assert error == f"error: --out: got {out}; need a folder to write to; look at {present}\n"


def test_figures_are_written_whole_and_old_ones_replaced(tmp_path, monkeypatch, capsys) -> None:
    figures = pytest.importorskip("tree_placement.figures")
    names = [picture.name for picture in figures.PICTURES]
    monkeypatch.setattr(figures, "render", lambda picture, form: f"{picture.name} {form}".encode())
    out = tmp_path / "a" / "b"
    out.mkdir(parents=True)
    (out / "budget.svg").write_text("old")
    assert main(["figures", "--out", str(out), "--format", "svg"]) == 0
    output = capsys.readouterr()
    assert output.out.split() == [str(out / f"{name}.svg") for name in names]
    assert output.err.split("\n")[0] == f"1/{len(names)} {names[0]}"
    assert sorted(path.name for path in out.iterdir()) == sorted(f"{name}.svg" for name in names)
    assert (out / "budget.svg").read_text() == "budget svg"


def test_a_reader_that_goes_away_gets_no_traceback(tmp_path) -> None:
    file = written(tmp_path, "w.csv", rows(PAIRS))
    command = [sys.executable, "-m", "tree_placement", "solve", "--weights", file, "--budget", "3"]
    read, write = os.pipe()
    os.close(read)
    with subprocess.Popen(command, stdout=write, stderr=subprocess.PIPE, text=True) as process:
        os.close(write)
        _, said = process.communicate()
    assert said == ""
    assert process.returncode == 128 + signal.SIGPIPE


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_nothing_behind(tmp_path, number: int) -> None:
    out = tmp_path / "new"
    command = [sys.executable, "-m", "tree_placement", "figures", "--out", str(out)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("1/")
        time.sleep(0.1)
        os.kill(process.pid, number)
        rest = process.stderr.read()
    assert process.returncode == 128 + number
    assert rest.splitlines()[-1] == "interrupted: no file is left half-written"
    assert "Traceback" not in rest
    assert list(tmp_path.iterdir()) == []


def test_the_command_line_imports_nothing_heavy() -> None:
    heavy = ("numba", "networkx", "matplotlib", "torch", "sglang")
    report = f"print(*[name for name in {heavy} if name in sys.modules])"
    for module in ("tree_placement", "tree_placement.cli.main"):
        command = [sys.executable, "-c", f"import sys, {module}; {report}"]
        run = subprocess.run(command, capture_output=True, text=True, check=True)
        assert run.stdout.split() == []
