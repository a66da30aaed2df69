"""Objects in a bucket: S3 and what speaks like it, Google Cloud Storage, Azure; obstore behind a small face.

In: an address such as `s3://bucket/project`. Out: objects listed, read, created and removed. Credentials, region and
endpoint come from the environment, under the names of each provider's own tools (AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL,
GOOGLE_APPLICATION_CREDENTIALS, AZURE_STORAGE_ACCOUNT_NAME); none is kept, and no message quotes a server's answer.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from flywheel.errors import BucketError, ExtensionError

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_URL = re.compile(r"(s3|gs|az):/+([^/]+)/*(.*)", re.DOTALL)  # one slash where it was taken for a path
_RETRIES: Any = {"max_retries": 5, "retry_timeout": timedelta(seconds=60)}
_CODE = re.compile(r"<Code>(\w{3,60})</Code>")
_SETTINGS = ("AWS_", "GOOGLE_", "AZURE_")
_MARK = "writer"
_PERMISSION = "check the credentials in the environment, and what they may do there"
_REACH = "check the network, and the endpoint and region in the environment (AWS_ENDPOINT_URL, AWS_REGION and the like)"


class Address(NamedTuple):
    """Where objects are: `s3`, a bucket's name, the name or the beginning of the names of objects."""

    scheme: str
    bucket: str
    key: str

    @property
    def url(self) -> str:
        """The address as one writes it."""
        return f"{self.scheme}://{self.bucket}/{self.key}".rstrip("/")


class Object(NamedTuple):
    """What is known of an object without reading it; its tag changes with its content."""

    key: str
    size: int
    etag: str
    modified: datetime


def address(text: str) -> Address | None:
    """Return the address that a text is; None where it is a path."""
    parts = _URL.fullmatch(text)
    return Address(*parts.groups()) if parts else None


@cache
def _connected(scheme: str, bucket: str, settings: int) -> ObjectStore:  # noqa: ARG001 - a key of the cache
    """Return a client, which sends nothing before its first request.

    Args:
        scheme: which provider's.
        bucket: its name.
        settings: a hash of the environment that the client reads; with another one it is another client.
    """
    try:
        from obstore.store import from_url
    except ImportError:
        raise ExtensionError(f"`{scheme}://{bucket}` needs obstore", hint="pip install 'flywheel-rl[bucket]'") from None
    with _asking(Address(scheme, bucket, "")):
        return from_url(f"{scheme}://{bucket}", retry_config=_RETRIES)


@contextmanager
def _asking(where: Address) -> Iterator[None]:
    """Turn a refusal into an error with a hint; of the server's answer only its code is shown."""
    from obstore import exceptions

    try:
        yield
    except (exceptions.NotFoundError, FileNotFoundError):
        raise FileNotFoundError(errno.ENOENT, "no such object", where.url) from None
    except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError, PermissionError) as error:
        raise BucketError(f"`{where.url}` is refused{_code(error)}", hint=_PERMISSION) from None
    except (exceptions.AlreadyExistsError, exceptions.PreconditionError, FileExistsError):
        raise FileExistsError(errno.EEXIST, "it is there already", where.url) from None
    except exceptions.InvalidPathError:
        problem = f"`{where.url}` is not a name that an object can have"
        raise BucketError(problem, hint="no part of it may be empty, or dots") from None
    except (exceptions.BaseError, ValueError, OSError) as error:
        problem = f"`{where.url}` cannot be used: {type(error).__name__}{_code(error)}"
        raise BucketError(problem, hint=_REACH) from None


def _code(error: BaseException) -> str:
    found = _CODE.search(str(error))
    return f" ({found[1]})" if found else ""


@dataclass(frozen=True)
class Bucket:
    """The objects of one bucket, by their whole names."""

    address: Address

    @property
    def _client(self) -> ObjectStore:
        settings = frozenset((name, os.environ[name]) for name in os.environ if name.startswith(_SETTINGS))
        return _connected(self.address.scheme, self.address.bucket, hash(settings))

    def at(self, key: str) -> Address:
        """Return the address of an object, by its whole name in the bucket."""
        return self.address._replace(key=key)

    def below(self, key: str) -> list[Object]:
        """Return the objects in a folder of the bucket, by name; `` is all of it.

        Raises:
            BucketError: the bucket cannot be reached, or refuses.
        """
        import obstore

        with _asking(self.at(key)):
            objects = [_object(meta) for batch in obstore.list(self._client, key or None) for meta in batch]
        return sorted(objects)

    def find(self, key: str) -> Object | None:
        """Return an object, or None where there is none."""
        import obstore

        try:
            with _asking(self.at(key)):
                return _object(obstore.head(self._client, key))
        except FileNotFoundError:
            return None

    def read(self, key: str) -> bytes:
        """Return an object's bytes.

        Raises:
            FileNotFoundError: there is none.
        """
        import obstore

        with _asking(self.at(key)):
            return bytes(obstore.get(self._client, key).bytes())

    def pieces(self, key: str, start: int, etag: str, end: int | None = None) -> Iterator[bytes]:
        """Yield an object's bytes from an offset on, in pieces of about a megabyte; up to `end`, if it is given.

        Raises:
            BucketError: it is another object than the one of this tag; or the connection fails.
            FileNotFoundError: there is none.
        """
        import obstore

        with _asking(self.at(key)):
            asked: Any = {"offset": start} if end is None else (start, end)
            answer = obstore.get(self._client, key, options={"range": asked})
            if (answer.meta["e_tag"] or "") != etag:
                changed = f"`{self.at(key).url}` was changed while it was read"
                raise BucketError(changed, hint="nothing was stored; type the command again")
            for piece in answer.stream(min_chunk_size=1 << 20):
                yield bytes(piece)

    def put(self, key: str, content: bytes | memoryview | Path) -> None:
        """Write an object, a file's bytes for example, in place of what is there."""
        import obstore

        with _asking(self.at(key)):
            obstore.put(self._client, key, content if isinstance(content, Path) else bytes(content))

    def create(self, key: str, content: bytes) -> bool:
        """Create an object in one request; return whether this call did, because there was none.

        The client sends a request again whose answer was lost, and may then find what it has itself created: so each
        call marks its object.
        """
        import obstore

        mark = secrets.token_hex(16)
        try:
            with _asking(self.at(key)):
                obstore.put(self._client, key, content, mode="create", use_multipart=False, attributes={_MARK: mark})
        except FileExistsError:
            with _asking(self.at(key)):
                return bool(obstore.get(self._client, key).attributes.get(_MARK) == mark)
        return True

    def remove(self, keys: Sequence[str]) -> None:
        """Remove objects; one that is gone is not an error."""
        import obstore

        try:
            with _asking(self.address):
                obstore.delete(self._client, keys)
        except FileNotFoundError:  # of a server that minds, and may have stopped there
            for key in keys:
                with suppress(FileNotFoundError), _asking(self.at(key)):
                    obstore.delete(self._client, key)


def _object(meta: Any) -> Object:
    return Object(meta["path"], meta["size"], meta["e_tag"] or "", meta["last_modified"])
