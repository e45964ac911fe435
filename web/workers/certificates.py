"""The files by which processes of a cluster authenticate each other by TLS: an authority, and a certificate each."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes

ROLES = ("scheduler", "server", "worker")
_AUTHORITY = "authority"
_CERTIFICATE = "certificate.pem"
_KEY = "key.pem"
_CA = "ca.pem"
_ACCEPT_CONNECTIONS = ("scheduler", "worker")
_ONE_DAY = timedelta(days=1)  # clocks differ


def create_certificates(folder: Path, days: int) -> list[Path]:
    """Creates the folders `scheduler`, `server` and `worker`, each with what its machine needs, and `authority`.

    Each of the three has `ca.pem`, `certificate.pem` and `key.pem`. Certificates are valid for some days. Folders that
    exist are kept, so that a certificate is renewed by deleting its folder. Returns the folders that were created.
    Raises OSError, and ValueError if the files of the authority cannot be read.
    """
    missing = [role for role in ROLES if not (folder / role).exists()]
    created = []
    if not (folder / _AUTHORITY).exists():
        if len(missing) < len(ROLES):
            raise FileNotFoundError(f"{folder / _AUTHORITY} is missing, with which the other folders were created")
        key = ec.generate_private_key(ec.SECP256R1())
        _write(folder / _AUTHORITY, key, _authority(key, days), None)
        created.append(folder / _AUTHORITY)
    certificate = x509.load_pem_x509_certificate((folder / _AUTHORITY / _CERTIFICATE).read_bytes())
    authority_key = serialization.load_pem_private_key((folder / _AUTHORITY / _KEY).read_bytes(), None)
    if not isinstance(authority_key, ec.EllipticCurvePrivateKey):
        raise ValueError(f"{folder / _AUTHORITY / _KEY} is not a key of this command")
    for role in missing:
        key = ec.generate_private_key(ec.SECP256R1())
        _write(folder / role, key, _certificate(role, key, certificate, authority_key, days), certificate)
        created.append(folder / role)
    return created


def _authority(key: ec.EllipticCurvePrivateKey, days: int) -> x509.Certificate:
    name = _name("authority")
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
    builder = _builder(name, key.public_key(), days).issuer_name(name)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    return builder.add_extension(usage, critical=True).sign(key, hashes.SHA256())


def _certificate(
    role: str,
    key: ec.EllipticCurvePrivateKey,
    authority: x509.Certificate,
    authority_key: ec.EllipticCurvePrivateKey,
    days: int,
) -> x509.Certificate:
    purposes = [ExtendedKeyUsageOID.CLIENT_AUTH]
    if role in _ACCEPT_CONNECTIONS:
        purposes.append(ExtendedKeyUsageOID.SERVER_AUTH)
    issuer = authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    identifier = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer)
    builder = _builder(_name(role), key.public_key(), days).issuer_name(authority.subject)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(identifier, critical=False)
    return builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=True).sign(authority_key, hashes.SHA256())


def _builder(name: x509.Name, key: CertificatePublicKeyTypes, days: int) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(name).public_key(key)
    builder = builder.serial_number(x509.random_serial_number())
    return builder.not_valid_before(now - _ONE_DAY).not_valid_after(now + timedelta(days=days))


def _name(role: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"convertd cluster {role}")])


def _write(
    folder: Path, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate, authority: x509.Certificate | None
) -> None:
    pem = serialization.Encoding.PEM
    text = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    folder.mkdir(mode=0o700, parents=True)
    (folder / _KEY).touch(mode=0o600)
    (folder / _KEY).write_bytes(text)
    (folder / _CERTIFICATE).write_bytes(certificate.public_bytes(pem))
    if authority is not None:
        (folder / _CA).write_bytes(authority.public_bytes(pem))
