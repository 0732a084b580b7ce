"""Builds the `oj` library.

The Thrift IDL in thrift/ is the only truth about the wire format; the Python code for it is
generated, never committed: into the build tree by `build_py`, and in place by
`python3 setup.py thrift` for work in the source tree.
"""

import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import ClassVar

from setuptools import Command, find_packages, setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).parent
IDL = HERE / "thrift" / "judicator.thrift"


def read_version() -> str:
    # Not imported: the library needs packages that a build machine does not have.
    text = (HERE / "daemons" / "oj" / "__init__.py").read_text(encoding="utf-8")
    match = re.search(r'^__version__ = "([^"]+)"$', text, re.MULTILINE)
    if match is None:
        raise SystemExit('daemons/oj/__init__.py has no line __version__ = "..."')
    return match.group(1)


def generate_rpc(package_root: Path) -> None:
    """Generate oj/rpc under package_root, replacing what is there."""
    if shutil.which("thrift") is None:
        raise SystemExit("the thrift compiler is missing: apt-get install thrift-compiler")
    package = package_root / "oj"
    package.mkdir(parents=True, exist_ok=True)
    # Generated next to its place and renamed into it: a reader never sees half a package, and
    # the compiler's strays (__init__.py at the root, where it would empty ours) stay behind.
    with tempfile.TemporaryDirectory(dir=package, prefix=".rpc-") as scratch:
        subprocess.run(["thrift", "--gen", "py", "-out", scratch, str(IDL)], check=True)
        generated = Path(scratch, "oj", "rpc")
        for script in generated.glob("*-remote"):
            script.unlink()
        target = package / "rpc"
        if target.exists():
            target.rename(Path(scratch, "old"))
        generated.rename(target)


class GenerateThrift(Command):
    description = "generate daemons/oj/rpc from the IDL, in place"
    user_options: ClassVar[list] = []

    def initialize_options(self) -> None:
        pass

    def finalize_options(self) -> None:
        pass

    def run(self) -> None:
        generate_rpc(HERE / "daemons")


class BuildWithThrift(build_py):
    def run(self) -> None:
        super().run()
        generate_rpc(Path(self.build_lib))


setup(
    name="oj",
    version=read_version(),
    description="judges programs on a cluster of Debian machines",
    license="MIT",
    python_requires=">=3.11",
    package_dir={"": "daemons"},
    packages=find_packages("daemons", exclude=["oj.rpc", "oj.rpc.*"]),
    package_data={
        "oj": ["specs/*.spec", "py.typed"],
        "oj.gateway": ["static/*", "static/*/*"],
    },
    cmdclass={"thrift": GenerateThrift, "build_py": BuildWithThrift},
)
