"""qosfsctl cluster ... through mounts with a lock server: what it asks where, and which users may."""
import json
import os

from harness import USER, as_job, wait_until

OK, FAILED, USAGE, NOT_FOUND = range(4)


def ctl(mount, *words, status=OK, **options):
    done = mount.ctl("cluster", *words, check=False, timeout=60, **options)
    assert done.returncode == status, done
    assert (done.stderr == "") == (status == OK), done
    return done.stdout if status == OK else done.stderr


def test_one_mount_sets_and_all_have_it(cluster):
    first, second = cluster().mounts
    assert ctl(first, "rule", "start", "big", "jobid={*}", "bps=200M", "share=hard") == ""
    assert "bps=200M scope=cluster share=hard" in ctl(second, "rule", "list")
    wait_until(lambda: "2 connected\n" in ctl(second, "status"), what="both with the rules")
    assert ctl(second, "job", "set", "4711", "nodes=3") == ""
    assert ctl(first, "job", "list").splitlines()[1].split()[:2] == ["4711", "3"]
    assert ctl(second, "rule", "stop", "big") == ""
    assert json.loads(ctl(first, "rule", "list", "--json"))["rules"] == []
    assert [line.split()[1] for line in ctl(first, "rule", "log").splitlines()] == ["VERSION", "2", "1"]


def test_a_job_is_seen_on_its_mounts(cluster):
    first, second = cluster().mounts
    ctl(first, "rule", "start", "slow", "jobid={7}", "rate=5000")
    wait_until(lambda: "without these" not in ctl(first, "status"), what="both with the rule")

    def names():
        for mount in (first, second):
            as_job("7", "touch", mount.dir / "file")
        why = json.loads(ctl(second, "why", "7", "--json"))
        return {member["mount"].split(":")[1] for item in why["classes"] for member in item["members"]}
    wait_until(lambda: names() == {str(first.dir), str(second.dir)}, what="both mounts")
    text = ctl(first, "why", "7")
    assert text.startswith("Within the 5000 op/s of rule slow over 2 mounts: this job wants "), text
    assert ctl(first, "jobs").splitlines()[1].split()[:2] == ["7", "slow"]
    assert str(second.dir)[-12:] in ctl(first, "jobs", "--mounts")


def test_refusals_have_the_words_of_the_server(cluster):
    first = cluster().mounts[0]
    assert "floor= takes a percentage" in ctl(first, "rule", "start", "a", "jobid={*}", "floor=60%", status=FAILED)
    assert 'there is no rule "nope"' in ctl(first, "rule", "stop", "nope", status=NOT_FOUND)
    assert "no mount nope is known" in ctl(first, "forget", "nope", status=NOT_FOUND)


def test_other_users_look_and_do_not_change(cluster):
    both = cluster()
    both.server.expects_log("may not change the rules of the cluster, and was refused")
    first = both.mounts[0]
    os.chmod(first.dir, 0o777)
    assert ctl(first, "status", user=USER).startswith("rules     0, version 0 ")
    assert "permission denied: the rules of the cluster are changed by root" in ctl(first, "rule", "start", "a", "jobid={*}", user=USER, status=FAILED)
    os.chmod(first.dir, 0o755)
    assert "you may not write to that directory" in ctl(first, "rule", "start", "a", "jobid={*}", user=USER, status=FAILED)


def test_a_mount_without_a_server_says_so(new_store, mount):
    alone = mount(new_store("tmpfs"))
    for words in (("status",), ("rule", "start", "a", "jobid={*}")):
        assert "this mount has no lock server" in ctl(alone, *words, status=FAILED)
