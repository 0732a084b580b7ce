"""One virtual machine with a stock Debian kernel and cgroup v2, for tests of the sandbox.

The host's kernel may have its cgroup controllers in v1, and containers share it; what Debian 12
boots with by default is only there with a kernel of its own. Theory of operation:

- image.py makes, once per release of Debian and list of packages, a root file system with kernel
  and initramfs, and keeps it in the cache. It is never written to: qemu throws away what the
  machine changes. The release is the host's, or the one that OJ_RELEASE names.
- machine.py boots it with qemu. The tree to be tested comes as a tar on a second disk; a oneshot
  unit with Delegate=yes unpacks it, runs the commands one after the other and powers off. What
  they print comes back over a serial port while they run, framed by job.py.
- The tar and the console's log are files without names and qemu dies with who started it, so
  there is nothing that a killed test run could leave behind.

Without KVM everything inside is some ten times slower: tests that measure time have to be told
(OJ_SLOW=1 is set for every command).
"""

from .image import install
from .job import Ended
from .machine import run_all

__all__ = ["Ended", "install", "run_all"]
