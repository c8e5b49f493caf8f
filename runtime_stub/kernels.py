"""Compile the kernels that a rank launches, each source once."""

from __future__ import annotations

import warnings
from typing import Any

from aotato.runtime_stub.errors import Refusal

# No optimisation that changes results: the kernels' own pragma says whether contraction is allowed
OPTIONS: tuple[str, ...] = ()


def options(device: Any) -> tuple[str, ...]:
    """What the kernels may use of this device beyond OpenCL.

    NVIDIA's instructions, and its units that multiply matrices of doubles.
    """
    import pyopencl as cl

    try:
        major = device.compute_capability_major_nv
    except (AttributeError, cl.Error):
        return OPTIONS
    return (*OPTIONS, "-DAOTATO_PTX", *(["-DAOTATO_TENSOR_F64"] if major >= 8 else []))


class Kernels:
    """Kernels by digest. Every launch takes a kernel object of its own, whose arguments stay set."""

    def __init__(self, context: Any, device: Any, bundle: Any) -> None:
        import pyopencl as cl

        self.cl, self.context, self.device, self.bundle = cl, context, device, bundle
        self.programs: dict[str, Any] = {}

    def new(self, digest: str) -> Any:
        """A new kernel object. Raises Refusal with the compiler's first line if it does not compile."""
        if digest not in self.programs:
            self.programs[digest] = self._compiled(digest)
        return self.cl.Kernel(self.programs[digest], f"aotato_{digest[:12]}")

    def _compiled(self, digest: str) -> Any:
        try:
            with warnings.catch_warnings():
                # Compilers remark on code that nobody here can change
                warnings.simplefilter("ignore", self.cl.CompilerWarning)
                program = self.cl.Program(self.context, self.bundle.kernel(digest))
                return program.build(list(options(self.device)), [self.device])
        except self.cl.RuntimeError as error:
            lines = [line.strip() for line in str(error).splitlines() if "error" in line.lower()]
            why = lines[0] if lines else str(error).splitlines()[0]
            raise Refusal(
                f"the OpenCL compiler of {self.device.name.strip()!r} refuses kernel {digest[:12]} ({why}); "
                "update the device's driver, or build for another target"
            ) from None
