"""Every block of code in README and docs runs: a page from top to bottom, in its own folder, warnings as errors."""

import ast
import importlib.util
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl
import pytest

import phvae
from phvae.cli import run

ROOT = Path(__file__).parents[1]
SOURCE = Path(phvae.__file__).parent
WHOLE_ROOMS = ("baselines", "datasets", "metrics")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>`{3,}|:{3,})(?P<language>[^`]*)$")
# Of these nothing is run: they show what is typed at other programs, or what comes out.
SHOWN = {"text", "bibtex", "json", "toml"}


class Block(NamedTuple):
    """Code of a page, and the line it begins in."""

    language: str
    line: int
    code: str


def blocks(page):
    """The fenced blocks of a page in order; a fence that is never closed is a fault."""
    found, opened, code = [], None, []
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        fence = FENCE.match(line)
        if opened is None:
            if fence and fence["ticks"][0] == "`":
                opened, code = (fence, number + 1), []
        elif fence and fence["ticks"] == opened[0]["ticks"] and not fence["language"]:
            found.append(Block(opened[0]["language"].strip(), opened[1], "\n".join([*code, ""])))
            opened = None
        else:
            code.append(line[len(opened[0]["indent"]) :])
    assert opened is None, f"{page}: the block in line {opened[1]} never ends"
    return found


def runs(block):
    return block.language in ("python", "sh")


def run_python(page, block, names):
    # as many lines before as on the page, so that a traceback points into it
    exec(compile("\n" * (block.line - 1) + block.code, str(page), "exec"), names)


def run_shell(page, block):
    """The commands of a block: a plain `phvae` in this process, which saves its start; others as a shell runs them."""
    commands = [line for line in block.code.replace("\\\n", " ").splitlines() if line.strip() and line[0] != "#"]
    for command in commands:
        words = shlex.split(command, comments=True)
        if words[0] == "phvae" and not {"|", ">", "<", "&&"} & set(words):
            status = run(words[1:])
        else:
            path = f"PATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH; "
            status = subprocess.run(["/bin/sh", "-c", path + command], check=False, timeout=300).returncode
        assert status == 0, f"{page}, line {block.line}: {command}"


@pytest.mark.parametrize(
    "page", [p for p in PAGES if any(map(runs, blocks(p)))], ids=lambda page: str(page.relative_to(ROOT))
)
def test_the_code_of_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mpl.use("Agg")
    names = {"__name__": "__main__"}
    for block in blocks(page):
        if block.language == "python":
            run_python(page, block, names)
        elif block.language == "sh":
            run_shell(page, block)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_is_run_or_only_shown(page):
    for block in blocks(page):
        known = runs(block) or block.language in SHOWN or block.language.startswith("{")
        assert known, f"{page}, line {block.line}: a block in {block.language!r}; write python, sh or text"
        assert not block.language.startswith(("{code", "{doctest", "{literalinclude")), f"{page}, line {block.line}"


def pictures():
    """`docs/figures.py` as a module."""
    spec = importlib.util.spec_from_file_location("figures", ROOT / "docs" / "figures.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_picture_of_a_page_can_be_made_again(tmp_path):
    figures = pictures()
    shown = set()
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for name in re.findall(r"!\[[^\]]*\]\(([^)]+)\)|\{(?:figure|image)\} (\S+)", text):
            place = (page.parent / (name[0] or name[1])).resolve()
            shown.add(str(place.relative_to(ROOT / "docs")))
    assert set(figures.FIGURES) <= shown
    assert all((ROOT / "docs" / name).is_file() for name in shown)
    # a picture that takes long has a script of its own
    scripts = [path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.py")]
    for name in shown - set(figures.FIGURES):
        assert any(f'"{Path(name).name}"' in script for script in scripts), f"nothing draws {name}"
    made = figures.write("figures/chain.svg", tmp_path)
    assert "<svg" in made.read_text(encoding="utf-8")


def documented_modules():
    for page in (ROOT / "docs" / "api").glob("*.md"):
        yield from re.findall(r"automodule:: (phvae[\w.]*)", page.read_text(encoding="utf-8"))


def names_in_all(path):
    """The names in ``__all__`` of a file, each with the module it is from; constants are left out."""
    module = ".".join(["phvae", *path.relative_to(SOURCE).with_suffix("").parts]).removesuffix(".__init__")
    tree, exported, places = ast.parse(path.read_text(encoding="utf-8")), [], {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            places |= {alias.asname or alias.name: node.module for alias in node.names}
        elif isinstance(node, ast.ClassDef | ast.FunctionDef):
            places.setdefault(node.name, module)
        elif isinstance(node, ast.Assign) and [getattr(name, "id", "") for name in node.targets] == ["__all__"]:
            exported = ast.literal_eval(node.value)
    return {name: places[name] for name in exported if name in places}


def defined_in(name, module):
    """The module a name is defined in, through the packages that pass it on."""
    package = SOURCE.joinpath(*module.split(".")[1:]) / "__init__.py"
    further = names_in_all(package).get(name, module) if package.is_file() else module
    return module if further == module else defined_in(name, further)


def test_every_public_name_has_its_place_in_the_reference():
    # what a package exports, and the whole of the rooms that users import from module by module
    packages = [path for path in SOURCE.rglob("__init__.py") if path.parent.name != "cli"]  # whose pages are its --help
    files = [*packages, *(path for room in WHOLE_ROOMS for path in (SOURCE / room).glob("*.py"))]
    documented = set(documented_modules())
    for path in files:
        for name, module in names_in_all(path).items():
            assert {module, defined_in(name, module)} & documented, f"{name} of {module} is on no page of docs/api"


def test_the_reference_names_modules_that_are_there():
    for name in documented_modules():
        place = SOURCE.joinpath(*name.split(".")[1:])
        assert place.with_suffix(".py").is_file() or (place / "__init__.py").is_file(), name


def test_the_documentation_builds_without_a_warning(tmp_path):
    words = [
        sys.executable,
        "-m",
        "sphinx",
        "-W",
        "--keep-going",
        "-q",
        "-d",
        tmp_path / "trees",
        ROOT / "docs",
        tmp_path,
    ]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "index.html").is_file()
