"""Certificates and keys for servers and clients, made for a test."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import trustme


class Certificates:
    """Files of certificates, made for this test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ca, self.other = trustme.CA(), trustme.CA()
        self.roots = folder / "ca.pem"
        self.ca.cert_pem.write_to_path(str(self.roots))
        self.strangers = folder / "other.pem"
        self.other.cert_pem.write_to_path(str(self.strangers))

    def issue(
        self, name: str, *hosts: str, ca: trustme.CA | None = None, days: float = 1
    ) -> tuple[str, str]:
        expires = dt.datetime.now(dt.UTC) + dt.timedelta(days=days)
        made = (ca or self.ca).issue_cert(
            *(hosts or ("127.0.0.1", "localhost")),
            not_before=expires - dt.timedelta(days=2),
            not_after=expires,
        )
        files = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        files[0].write_bytes(b"".join(blob.bytes() for blob in made.cert_chain_pems))
        made.private_key_pem.write_to_path(str(files[1]))
        return str(files[0]), str(files[1])
