"""A SGLang plugin that keeps few exact recurrent states where prompts diverge."""

from importlib.metadata import version

__version__ = version("sglang-sparse")
