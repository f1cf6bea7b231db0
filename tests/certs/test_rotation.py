"""Renewal in time and in order: whatever is served is trusted at every moment."""

import ssl
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from certs.authority import BACKDATED, KeyPair, make_authority, make_serving, names_of, service_names, signed_by
from certs.bundle import Bundle, BundleError, parse
from certs.rotation import SETTLE, CertificateSettings, renew_authority, renew_serving
from tests.certs.handshake import SERVER_NAME, server_context, shake_hands
from tests.policy.builders import table

NAMES = (*service_names("giveway", "giveway-system"), "10.0.0.7", "fd00::7", "webhook.example.com")
SETTINGS = CertificateSettings(NAMES)
DAY = timedelta(days=1)
NOW = datetime.now(UTC).replace(microsecond=0)


def step(bundle, now, settings=SETTINGS):
    """What is done once a minute."""
    return renew_serving(renew_authority(bundle, settings, now), settings, now)


def verify(serving, trust, now):
    """Verify a certificate at a moment, as a client would."""
    verifier = PolicyBuilder().store(Store(list(trust))).time(now).build_server_verifier(x509.DNSName(SERVER_NAME))
    verifier.verify(serving, [])


@pytest.mark.parametrize("name", NAMES)
def test_a_handshake_succeeds_under_every_name(tmp_path, name):
    """What is issued is good for a strict TLS client under the Service's names, further names and addresses."""
    bundle = renew_authority(None, SETTINGS, NOW)
    server = server_context(tmp_path, bundle.files())
    assert shake_hands(server, bundle.trust(), name) == "TLSv1.3"


def test_what_is_issued():
    """ECDSA on P-256, named validity, a CA that may sign leaves only, a leaf that may serve only."""
    bundle = renew_authority(None, CertificateSettings(NAMES, 30 * DAY, 300 * DAY), NOW)
    authority, serving = bundle.authority.certificate, bundle.serving.certificate
    for certificate, days in ((authority, 300), (serving, 30)):
        assert isinstance(certificate.public_key(), ec.EllipticCurvePublicKey)
        assert certificate.public_key().curve.name == "secp256r1"
        assert certificate.not_valid_before_utc == NOW - BACKDATED
        assert certificate.not_valid_after_utc == NOW + days * DAY
    constraints = authority.extensions.get_extension_for_class(x509.BasicConstraints)
    assert (constraints.critical, constraints.value.ca, constraints.value.path_length) == (True, True, 0)
    usage = serving.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [x509.ExtendedKeyUsageOID.SERVER_AUTH]
    assert names_of(serving) == set(NAMES)


def test_a_serving_certificate_never_outlives_its_authority():
    """Validity ends with the authority's at the latest."""
    authority = make_authority(NOW, 10 * DAY)
    serving = make_serving(authority, ["a"], NOW, 90 * DAY)
    assert serving.certificate.not_valid_after_utc == authority.certificate.not_valid_after_utc


def test_nothing_changes_before_it_is_due():
    """A bundle that is good is left exactly as it is."""
    bundle = renew_authority(None, SETTINGS, NOW)
    assert step(bundle, NOW + timedelta(hours=1)) is bundle
    assert step(bundle, NOW + 59 * DAY) is bundle


def test_the_serving_certificate_is_renewed_after_two_thirds():
    """After two thirds of its validity the serving certificate is renewed by the same authority."""
    bundle = renew_authority(None, SETTINGS, NOW)
    renewed = step(bundle, NOW + 61 * DAY)
    assert renewed.serving.certificate.not_valid_after_utc == NOW + 151 * DAY
    assert renewed.authority is bundle.authority
    assert renewed.retired == (bundle.serving.certificate,)


def test_a_missing_name_is_added_and_a_further_one_kept():
    """A new name brings a new certificate; a certificate with more names than needed is left alone."""
    bundle = renew_authority(None, CertificateSettings(("a", "b")), NOW)
    assert step(bundle, NOW, CertificateSettings(("a",))) is bundle
    assert names_of(step(bundle, NOW, CertificateSettings(("a", "c"))).serving.certificate) == {"a", "c"}


def test_the_authority_is_renewed_before_it_can_no_longer_sign():
    """The authority is replaced while it outlives two serving certificates."""
    bundle = renew_authority(None, SETTINGS, NOW)
    assert renew_authority(bundle, SETTINGS, NOW + 3469 * DAY) is bundle
    renewed = renew_authority(bundle, SETTINGS, NOW + 3471 * DAY)
    assert renewed.authorities[1] == bundle.authority.certificate
    assert renewed.authority.certificate.not_valid_after_utc == NOW + 7121 * DAY


def test_a_new_authority_is_trusted_before_it_signs_and_the_old_one_after(tmp_path):
    """Through the whole change of authority, servers and clients that lag behind each other still shake hands."""
    first = renew_authority(None, SETTINGS, NOW - timedelta(hours=1))
    changed_at = NOW - timedelta(minutes=30)
    second = renew_authority(first, SETTINGS, changed_at, force=True)
    waiting = renew_serving(second, SETTINGS, changed_at + SETTLE - timedelta(seconds=1), force=True)
    third = renew_serving(second, SETTINGS, changed_at + SETTLE)
    old = server_context(tmp_path / "old", first.files())
    new = server_context(tmp_path / "new", third.files())

    assert waiting is second
    assert second.serving is first.serving
    for trust in (first.trust(), second.trust(), third.trust()):
        shake_hands(old, trust)
    for trust in (second.trust(), third.trust()):
        shake_hands(new, trust)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(new, first.trust())


def test_the_old_authority_goes_with_the_last_certificate_it_signed():
    """An old authority stays trusted until nothing that it signed is valid any more."""
    first = renew_authority(None, SETTINGS, NOW)
    second = renew_authority(first, SETTINGS, NOW + DAY, force=True)
    third = renew_serving(second, SETTINGS, NOW + 2 * DAY)
    assert len(step(third, NOW + 89 * DAY).authorities) == 2
    last = step(third, NOW + 90 * DAY)
    assert last.authorities == (third.authority.certificate,)
    assert first.serving.certificate not in last.retired


def test_an_authority_is_not_replaced_while_the_last_one_settles():
    """Asking twice for a new authority makes one, so that none is dropped before it was ever used."""
    bundle = renew_authority(renew_authority(None, SETTINGS, NOW), SETTINGS, NOW + DAY, force=True)
    assert renew_authority(bundle, SETTINGS, NOW + DAY + timedelta(minutes=5), force=True) is bundle
    assert len(bundle.authorities) == 2


@pytest.mark.parametrize("days", [91, 4000], ids=["serving-expired", "authority-expired"])
def test_after_a_long_sleep_it_does_not_wait(days):
    """Where what is served has expired already, the new certificate comes at once."""
    later = NOW + days * DAY
    bundle = step(renew_authority(None, SETTINGS, NOW), later)
    verify(bundle.serving.certificate, bundle.authorities, later)


@table(
    "arguments, told",
    {
        "no-name": ({"names": ()}, "at least one name"),
        "too-short": ({"names": ("a",), "lifetime": timedelta(minutes=59)}, "an hour at least"),
        "authority-too-short": ({"names": ("a",), "authority_lifetime": 100 * DAY}, "three times as long"),
    },
)
def test_settings_that_cannot_work_are_refused(arguments, told):
    """Validities that would leave something untrusted are an error at the start."""
    with pytest.raises(ValueError, match=told):
        CertificateSettings(**arguments)


def test_a_bundle_survives_being_written_and_read():
    """What is read back is what was written, through every stage of a rotation."""
    bundle = renew_authority(None, SETTINGS, NOW)
    bundle = renew_authority(bundle, SETTINGS, NOW + DAY, force=True)
    bundle = renew_serving(bundle, SETTINGS, NOW + 2 * DAY)
    again = parse(bundle.files())
    assert isinstance(again, Bundle)
    assert again.files() == bundle.files()
    assert signed_by(again.serving.certificate, again.authority.certificate)
    assert (len(again.older), len(again.retired)) == (1, 1)


def test_nothing_is_no_bundle():
    """No files, or the empty keys of a Secret that waits to be filled, are no bundle yet."""
    assert parse({}) is None
    assert parse({"tls.crt": b"", "tls.key": b""}) is None


FILES, OTHERS = (renew_authority(None, SETTINGS, NOW).files() for _ in range(2))


@table(
    "change, told",
    {
        "no-ca-key": ({"ca.key": b""}, "ca.key is missing.*left alone"),
        "no-pem": ({"tls.crt": b"x"}, "tls.crt holds no certificates"),
        "no-key": ({"tls.key": b"x"}, "tls.key holds no private key"),
        "mixed": ({"tls.key": OTHERS["tls.key"]}, "tls.key does not belong to tls.crt"),
    },
)
def test_what_comes_from_elsewhere_is_left_alone(change, told):
    """Certificates this program did not write are an error that says why, never overwritten."""
    with pytest.raises(BundleError, match=told):
        parse(FILES | change)


def test_a_forged_issuer_is_noticed():
    """A certificate that only names the authority as issuer is not taken for its own."""
    bundle = renew_authority(None, SETTINGS, NOW)
    imposter = KeyPair(bundle.authority.certificate, ec.generate_private_key(ec.SECP256R1()))
    forged = make_serving(imposter, NAMES, NOW, 90 * DAY)
    assert not signed_by(forged.certificate, bundle.authority.certificate)
    with pytest.raises(VerificationError):
        verify(forged.certificate, bundle.authorities, NOW)
