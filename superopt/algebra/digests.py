"""Digests of operators: hashes of the parsed code of an operator's definition and axioms.

The digest of an operator covers three parts:

- the definition and the axioms in the operator's file in specs/,
- the shared code that the definition and the axioms use (`index`, `elementwise`, `composite` ...),
- the definitions of the operators that a composite operator applies.

Comments, docstrings, layout and the names of modules do not affect a digest. A digest does not cover the code that lifts and
lowers ONNX nodes, because no proof depends on this code. A digest does not cover the modules in `TERM_LANGUAGE`, which
represent and type terms. These modules count as part of the provers. Digests do not cover provers.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import json
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from superopt.errors import SpecError

DEFINITION = ("COMMUTATIVE", "COMPOSITE", "DOMAIN", "EXACT", "RECURRENCE", "body", "unrolled")
"""The names that define, together with the operator's own name, what the operator of a file in specs/ computes."""
AXIOMS = "AXIOMS"
DEFINING = ("algebra", "speclib")
"""The packages of superopt that contain shared code for definitions. Digests do not cover the code of the rule notation."""
TERM_LANGUAGE = frozenset({"extent", "operators", "substitution", "tautology", "terms"})
"""The modules of `algebra` that digests do not cover, even if a definition uses their code."""
INFIX = {"@": "matmul", "+": "add", "-": "sub", "*": "mul"}
"""The infix symbols of the rule notation, each with its operator."""
DIGITS = 16
SPECS, PACKAGE = "specs", "superopt"
CACHE = "meaning-{}.json"
IGNORED_FIELDS = frozenset({"ctx", "kind", "type_comment"})


def digests(specs: Path, package: Path) -> Mapping[str, str]:
    """Return the digest of each operator in the folder `specs`. `package` is the folder of the superopt package.

    The digests are cached in `__pycache__`. The name of the cache file contains a hash of all files on which the digests may
    depend.

    Raises:
        SpecError: A file on which an operator's meaning depends cannot be read or parsed.
    """
    folders = {SPECS: specs, **{f"{PACKAGE}.{part}": package / part for part in DEFINING}}
    files = {f"{name}.{path.stem}": path for name, folder in folders.items() for path in sorted(folder.glob("*.py"))}
    try:
        contents = {name: path.read_bytes() for name, path in files.items()}
    except OSError as error:
        raise SpecError(f"{error.filename} cannot be read ({error.strerror})") from None
    key = hashlib.sha256()
    for name, content in contents.items():
        key.update(f"{name} {len(content)} ".encode() + content)
    cached = package / "__pycache__" / CACHE.format(key.hexdigest()[:DIGITS])
    with suppress(OSError, ValueError):
        known = json.loads(cached.read_text(encoding="utf-8"))
        if isinstance(known, dict) and all(isinstance(value, str) for value in known.values()):
            return known
    found = digests_of(contents)
    if not sys.dont_write_bytecode:
        _keep(cached, json.dumps(found))
    return found


def digests_of(contents: Mapping[str, bytes]) -> Mapping[str, str]:
    """Return the digest of each operator.

    `contents` maps the name of each module ("specs.relu", "superopt.algebra.index" ...) to the content of its file.

    Raises:
        SpecError: A file on which an operator's meaning depends cannot be parsed.
    """
    code = _Code(contents)
    return {name: code.digest(name) for name in sorted(code.operators)}


def _keep(path: Path, text: str) -> None:
    """Write the text to the cache file `path`, and remove older files of this cache. If the folder is read-only, do nothing."""
    with suppress(OSError):
        path.parent.mkdir(exist_ok=True)
        for old in path.parent.glob(CACHE.format("*")):
            old.unlink(missing_ok=True)
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, delete=False) as file:
            file.write(text)
        Path(file.name).replace(path)


class _Statement:
    """A top-level statement of a module."""

    def __init__(self, node: ast.stmt) -> None:
        self.node = node

    @functools.cached_property
    def code(self) -> str:
        """The hash of the statement's code."""
        return hashlib.sha256(_written(self.node).encode()).hexdigest()[:DIGITS]

    @functools.cached_property
    def names(self) -> frozenset[str]:
        """The names that the statement reads or binds."""
        return frozenset(node.id for node in ast.walk(self.node) if isinstance(node, ast.Name))

    @functools.cached_property
    def texts(self) -> tuple[str, ...]:
        """The string constants in the statement."""
        constants = (node.value for node in ast.walk(self.node) if isinstance(node, ast.Constant))
        return tuple(value for value in constants if isinstance(value, str))


@dataclass(frozen=True)
class _Module:
    """The top-level statements of a file.

    Attributes:
        bindings: A mapping from each name to the statements that bind the name. Imports are left out.
        imports: A mapping from each imported name to the source module and the name in the source module.
        loose: The statements that bind no name. Docstrings are left out.
    """

    bindings: Mapping[str, tuple[_Statement, ...]]
    imports: Mapping[str, tuple[str, str]]
    loose: tuple[_Statement, ...]


_Place = tuple[str, str]
"""A module, such as "superopt.algebra.index", and a name that the module binds. A place identifies the code that binds the
name. The name "" stands for the module's statements that bind no name.
"""


class _Code:
    """The code of all modules. `contents` maps each module's name to the content of its file."""

    def __init__(self, contents: Mapping[str, bytes]) -> None:
        self.contents = contents
        self.modules: dict[str, _Module] = {}
        specs = (name.removeprefix(f"{SPECS}.") for name in contents if name.startswith(f"{SPECS}."))
        self.operators = frozenset(name for name in specs if name != "__init__")
        self.reached: dict[tuple[_Place, bool], tuple[str, tuple[_Place, ...]]] = {}

    def digest(self, operator: str) -> str:
        """Return the digest of the operator. The digest covers the operator's definition, the definitions of the operators in
        this definition, and the axioms.
        """
        found = self._closure(self._definition(operator), composed=True)
        found |= self._closure([(f"{SPECS}.{operator}", AXIOMS)], composed=False)
        lines = sorted(f"{name}={code}" for (_, name), code in found.items() if code)
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:DIGITS]

    def _definition(self, operator: str) -> list[_Place]:
        return [(f"{SPECS}.{operator}", name) for name in (operator, *DEFINITION)]

    def _closure(self, waiting: list[_Place], *, composed: bool) -> dict[_Place, str]:
        """Return the hash of the code at each place in `waiting`, and at each place that this code uses directly or indirectly.

        A place is a module and a name. If `composed` is True and the code mentions an operator, the definition of the operator
        is included too.
        """
        found: dict[_Place, str] = {}
        while waiting:
            place = waiting.pop()
            if place not in found:
                if (place, composed) not in self.reached:
                    self.reached[place, composed] = self._read(*place, composed=composed)
                found[place], further = self.reached[place, composed]
                waiting += further
        return found

    def _read(self, module: str, name: str, *, composed: bool) -> tuple[str, tuple[_Place, ...]]:
        """Return the hash of the code that binds `name` in `module`, and the places (modules and names) that this code uses."""
        here = self._module(module)
        statements = here.bindings.get(name, ()) if name else here.loose
        places: dict[_Place, None] = {(module, ""): None} if name else {}
        code = [statement.code for statement in statements]
        for one in sorted(set().union(*(statement.names for statement in statements)) if statements else ()):
            if one in here.bindings:
                places[module, one] = None
            if one in here.imports:
                source, imported = here.imports[one]
                ours = source.partition(".")[0] in {PACKAGE, SPECS}
                code.append(f"{one}={imported if ours else f'{source}.{imported}'}")
                places.update(dict.fromkeys(self._imported(source, imported)))
        if composed:
            for operator in self._mentioned(text for statement in statements for text in statement.texts):
                places.update(dict.fromkeys(self._definition(operator)))
        return "+".join(code), tuple(places)

    def _imported(self, source: str, name: str) -> Iterator[_Place]:
        """Yield the place of an imported name: the name, and the module that binds the name.

        Yield nothing if digests do not cover the module. If `name` is a module, yield the place of every name that this module
        binds.
        """
        if f"{source}.{name}" in self.contents:  # a whole module is imported: any of its names may be used
            source, name = f"{source}.{name}", ""
        package, stem = source.partition(".")[0], source.rpartition(".")[2]
        if package == PACKAGE and stem not in TERM_LANGUAGE and source in self.contents:
            yield from ((source, one) for one in ([name] if name else self._module(source).bindings))

    def _mentioned(self, texts: Iterable[str]) -> Iterator[str]:
        """Yield the operators in the texts. A text may be an operator's name, or a term in the rule notation."""
        for text in texts:
            if text in self.operators:
                yield text
            yield from (name for name in re.findall(r"\b(\w+)\(", text) if name in self.operators)
            if "(" in text or "\n" in text:
                yield from (name for sign, name in INFIX.items() if f" {sign} " in text and name in self.operators)

    def _module(self, module: str) -> _Module:
        if module not in self.modules:
            self.modules[module] = self._parsed(module)
        return self.modules[module]

    def _parsed(self, module: str) -> _Module:
        try:
            tree = ast.parse(self.contents[module])
        except (SyntaxError, ValueError) as error:
            raise SpecError(f"{module.replace('.', '/')}.py cannot be read ({error})") from None
        bindings: dict[str, list[_Statement]] = {}
        imports: dict[str, tuple[str, str]] = {}
        loose: list[_Statement] = []
        for node in tree.body:
            if isinstance(node, ast.ImportFrom):
                imports.update({one.asname or one.name: (node.module or "", one.name) for one in node.names})
            elif isinstance(node, ast.Import):
                imports.update({one.asname or one.name.partition(".")[0]: (one.name, "") for one in node.names})
            elif names := _bound(node):
                for name in names:
                    bindings.setdefault(name, []).append(_Statement(node))
            elif not _is_docstring(node):
                loose.append(_Statement(node))
        return _Module({name: tuple(found) for name, found in bindings.items()}, imports, tuple(loose))


def _bound(node: ast.stmt) -> list[str]:
    """Return the names that the statement binds.

    A function or class definition binds its own name. An assignment binds its targets if all targets are names. For any other
    statement, the list is empty.
    """
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    leaves = [leaf for target in targets for leaf in getattr(target, "elts", [target])]
    simple = isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign)
    names = [leaf.id for leaf in leaves if isinstance(leaf, ast.Name)]
    return names if simple and len(names) == len(leaves) else []


def _is_docstring(node: object) -> bool:
    """Return whether the syntax node is a statement that consists of a string."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _written(node: object) -> str:
    """Return the syntax tree as text, without docstrings. The text is the same in every version of Python."""
    if isinstance(node, ast.AST):
        fields = ((name, getattr(node, name, None)) for name in node._fields if name not in IGNORED_FIELDS)
        inside = ",".join(f"{name}={_written(value)}" for name, value in fields if value is not None and value != [])
        return f"{type(node).__name__}({inside})"
    if isinstance(node, list):
        return f"[{','.join(_written(one) for one in node if not _is_docstring(one))}]"
    return repr(node)
