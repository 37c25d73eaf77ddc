"""What the daemon may do: no more than its callers' operations need, and those it may."""
import os
import pathlib
import re
import stat
import subprocess

import pytest

from harness import REPOSITORY, USER, as_job, as_user, of_threads

one_store = pytest.mark.parametrize("store", ["tmpfs"], indirect=True)

KEPT = {"chown", "dac_override", "dac_read_search", "fowner", "fsetid", "setgid", "setuid", "linux_immutable",
        "sys_ptrace", "sys_admin", "sys_resource", "mknod", "setfcap"}
NAMES = ["chown", "dac_override", "dac_read_search", "fowner", "fsetid", "kill", "setgid", "setuid", "setpcap",
         "linux_immutable", "net_bind_service", "net_broadcast", "net_admin", "net_raw", "ipc_lock", "ipc_owner",
         "sys_module", "sys_rawio", "sys_chroot", "sys_ptrace", "sys_pacct", "sys_admin", "sys_boot", "sys_nice",
         "sys_resource", "sys_time", "sys_tty_config", "mknod", "lease", "audit_write", "audit_control", "setfcap",
         "mac_override", "mac_admin", "syslog", "wake_alarm", "block_suspend", "audit_read", "perfmon", "bpf",
         "checkpoint_restore"]
FILTERED = "2"  # the mode of seccomp


def threads(pid):
    """The status of each thread, as a dict."""
    return [dict(line.split(":\t") for line in status.splitlines() if ":\t" in line) for status in of_threads(pid, "status").values()]


def capabilities(text):
    return {name for bit, name in enumerate(NAMES) if int(text, 16) >> bit & 1}


def core_limits(pid):
    line = next(line for line in pathlib.Path(f"/proc/{pid}/limits").read_text().splitlines() if "core" in line)
    return line.split()[4:6]


def work(qos):
    """Makes readers and workers of all kinds."""
    qos.rule("start slow jobid={slow} rate=200 depth=1")
    script = f"for i in 1 2 3 4 5; do echo $i >{qos.dir}/$0-$i; cat {qos.dir}/$0-$i; rm {qos.dir}/$0-$i; done"
    for user in (0, USER):
        for job in ("slow", "quick"):
            as_job(job, "sh", "-c", script, user, user=user)


@one_store
def test_limits_of_every_thread(store, mount):
    qos = mount(store)
    work(qos)
    own = threads("self")[0]
    assert len(threads(qos.pid)) > 4
    for thread in threads(qos.pid):
        assert capabilities(thread["CapPrm"]) == KEPT & capabilities(own["CapPrm"])
        assert capabilities(thread["CapBnd"]) <= KEPT
        assert capabilities(thread["CapEff"]) <= KEPT
        assert capabilities(thread["CapInh"]) == capabilities(thread["CapAmb"]) == set()
        assert thread["NoNewPrivs"] == "1"
        assert thread["Seccomp"] == FILTERED
    assert core_limits(qos.pid) == ["1", "1"]


@one_store
def test_unconfined(store, mount):
    """For developers: nothing is given up."""
    before = core_limits("self")
    qos = mount(store, "unconfined")
    work(qos)
    own = threads("self")[0]
    for thread in threads(qos.pid):
        for name in ("CapPrm", "CapBnd", "NoNewPrivs", "Seccomp"):
            assert thread[name] == own[name]
    assert core_limits(qos.pid) == before


@one_store
def test_daemon_of_a_user(store, mount):
    """It has no capabilities, and must be able to start fusermount3, which is setuid, at its end."""
    os.chown(store.dir, USER, USER)
    qos = mount(store, user=USER)
    as_user(USER, USER, [], lambda: (qos.dir / "file").write_text("x"))
    for thread in threads(qos.pid):
        assert capabilities(thread["CapPrm"]) == set()
    assert core_limits(qos.pid) == ["1", "1"]
    qos.kill(15)
    assert qos.exit_status == 0 and "umount" not in qos.log


def outcome(*command):
    """Whether a program succeeded, and what it said but for the path."""
    done = subprocess.run([str(word) for word in command], text=True, capture_output=True)
    return done.returncode, re.sub(r"/\S*/", "", done.stdout + done.stderr)


def root_works(folder):
    """What only root may; the outcome of each attempt."""
    file, foreign = folder / "file", folder / "foreign"
    file.write_text("x")
    foreign.write_text("x")
    os.chown(foreign, USER, USER)
    outcomes = [
        outcome("chmod", "2755", foreign),
        outcome("sh", "-c", f"echo more >>{foreign}"),
        outcome("chmod", "0", foreign),
        outcome("cat", foreign),
        outcome("touch", "-d", "@1000", foreign),
        outcome("mknod", folder / "null", "c", "1", "3"),
        outcome("dd", "if=/dev/zero", f"of={folder}/null", "bs=1", "count=1", "status=none"),
        outcome("setfattr", "-n", "trusted.test", "-v", "value", file),
        outcome("getfattr", "--only-values", "-n", "trusted.test", file),
        outcome("setcap", "cap_net_raw=ep", file),
        outcome("getcap", file),
        outcome("chattr", "+i", file),
        outcome("rm", "-f", file),
        outcome("lsattr", file),
        outcome("chattr", "-i", file),
        outcome("chattr", "+a", file),
        outcome("sh", "-c", f": >{file}"),
        outcome("chattr", "-a", file),
        outcome("chown", f"{USER}:{USER}", file),
        outcome("getcap", file),
    ]
    return outcomes + [(path.name, path.stat().st_mode, path.stat().st_uid) for path in sorted(folder.iterdir())]


def test_root_may_what_it_may_on_the_store(store, mount):
    qos = mount(store)
    native, through = store.dir / "native", qos.dir / "through"
    native.mkdir()
    through.mkdir()
    expected = root_works(native)
    assert expected[0] == (0, "") and stat.S_ISGID & dict(row[:2] for row in expected[-3:])["foreign"] == 0
    assert root_works(through) == expected


def test_the_unit_has_the_same_bounds():
    unit = (REPOSITORY / "dist" / "qosfs@.service.in").read_text().replace("\\\n", "")
    line = re.search(r"^CapabilityBoundingSet=(.*)", unit, re.MULTILINE)[1]
    assert {name.lower().removeprefix("cap_") for name in line.split()} == KEPT


def test_the_unit_lets_a_mount_reach_its_lock_server():
    """By a Unix socket or over the network, both of which server= may name."""
    unit = (REPOSITORY / "dist" / "qosfs@.service.in").read_text()
    families = re.search(r"^RestrictAddressFamilies=(.*)", unit, re.MULTILINE)[1]
    assert set(families.split()) == {"AF_UNIX", "AF_INET", "AF_INET6"}
    assert not re.search(r"^(IPAddressDeny|PrivateNetwork)=", unit, re.MULTILINE)
