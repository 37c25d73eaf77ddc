"""A headless Chromium, driven through a pipe (the DevTools protocol): for pages that people look at."""
import base64
import contextlib
import fcntl
import itertools
import json
import os
import pathlib
import select
import shutil
import subprocess
import tempfile

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
TIMEOUT = 120  # seconds that an answer may take on a slow machine


class Page:
    """A page that was opened. `complaints`: errors and warnings of its console so far."""

    def __init__(self, commands, answers):
        self._commands, self._answers = commands, answers
        self._buffer = b""
        self._numbers = itertools.count(1)
        self._session = None
        self._loaded = False
        self.complaints = []
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")
        self.requests = []

    def open(self, path, width=1200, height=1600, dark=False, media=""):
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self._call("Emulation.setEmulatedMedia", media=media,
                   features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self._loaded = False
        self._call("Page.navigate", url=pathlib.Path(path).as_uri())
        while not self._loaded:
            self._take(self._read())

    def run(self, expression):
        """The value of a JavaScript expression in the page."""
        answer = self._call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def screenshot(self, path):
        picture = self._call("Page.captureScreenshot")
        pathlib.Path(path).write_bytes(base64.b64decode(picture["data"]))

    def _call(self, method, **parameters):
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return answer["result"]
            self._take(answer)

    def _read(self):
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._answers], [], [], TIMEOUT)
            assert ready, "the browser does not answer"
            data = os.read(self._answers, 1 << 16)
            assert data, "the browser is gone"
            self._buffer += data
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def _take(self, event):
        method, parameters = event.get("method"), event.get("params", {})
        if method == "Page.loadEventFired":
            self._loaded = True
        elif method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
        elif method in ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled",
                        "Page.javascriptDialogOpening"):
            self.complaints.append(parameters)


def _pipes():
    """Two pipes, without an end at a descriptor that the browser expects to be another's: 3 or 4."""
    pipes = [*os.pipe(), *os.pipe()]
    high = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in pipes]
    for end in pipes:
        os.close(end)
    return high


@contextlib.contextmanager
def browser():
    """`with browser() as page:` a browser of its own, gone with the block."""
    assert CHROMIUM, "there is no Chromium: dist/setup --tests installs it"
    command_out, command_in, answer_out, answer_in = _pipes()

    def place():
        os.dup2(command_out, 3)
        os.dup2(answer_in, 4)

    with tempfile.TemporaryDirectory(prefix="qosfs-browser-", ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             "--disable-background-networking", "--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank"],
            preexec_fn=place, pass_fds=(3, 4), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, env={"PATH": os.environ["PATH"], "HOME": profile})
        os.close(command_out)
        os.close(answer_in)
        try:
            yield Page(command_in, answer_out)
        finally:
            process.terminate()
            process.wait(30)
            os.close(command_in)
            os.close(answer_out)
