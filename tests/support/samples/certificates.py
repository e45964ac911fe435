"""Keys with certificates that they have signed themselves, as files of PKCS#12."""

from datetime import UTC, datetime, timedelta
from functools import cache

import asn1crypto.keys
import asn1crypto.x509
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import NameOID
from pyhanko.sign.timestamps.dummy_client import DummyTimeStamper


@cache
def pkcs12_file(name: str = "Jane Doe", password: str = "", days: int = 30) -> bytes:
    """The key and the certificate of a name, which is valid for `days` from yesterday."""
    key = ec.generate_private_key(ec.SECP256R1())
    encryption = BestAvailableEncryption(password.encode()) if password else NoEncryption()
    return pkcs12.serialize_key_and_certificates(b"key", key, _certificate(key, name, days), None, encryption)


@cache
def time_authority() -> DummyTimeStamper:
    """An authority that gives timestamps."""
    key = rsa.generate_private_key(65537, 2048)
    certificate = asn1crypto.x509.Certificate.load(_certificate(key, "Clock", 30).public_bytes(Encoding.DER))
    secret = key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    return DummyTimeStamper(certificate, asn1crypto.keys.PrivateKeyInfo.load(secret))


def _certificate(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey, name: str, days: int) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    start = datetime.now(UTC) - timedelta(days=1)
    builder = x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
    return builder.not_valid_before(start).not_valid_after(start + timedelta(days=days)).sign(key, hashes.SHA256())
