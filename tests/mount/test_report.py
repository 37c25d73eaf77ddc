"""qosfsctl report: as CSV, as a page that a browser draws, and what is refused."""
import csv
import io
import json
import math
import os
import re
import sqlite3
import subprocess
import time

import pytest

from browser import browser
from harness import USER, Store, as_user, running

OK, FAILED, USAGE, NOT_FOUND = range(4)
HOSTILE = ["</script><img src=x onerror=alert(1)>", "\"'><svg onload=alert(2)>", "${alert(3)}<!--", "=1+1", "e\u0301t\u00e9"]


def fill(database, jobs=200):
    """A day of so many jobs, and the hostile ones, an hour ago and before."""
    now = int(time.time()) // 300 * 300
    rows = []
    for number in range(jobs):
        for begin in range(now - 20 * 3600 + number * 60 // 300 * 300, now - 2 * 3600, 900):
            wave = 2 + math.sin((begin - now) / 5000 + number)
            shared = int(1e6 * number * wave)
            rows.append((300, begin, f"job.{number}".encode(), int(300 * wave * number), int(1e6 * wave * number), int(9e8 * wave),
                         number, int(1e10 * wave), shared * (number % 2), 0, shared * (1 - number % 2), 0))
    rows += [(300, now - 7200, name.encode(), 5, 4096, 0, 0, 0, 0, 0, 0, 0) for name in HOSTILE]
    rows.append((300, now - 7200, b"", 77, 0, 0, 0, 0, 0, 0, 0, 0))
    with sqlite3.connect(database) as connection:
        connection.executemany(f"INSERT INTO history VALUES ({', '.join('?' * 12)})", rows)
    connection.close()


@pytest.fixture(scope="module")
def filled(world, mounter):
    """A mount with the history of many jobs, of all these tests; they only read."""
    store = Store(world.store("tmpfs"), "tmpfs")
    with mounter(600) as mount:
        first = mount(store)
        first.unmount()
        fill(first.db)
        yield mount(store, f"db={first.db}")


@pytest.fixture
def qos(new_store, mount):
    return mount(new_store("tmpfs"))


def rows(text):
    return list(csv.DictReader(io.StringIO(text), strict=True))


def embedded(page):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[1])


# --- the command ---

def test_csv(filled):
    whole = filled.ctl("report", "--csv")
    long_ago = [line for line in whole.splitlines() if ",10," not in line]
    assert long_ago == [line for line in filled.report("history").splitlines() if ",10," not in line]
    assert {row["job"] for row in rows(whole)} > {"", *(f"job.{number}" for number in range(200))}
    two = rows(filled.ctl("report", "--csv", "--job", "job.7", "-J", HOSTILE[0], "--since=1d"))
    assert {row["job"] for row in two} == {"job.7", r"\x3C/script\x3E\x3Cimg\x20src\x3Dx\x20onerror\x3Dalert\x281\x29\x3E"}
    recent = rows(filled.ctl("report", "--csv", "--since=3h"))
    assert 0 < len(recent) < len(rows(whole))
    assert all(int(row["time"]) + int(row["seconds"]) > time.time() - 3 * 3600 - 60 for row in recent)
    assert "job.7" not in {row["job"] for row in rows(filled.ctl("report", "--csv", "--since=1h"))}


def test_page_is_of_one_piece(filled, tmp_path):
    filled.ctl("report", "-o", tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert filled.ctl("report").startswith("<!DOCTYPE html>") and len(page) < 2 << 20
    data = embedded(page)
    assert data["mountpoint"] == str(filled.dir) and data["source"] == str(filled.store.dir)
    assert (data["step"], data["count"]) == (300, pytest.approx(20 * 3600 / 300, abs=4))  # no more than there is
    for beyond in "1d", "7d":  # of what there was no history, nothing is drawn
        page_beyond = embedded(filled.ctl("report", f"--since={beyond}"))
        assert (page_beyond["step"], page_beyond["count"]) == (300, pytest.approx(data["count"], abs=1))
    part = embedded(filled.ctl("report", "--since=5h"))
    assert (part["step"], part["count"]) == (300, pytest.approx(5 * 3600 / 300, abs=2))
    assert {job["id"] for job in data["jobs"]} > {*HOSTILE, None, *(f"job.{number}" for number in range(200))}
    assert page.count("<script") == 2 and "<img" not in page and "http" not in page.replace("http-equiv", "").replace(
        "http://www.w3.org/2000/svg", "")
    job = next(job for job in data["jobs"] if job["id"] == "job.7")
    in_csv = rows(filled.ctl("report", "--csv", "--job", "job.7"))
    for series in ("operations", "read_bytes", "write_bytes", "waits", "waited_us", "lent"):
        assert sum(job[series]) == pytest.approx(sum(float(row[series]) for row in in_csv))


@pytest.mark.parametrize("arguments, status, words", [
    (("--since=yesterday",), USAGE, "yesterday"),
    (("--since=5",), USAGE, "between a minute and 90 days"),
    (("--since=1000d",), USAGE, "between a minute and 90 days"),
    (("--since=-1h",), USAGE, "-1h"),
    (("--sinc=1h",), USAGE, "--sinc"),
    (("--job",), USAGE, "--job"),
    (("--job", "job77"), NOT_FOUND, "did you mean 'job.7' or 'job.77'?"),
    (("--job", "job.7", "--since=1h"), NOT_FOUND, "job.7"),
    (("--json",), USAGE, "--json"),
    (("today",), USAGE, "today"),
    (("-o", "/proc/none/report.html"), FAILED, "/proc/none/report.html: No such file"),
    (("-m", "/"), NOT_FOUND, "not on a qosfs mount"),
])
def test_mistakes(filled, arguments, status, words):
    done = filled.ctl("report", *arguments, check=False)
    assert (done.returncode, done.stdout) == (status, "") and words in done.stderr


def test_what_is_no_file_keeps_its_place(filled, tmp_path):
    """As /dev/null and /dev/stdout."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with open(tmp_path / "copy", "wb") as copy, running(subprocess.Popen(["cat", pipe], stdout=copy)) as reader:
        filled.ctl("report", "--csv", "-o", pipe, timeout=60)
        assert reader.wait(60) == 0
    assert pipe.is_fifo() and (tmp_path / "copy").read_text().startswith("time,")
    full = tmp_path / "full"
    full.symlink_to("/dev/full")
    done = filled.ctl("report", "--csv", "-o", full, check=False)
    assert done.returncode == 1 and f"cannot write the report: {full}: No space left" in done.stderr
    assert full.is_symlink()


def test_ordinary_user(filled, tmp_path):
    """What the other reports show such a user, this one does too."""
    text = as_user(USER, USER, [], lambda: filled.ctl("report", "--csv", "--job=job.7"))
    assert rows(text)[0]["job"] == "job.7"


# --- the page, in a browser ---

def filter_jobs(page, text):
    page.run(f"(() => {{ const box = document.getElementById('filter'); box.value = {json.dumps(text)}; "
             "box.dispatchEvent(new Event('input')); })()")
    return page.run("[...document.querySelectorAll('tr.job button')].map(button => button.textContent)")


@pytest.mark.parametrize("words, column", [((), "Written"), (("--job", HOSTILE[0]), "Read")])
def test_most_of_what_comes_first(filled, tmp_path, words, column):
    """The table begins in the order of what there is more of, not of a column of zeros."""
    path = tmp_path / "report.html"
    filled.ctl("report", "-o", path, *words)
    with browser() as page:
        page.open(path)
        assert page.run("document.querySelector('th[aria-sort=descending]').textContent") == column


def test_page_in_a_browser(filled, tmp_path):
    path = tmp_path / "report.html"
    filled.ctl("report", "-o", path)
    with browser() as page:
        page.open(path)
        assert str(filled.dir) in page.run("document.title")
        assert page.run("document.querySelectorAll('#overview path').length") == 11  # ten jobs and the others
        assert " MiB/s" in page.run("document.querySelector('#overview svg').textContent")
        names = page.run("[...document.querySelectorAll('tr.job button')].map(button => button.textContent)")
        assert {*HOSTILE, "(others)", *(f"job.{number}" for number in range(200))} < set(names)

        # Sorting by a column, and the other way round.
        head = "document.querySelectorAll('thead button')"
        page.run(f"{head}[0].click()")
        assert filter_jobs(page, "JOB.19") == ["job.19", *(f"job.{number}" for number in range(190, 200))]
        page.run(f"{head}[0].click()")
        assert filter_jobs(page, "job.19")[0] == "job.199"
        assert page.run("document.getElementById('shown').textContent") == f"11 of {len(names)} jobs"
        assert filter_jobs(page, "<img") == [HOSTILE[0]]
        assert filter_jobs(page, "no such job") == []

        # A job opens, and closes.
        filter_jobs(page, "job.19")
        page.run("document.querySelector('tr.job button').click()")
        titles = page.run("[...document.querySelectorAll('tr.details h2')].map(title => title.textContent)")
        assert titles == ["Bandwidth", "Operations", "Requests that wait, on average", "Lent (above) and borrowed (below)"]
        assert page.run("[...document.querySelectorAll('tr.details svg')].every(chart => chart.clientHeight > 50)")
        page.run("document.querySelector('tr.job button').click()")
        assert page.run("document.querySelectorAll('tr.details').length") == 0

        page.run("document.querySelector('input[value=waiting]').click()")
        assert "wait" in page.run("document.querySelector('#overview h2').textContent")

        # On a telephone the words of the figures can be read, and the page does not move sideways.
        page.open(path, width=390)
        page.run("document.querySelector('tr.job button').click()")
        scales = page.run("[...document.querySelectorAll('figure > svg')].map(svg => svg.clientWidth / svg.viewBox.baseVal.width)")
        assert len(scales) == 5 and min(scales) > 0.9
        assert page.run("document.documentElement.scrollWidth") <= 390

        # A sheet of A4 or Letter has all columns, and is white whatever the screen is.
        page.open(path, width=717, dark=True, media="print")
        assert page.run("(box => box.scrollWidth - box.clientWidth)(document.querySelector('.scroll'))") == 0
        assert page.run("getComputedStyle(document.querySelector('.scroll')).overflowX") == "visible"  # else the head is not repeated
        assert page.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert page.run("document.querySelectorAll('img, main script, main svg svg, [onload], [onerror]').length") == 0
        assert set(page.requests) == {path.as_uri()} and page.complaints == []


def test_empty_page_in_a_browser(qos, tmp_path):
    path = tmp_path / "report.html"
    qos.ctl("report", "--since=1h", "-o", path)
    data = embedded(path.read_text())
    assert data["count"] * data["step"] == pytest.approx(3600, abs=20)  # of which it says that nothing was done
    with browser() as page:
        page.open(path, dark=True)
        assert page.run("document.querySelector('main').textContent") == "No job did anything in this time."
        assert page.complaints == []
