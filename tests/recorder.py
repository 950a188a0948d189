"""A driver for a GPU that is not there: Triton's own launch path runs as far as the GPU, and what would go there is kept."""

from contextlib import contextmanager
from dataclasses import dataclass, field

import triton
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

STREAM = 77


@dataclass
class Recorder:
    """Stand in for a driver: ``launches`` are (grid, stream, function, hooks, arguments), ``loaded`` the binaries' names."""

    launches: list = field(default_factory=list)
    loaded: list = field(default_factory=list)
    recording: bool = True

    @property
    def utils(self):
        """Triton asks it for what handles binaries."""
        return self

    def get_current_device(self):
        """One device."""
        return 0

    def get_current_stream(self, device):
        """One stream."""
        return STREAM

    def get_current_target(self):
        """An H100 or H200."""
        return GPUTarget("cuda", 90, 32)

    def get_device_properties(self, device):
        """What Triton looks at before it loads a binary."""
        return {"max_shared_mem": 232448}

    def load_binary(self, name, binary, shared, device):
        """Module, function, registers, spills and threads."""
        self.loaded.append(name)
        return len(self.loaded), (name, len(self.loaded)), 32, 0, 1024

    def unload_module(self, module):
        """Nothing was loaded."""

    def launcher_cls(self, source, metadata):
        """Make what Triton calls with everything that a launch needs."""

        def launch(x, y, z, stream, function, packed, launch_metadata, enter, leave, *arguments):
            if self.recording:
                self.launches.append(((x, y, z), stream, function, (enter, leave), arguments))

        return launch


@contextmanager
def recorder():
    """Let launches go to a recorder; binaries of this process are loaded anew."""
    found, before = Recorder(), driver._active
    driver.set_active(found)
    try:
        yield found
    finally:
        driver._active = before


def forget(*kernels: triton.JITFunction) -> None:
    """Let kernels be compiled anew, as in a new process."""
    for kernel in kernels:
        kernel.device_caches.clear()
