"""Two self-signed certificates for tests, valid for a hundred years; nothing else trusts them.

BROKER names the host `broker` and 127.0.0.1, STRANGER the host `stranger` and 127.0.0.1. The
password of BROKER_LOCKED_KEY is `secret`.
"""

BROKER = """\
-----BEGIN CERTIFICATE-----
MIIBoTCCAUigAwIBAgIUcptMz3+BZ5k2Gi1bem7K/jHT098wCgYIKoZIzj0EAwIw
ETEPMA0GA1UEAwwGYnJva2VyMCAXDTI2MTEyMTE4MTgzOFoYDzIxMjYxMDI4MTgx
ODM4WjARMQ8wDQYDVQQDDAZicm9rZXIwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNC
AAQllt8EUDMuWy/VUYk8W/6KK/HtTF9yjpS7ofraLmyICPnuCv1et5l04vylzBg1
OhY+jBypM1LnHkJznqIrN+Zzo3wwejAdBgNVHQ4EFgQUcakjUjM6/Q4Yu8CC8eKN
slZJcp4wHwYDVR0jBBgwFoAUcakjUjM6/Q4Yu8CC8eKNslZJcp4wDwYDVR0TAQH/
BAUwAwEB/zAXBgNVHREEEDAOggZicm9rZXKHBH8AAAEwDgYDVR0PAQH/BAQDAgKE
MAoGCCqGSM49BAMCA0cAMEQCIGZhyzTusZOwKZPVYZgPki06E3e1FEdAt5HEmSKd
YxOqAiBI/jvG9pIR5fmHRP3VLFH5qoe8srS0o3ymGaoL9kVilw==
-----END CERTIFICATE-----
"""

BROKER_KEY = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgYvoTnfQmRCoFMO55
7B4FQJY9Hw+96zhhF7O4JxzZBdKhRANCAAQllt8EUDMuWy/VUYk8W/6KK/HtTF9y
jpS7ofraLmyICPnuCv1et5l04vylzBg1OhY+jBypM1LnHkJznqIrN+Zz
-----END PRIVATE KEY-----
"""

BROKER_LOCKED_KEY = """\
-----BEGIN EC PRIVATE KEY-----
Proc-Type: 4,ENCRYPTED
DEK-Info: AES-256-CBC,B08B5F052B057A3416D67787120D3977

3ag/SqLTBIXPoD7tH8eWr/7TFbsMM8Gs0qACaagcvZnSJk7Rq1JYYJNkTNVvIQmR
eoMFWSpEZhpYHQNHXvaFMbtYT62o//sbFOaSdefcG0oMkP38hV+Ud2SYl3W2FcLc
HnekWx85rT9GHxrp0MPDpZfSNMlqDRKhxu5rNM0RIFc=
-----END EC PRIVATE KEY-----
"""

STRANGER = """\
-----BEGIN CERTIFICATE-----
MIIBqDCCAU6gAwIBAgIUcGfANXbenN1VA3icpnNOLA4nDY4wCgYIKoZIzj0EAwIw
EzERMA8GA1UEAwwIc3RyYW5nZXIwIBcNMjYxMTIxMTgxODM4WhgPMjEyNjEwMjgx
ODE4MzhaMBMxETAPBgNVBAMMCHN0cmFuZ2VyMFkwEwYHKoZIzj0CAQYIKoZIzj0D
AQcDQgAESM6zB0KGnH94xuYrlPpH28VqzG0ueeUY+IKC8l/ZNiuU6346jmUnt6st
TfGvbsv6k2hL0WWjpaKA8Fht+a9P+aN+MHwwHQYDVR0OBBYEFOPd7XJlM/t6XfTv
CQRH9ThcmdOVMB8GA1UdIwQYMBaAFOPd7XJlM/t6XfTvCQRH9ThcmdOVMA8GA1Ud
EwEB/wQFMAMBAf8wGQYDVR0RBBIwEIIIc3RyYW5nZXKHBH8AAAEwDgYDVR0PAQH/
BAQDAgKEMAoGCCqGSM49BAMCA0gAMEUCIQDOBVSZCIrjKQRKJfJ7FQrlhA49qudY
jVC1ZZ9DYZVkgAIgCBFuTNpApDWv2+GuRMpfSnA4WGSnF9LhZ9CXs6UYppk=
-----END CERTIFICATE-----
"""

STRANGER_KEY = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg7w1ooiix+I7uQHSy
w16Q7upLFJDvq06H36BzpxEN5YChRANCAARIzrMHQoacf3jG5iuU+kfbxWrMbS55
5Rj4goLyX9k2K5TrfjqOZSe3qy1N8a9uy/qTaEvRZaOlooDwWG35r0/5
-----END PRIVATE KEY-----
"""


def pkcs12(password: str, *, iterations: int = 10_000, has_key: bool = True) -> bytes:
    """A PKCS12 keystore with BROKER and its key, or a truststore with BROKER; made anew.

    Raises:
        ImportError: the package cryptography is not installed.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.serialization import pkcs12 as format_

    certificate = x509.load_pem_x509_certificate(BROKER.encode())
    key = serialization.load_pem_private_key(BROKER_KEY.encode(), None)
    assert isinstance(key, EllipticCurvePrivateKey)
    builder = serialization.PrivateFormat.PKCS12.encryption_builder().kdf_rounds(iterations)
    encryption = builder.build(password.encode())
    if not has_key:
        return format_.serialize_key_and_certificates(None, None, None, [certificate], encryption)
    return format_.serialize_key_and_certificates(b"broker", key, certificate, None, encryption)
