"""Ends tests that hang."""
import contextlib
import threading
import time


@contextlib.contextmanager
def watchdog(mounts, timeout, idle=60, most=10):
    """A test that hangs in a system call can only be helped from outside. When the block has taken so many seconds and no daemon
    has had the CPU for `idle` of them, or `most` times as many whatever they do, these are killed. More mounts may come meanwhile."""
    end = threading.Event()

    def watch():
        begun = changed = time.monotonic()
        before = None
        while not end.wait(min(1, idle / 4)):
            times = [mount.cpu_time() for mount in list(mounts)]
            now = time.monotonic()
            if times != before:
                before, changed = times, now
            if now - begun > timeout and now - changed > idle or now - begun > most * timeout:
                for mount in list(mounts):
                    mount.abort()
                return
    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()
