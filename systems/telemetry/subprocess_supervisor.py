"""Run one command as its parent and end all its remaining processes, even those in another session.

The `command_runner` starts this program, which needs only the standard library, for each run: orphans are assigned to
the nearest ancestor that asked for them (``PR_SET_CHILD_SUBREAPER``), and one parent per run separates the runs. It
holds one end of a socket to the agent, on which it reports how the command ended. When the other end closes, because
the run is over or the agent died, it kills the remaining processes and ends.
"""

import ctypes
import os
import select
import signal
import sys
import time

PR_SET_CHILD_SUBREAPER = 36
#: Seconds after which killing stops if the process tree grows faster than it is killed.
MOST_S = 5.0


def main() -> None:
    """Run ``argv[2:]``; ``argv[1]`` is the descriptor of the socket."""
    leash, command = int(sys.argv[1]), sys.argv[2:]
    os.set_inheritable(leash, False)
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    try:
        process = os.posix_spawn(command[0], command, os.environ, setsid=True, setsigdef=[signal.SIGCHLD])
    except OSError as error:
        say(leash, f"no {error.strerror or error}")
        return
    for descriptor in (0, 1, 2):  # so that the agent sees the end of the command's output
        os.close(descriptor)
    while True:
        ready, _, _ = select.select([leash, woken], [], [])
        if leash in ready:
            break
        os.read(woken, 4096)
        for pid, status in reaped():
            if pid == process:
                say(leash, f"code {os.waitstatus_to_exitcode(status)}")
    end_all()


def say(leash: int, text: str) -> None:
    try:  # noqa: SIM105 - contextlib would be one import more
        os.write(leash, f"{text}\n".encode())
    except OSError:
        pass  # the agent is gone


def reaped() -> list[tuple[int, int]]:
    found = []
    try:
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            found.append(ended)
    except ChildProcessError:
        pass
    return found


def end_all() -> None:
    """Kill children until there are none; the children of a killed child become ours."""
    until = time.monotonic() + MOST_S
    while time.monotonic() < until:
        try:
            if not os.waitpid(-1, os.WNOHANG)[0]:
                for pid in children():
                    os.kill(pid, signal.SIGKILL)
                time.sleep(0.002)
        except ChildProcessError:
            return
        except PermissionError:  # it runs as another user
            time.sleep(0.1)


def children() -> list[int]:
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208 - pathlib doubles the start
        try:
            with open(f"/proc/{name}/stat", errors="replace") as stat:  # noqa: PTH123
                parent = stat.read().rpartition(")")[2].split()[1]
        except OSError:
            continue
        if int(parent) == os.getpid():
            found.append(int(name))
    return found


if __name__ == "__main__":
    main()
