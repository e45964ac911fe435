"""Keys with certificates that they have signed themselves, as files of PKCS#12."""

from datetime import UTC, datetime, timedelta
from functools import cache

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, NoEncryption, pkcs12
from cryptography.x509.oid import NameOID


@cache
def pkcs12_file(name: str = "Jane Doe", password: str = "", days: int = 30) -> bytes:
    """The key and the certificate of a name, which is valid for `days` from yesterday."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    start = datetime.now(UTC) - timedelta(days=1)
    builder = x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
    certificate = builder.not_valid_before(start).not_valid_after(start + timedelta(days=days))
    encryption = BestAvailableEncryption(password.encode()) if password else NoEncryption()
    return pkcs12.serialize_key_and_certificates(b"key", key, certificate.sign(key, hashes.SHA256()), None, encryption)
