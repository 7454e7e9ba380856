"""A server that speaks as much of the Hugging Face hub's HTTP as `huggingface_hub`, `transformers` and `datasets` ask
for: what a repository is and holds, and its files. Repositories are folders: `models/OWNER/NAME`,
`datasets/OWNER/NAME`."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from aiohttp import web

COMMIT = hashlib.sha1(b"the only commit").hexdigest()
KINDS = ("models", "datasets")


class HubServer:
    """Serves a folder of repositories. `start`, `close`. asked: the path of every request."""

    def __init__(self, root: Path) -> None:
        self.asked: list[str] = []
        self.address = ""
        self._root = root
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        app = web.Application()
        for kind in KINDS:
            of_kind, files = f"/api/{kind}/{{owner}}/{{name}}", "" if kind == "models" else f"/{kind}"
            app.add_routes(
                [
                    web.get(of_kind, self._describe),
                    web.get(f"{of_kind}/revision/{{revision}}", self._describe),
                    web.get(f"{of_kind}/tree/{{revision}}", self._list),
                    web.get(f"{of_kind}/tree/{{revision}}/{{path:.+}}", self._list),
                    web.post(f"{of_kind}/paths-info/{{revision}}", self._find),
                    web.get(f"{files}/{{owner}}/{{name}}/resolve/{{revision}}/{{path:.+}}", self._give),
                ]
            )
        app.router.add_route("*", "/{rest:.*}", self._nothing)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.address = "http://{}:{}".format(*self._runner.addresses[0][:2])

    async def close(self) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    async def _describe(self, request: web.Request) -> web.Response:
        folder = self._repository(request)
        siblings = [{"rfilename": path.relative_to(folder).as_posix()} for path in _files(folder)]
        name = "{owner}/{name}".format(**request.match_info)
        return web.json_response({"id": name, "sha": COMMIT, "private": False, "tags": [], "siblings": siblings})

    async def _list(self, request: web.Request) -> web.Response:
        folder = self._repository(request)
        inside = folder / request.match_info.get("path", "")
        if not inside.is_dir():
            raise _missing("EntryNotFound")
        found = inside.rglob("*") if request.query.get("recursive", "").lower() in ("1", "true") else inside.iterdir()
        return web.json_response([_entry(folder, path) for path in sorted(found)])

    async def _find(self, request: web.Request) -> web.Response:
        folder = self._repository(request)
        asked = await request.post() if request.content_type.endswith("form-urlencoded") else await request.json()
        paths = asked.getall("paths") if hasattr(asked, "getall") else asked["paths"]
        return web.json_response([_entry(folder, folder / path) for path in paths if (folder / path).exists()])

    async def _give(self, request: web.Request) -> web.StreamResponse:
        path = self._repository(request) / request.match_info["path"]
        if not path.is_file():
            raise _missing("EntryNotFound")
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        return web.FileResponse(path, headers={"X-Repo-Commit": COMMIT, "X-Linked-ETag": f'"{digest}"'})

    async def _nothing(self, request: web.Request) -> web.Response:
        self.asked.append(request.path)
        raise _missing("RepoNotFound")

    def _repository(self, request: web.Request) -> Path:
        self.asked.append(request.path)
        kind = "datasets" if "/datasets/" in request.path else "models"
        folder = self._root / kind / request.match_info["owner"] / request.match_info["name"]
        if not folder.is_dir():
            raise _missing("RepoNotFound")
        return folder


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file())


def _entry(folder: Path, path: Path) -> dict[str, Any]:
    name = path.relative_to(folder).as_posix()
    if path.is_dir():
        return {"type": "directory", "path": name, "oid": hashlib.sha1(name.encode()).hexdigest(), "size": 0}
    return {
        "type": "file",
        "path": name,
        "oid": hashlib.sha1(path.read_bytes()).hexdigest(),
        "size": path.stat().st_size,
    }


def _missing(code: str) -> web.HTTPNotFound:
    return web.HTTPNotFound(headers={"X-Error-Code": code, "X-Repo-Commit": COMMIT})
