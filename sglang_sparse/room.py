"""Whether there is room for states at all, told at start: a cache that can never hit says so."""

from __future__ import annotations

from typing import Any, NamedTuple


class Room(NamedTuple):
    """What bounds the states that can be kept.

    `slots` is the whole pool; `rows` requests run at once, and each holds `held` slots. Prompts
    have at most `context` tokens, and states are `grid` tokens apart.
    """

    slots: int
    rows: int
    held: int
    context: int
    grid: int

    @classmethod
    def of(cls, pool: Any, grid: int) -> Room:
        """Read SGLang's pool of request rows and state slots."""
        return cls(
            slots=pool.mamba_allocator.size,
            rows=pool.size,
            held=1 + pool.mamba_ping_pong_track_buffer_size,
            context=pool.max_context_len,
            grid=grid,
        )

    def unmet(self) -> str | None:
        """Return one line that says why no prompt can ever hit, None where some can."""
        if self.slots <= self.held:
            return (
                f"--max-mamba-cache-size: got {self.slots}; need more than {self.held}, which one "
                "running request holds, or no state is ever kept; raise it"
            )
        if self.context <= self.grid:
            return (
                f"--context-length: got {self.context}; need more than {self.grid}, the distance "
                "between states, or no prompt has one; raise it or leave out "
                "--radix-cache-backend sparse"
            )
        return None

    def shortage(self) -> str | None:
        """Return one line where a full server has no slot left for states, None where it has."""
        if self.slots > self.rows * self.held:
            return None
        return (
            f"--max-mamba-cache-size: got {self.slots}; need more than {self.rows * self.held}, "
            f"which {self.rows} running requests hold, or nothing hits while they all run; raise "
            "it, or lower --max-running-requests"
        )
