"""Matrix products and inverses whose value does not depend on the other matrices of a batch.

That holds on a CPU for matrices with rows of whole 16 bytes: others stand in memory as their place
in the batch has it, and their value may differ in the last bit.
"""

from __future__ import annotations

import torch


def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return the products of matrices ``[..., m, k]`` and ``[..., k, n]``."""
    # A batch of one has to take the same routine as any other, so always bmm.
    product = torch.bmm(a.reshape(-1, *a.shape[-2:]), b.reshape(-1, *b.shape[-2:]))
    return product.view(*a.shape[:-1], b.shape[-1])


def add_matmul(total: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Add products of ``[..., m, k]`` and ``[..., k, n]`` to `total` in place, and return it."""
    matrices = (x.flatten(0, -3) for x in (total, a, b))
    next(matrices).baddbmm_(*matrices)
    return total


def unit_lower_inverse(lower: torch.Tensor) -> torch.Tensor:
    """Return ``(I + lower)^-1`` for matrices ``[..., 64, 64]``, read below the diagonal only.

    Diagonal blocks are inverted and joined in pairs, twice the size each time:
    ``[[P, 0], [L, Q]]^-1 = [[P^-1, 0], [-Q^-1 L P^-1, Q^-1]]``.
    """
    inverse = torch.zeros_like(lower)
    inverse.diagonal(dim1=-2, dim2=-1).fill_(1.0)
    # Entries 1, 0 of the blocks of two; `torch.where` would take a third of the whole time.
    pairs, of_lower = (x[..., 1::2, ::2].diagonal(dim1=-2, dim2=-1) for x in (inverse, lower))
    torch.neg(of_lower, out=pairs)
    half = 2
    while half < lower.shape[-1]:
        source, target = diagonal_blocks(lower, 2 * half), diagonal_blocks(inverse, 2 * half)
        upper_left, lower_right = target[..., :half, :half], target[..., half:, half:]
        joined = matmul(matmul(lower_right, source[..., half:, :half]), upper_left)
        target[..., half:, :half] = joined.neg_()
        half *= 2
    return inverse


def diagonal_blocks(matrices: torch.Tensor, size: int) -> torch.Tensor:
    """View the diagonal blocks ``[..., blocks, size, size]`` of square matrices."""
    *batch, full, _ = matrices.shape
    blocks = full // size
    tiled = matrices.view(*batch, blocks, size, blocks, size)
    return tiled.diagonal(dim1=-4, dim2=-2).movedim(-1, -3)
