"""A fresh HF_HOME for the program, before a hub of the test's own (hub_server.py). Use as a context."""
import os
import shutil
import tempfile


class HubHome:
    def __init__(self, hub):
        self.hub = hub

    def __enter__(self):
        self.dir = tempfile.mkdtemp(prefix="hub-home-")
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.dir, ignore_errors=True)

    def environment(self, env=None):
        """What the program is given: nothing of the caller's that says where models are or how to get them."""
        kept = {k: v for k, v in os.environ.items()
                if not k.startswith(("HF_", "MEGADECODE_", "XDG_")) and not k.lower().endswith("_proxy")}
        return kept | {"HF_HOME": self.dir, "HF_ENDPOINT": self.hub.url} | (env or {})

    def path(self, repo, *parts):
        """Of a repository's folder in the cache."""
        return os.path.join(self.dir, "hub", "models--" + repo.replace("/", "--"), *parts)
