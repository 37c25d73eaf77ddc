"""A store that is as NFS (like_nfs.c): it keeps what is removed under another name as long as the machine has it open."""
import os

import pytest

import harness


@pytest.fixture
def nfs(store, mount, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setitem(harness.SANITIZERS, "LD_PRELOAD", harness.preload("like-nfs"))
        return mount(store)


@pytest.mark.parametrize("store", ["ext4"], indirect=True)
def test_what_is_removed_is_gone(store, nfs):
    """Also what the daemon knows: so a folder that was emptied can be removed."""
    (store.dir / "folder").mkdir()
    for name in "old", "new", "link":
        (store.dir / "folder" / name).write_text(name)
    folder = nfs.dir / "folder"
    os.link(folder / "link", folder / "other")
    assert {os.stat(folder / name).st_nlink for name in os.listdir(folder)} == {1, 2}
    os.rename(folder / "new", folder / "old")
    os.unlink(folder / "link")
    assert sorted(os.listdir(store.dir / "folder")) == ["old", "other"]
    assert [os.stat(folder / name).st_nlink for name in ("old", "other")] == [1, 1]
    harness.run("rm", "-r", folder)
    assert "folder" not in os.listdir(store.dir)


@pytest.mark.parametrize("store", ["ext4"], indirect=True)
def test_what_is_open_stays(store, nfs):
    with open(nfs.dir / "file", "w+") as file:
        file.write("text")
        file.flush()
        os.unlink(nfs.dir / "file")
        assert not (nfs.dir / "file").exists()
        file.seek(0)
        assert file.read() == "text"
        assert ".nfs" in {name[:4] for name in os.listdir(store.dir)}
