"""Statistics apart for each namespace: prompts of one never share tokens with those of another."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from tree_placement.overlap._encoding import Decoder, Encoder
from tree_placement.overlap.model import OverlapModel
from tree_placement.policy.hazard import HazardModel
from tree_placement.policy.visits import PolicySettings


class Namespace(NamedTuple):
    """What prompts of one namespace share: a row of the hazard's weights, and where they leave the
    tree. `era` counts the namespaces that had the row before."""

    model: int
    era: int
    overlaps: OverlapModel


class Namespaces:
    """The namespaces used last, each with its statistics.

    Parameters
    ----------
    settings
        Tells how many there are, and how their overlaps are counted.
    hazard
        Has a row for each. Row 0 is of states whose namespace is forgotten.

    Examples
    --------
    >>> namespaces = Namespaces(PolicySettings(namespaces=2), HazardModel())
    >>> forgotten: list[int] = []
    >>> [namespaces.use(name, forgotten.append).model for name in ("a", "b", "a", "c")]
    [1, 2, 1, 2]
    >>> forgotten
    [2]
    """

    def __init__(self, settings: PolicySettings, hazard: HazardModel) -> None:
        self._settings = settings
        self._hazard = hazard
        self._hazard.begin(0)
        self._by_name: OrderedDict[str, Namespace] = OrderedDict()
        self._eras: dict[int, int] = {}

    def use(self, name: str, forget: Callable[[int], None]) -> Namespace:
        """Return a namespace, begun if it is new.

        Above their maximum the one unused longest is dropped: `forget` is called with its row,
        which the new one then takes.
        """
        namespace = self._by_name.get(name)
        if namespace is None:
            model = len(self._by_name) + 1
            if len(self._by_name) >= self._settings.namespaces:
                model = self._by_name.popitem(last=False)[1].model
                forget(model)
            self._hazard.begin(model)
            era = self._eras[model] = self._eras.get(model, -1) + 1
            namespace = self._by_name[name] = Namespace(model, era, self._no_overlaps())
        self._by_name.move_to_end(name)
        return namespace

    def row_of(self, model: int, era: int) -> int:
        """Return the row of a namespace as it was when planned for; 0 if another has it now."""
        return model if self._eras.get(model) == era else 0

    def write(self, encoder: Encoder) -> None:
        """Append all statistics but those of single subtrees.

        Row 0 of the hazard (`HazardModel.write`); int64 number of namespaces; and of each, the one
        unused longest first, int64 row and length of its name, the name's bytes in UTF-8, each as
        an int64; its row; the statistics of its whole tree (`OverlapStatistics.write`).
        """
        self._hazard.write(encoder, 0)
        encoder.integers(len(self._by_name))
        for name, namespace in self._by_name.items():
            encoded = name.encode(errors="surrogatepass")
            encoder.integers((namespace.model, len(encoded), *encoded))
            self._hazard.write(encoder, namespace.model)
            namespace.overlaps.tree.write(encoder)

    def read(self, decoder: Decoder) -> None:
        """Take over, knowing none yet, what `write` appended with the same settings.

        Raises ValueError where that does not fit together.
        """
        self._hazard.read(decoder, 0)
        count = decoder.integers(1).item()
        if not 0 <= count <= self._settings.namespaces:
            raise decoder.damaged(f"{count} namespaces")
        rows = set()
        for _ in range(count):
            model, length = decoder.integers(2).tolist()
            if not 1 <= model <= count:
                raise decoder.damaged(f"row {model} of {count}")
            encoded = decoder.integers(length).astype(np.uint8).tobytes()
            overlaps = self._no_overlaps()
            self._by_name[encoded.decode(errors="surrogatepass")] = Namespace(model, 0, overlaps)
            self._eras[model] = 0
            self._hazard.read(decoder, model)
            overlaps.tree.read(decoder)
            rows.add(model)
        if not len(rows) == len(self._by_name) == count:
            raise decoder.damaged("one namespace twice")

    def _no_overlaps(self) -> OverlapModel:
        settings = self._settings
        return OverlapModel(settings.decay, settings.bin, settings.subtrees)
