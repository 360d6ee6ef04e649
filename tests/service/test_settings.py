"""Settings: environment and flags from one definition, wrong values told in one sentence."""

import argparse

import pytest
from pydantic import ValidationError

from uepnet.commands.serve import configure
from uepnet.model.errors import InputError
from uepnet.service.settings import Settings, flag, is_secret, load_settings, unknown_variables


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for field in Settings.model_fields:
        monkeypatch.delenv(f"UEPNET_{field.upper()}", raising=False)


def test_every_field_is_a_variable_and_a_flag_but_secrets_are_no_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    parser = argparse.ArgumentParser()
    configure(parser)
    flags = {action.dest for action in parser._actions} - {"help"}
    secrets = {field for field in Settings.model_fields if is_secret(field)}
    assert flags | secrets == set(Settings.model_fields)
    assert not flags & secrets
    assert secrets == {"api_keys", "admin_key"}
    monkeypatch.setenv("UEPNET_MAX_REQUESTS", "7")
    assert load_settings().max_requests == 7
    assert flag("max_requests") == "--max-requests"


def test_every_field_says_what_it_is_for() -> None:
    for name, field in Settings.model_fields.items():
        assert field.description, name


def test_a_flag_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UEPNET_PORT", "1234")
    assert load_settings().port == 1234
    assert load_settings({"port": "4321"}).port == 4321


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("port", "x", "--port = x: it must be a whole number"),
        ("port", "70000", "--port = 70000: it must be at most 65535"),
        ("precision", "fp8", "--precision = fp8: it must be auto, fp32, fp16, bf16 or int8"),
        ("device", "tpu", "--device = tpu: a device is auto, cpu, cuda, tensorrt or intel-gpu (cuda:1 is the second)"),
        (
            "device",
            "cuda:x",
            "--device = cuda:x: a device is auto, cpu, cuda, tensorrt or intel-gpu (cuda:1 is the second)",
        ),
        ("deadline_seconds", "0", "--deadline-seconds = 0: it must be greater than 0"),
        ("deadline_seconds", "nan", "--deadline-seconds = nan: "),
        ("max_body_bytes", "much", "--max-body-bytes = much: "),
        ("max_buffered_bytes", "1MiB", "max_buffered_bytes (1048576) must hold at least one body"),
        ("cors_origins", "example.org", "an origin looks like https://example.org, not 'example.org'"),
    ],
)
def test_a_wrong_flag_is_one_sentence(field: str, value: str, sentence: str) -> None:
    with pytest.raises(InputError) as error:
        load_settings({field: value})
    assert sentence in str(error.value)
    assert str(error.value).endswith(".")
    assert "\n" not in str(error.value)


def test_a_wrong_variable_is_named_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UEPNET_PORT", "x")
    with pytest.raises(InputError, match=r"^UEPNET_PORT = x: "):
        load_settings()


@pytest.mark.parametrize("keys", ["short", "with blank inside", "long-enough-one,short", "schlüssel-schlüssel"])
def test_a_weak_key_is_refused_and_never_shown(monkeypatch: pytest.MonkeyPatch, keys: str) -> None:
    for variable in ("UEPNET_API_KEYS", "UEPNET_ADMIN_KEY"):
        monkeypatch.setenv(variable, keys.split(",")[-1])
        with pytest.raises(InputError) as error:
            load_settings()
        assert keys.split(",")[-1] not in str(error.value)
        monkeypatch.delenv(variable)


def test_lists_are_separated_by_commas_and_secrets_stay_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UEPNET_API_KEYS", "first-key-here, second-key-here,")
    settings = load_settings()
    assert [key.get_secret_value() for key in settings.api_keys] == ["first-key-here", "second-key-here"]
    assert "first-key" not in repr(settings)


def test_sizes_may_have_units() -> None:
    assert load_settings({"max_body_bytes": "4MiB"}).max_body_bytes == 4 * 2**20


def test_settings_are_frozen() -> None:
    with pytest.raises(ValidationError):
        load_settings().port = 1


def test_a_misspelt_variable_is_reported() -> None:
    (sentence,) = unknown_variables(["UEPNET_MAX_REQUEST", "UEPNET_PORT", "HOME"])
    assert sentence == "UEPNET_MAX_REQUEST is not a setting of the service; did you mean UEPNET_MAX_REQUESTS?"


@pytest.mark.parametrize("variable", ["UEPNET_API_KEYS", "UEPNET_ADMIN_KEY"])
@pytest.mark.parametrize("value", ["", " ", ",", " , "])
def test_a_blank_key_is_refused_instead_of_opening_the_service(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(InputError, match=f"^{variable}: it is set but holds no key"):
        load_settings()


def test_the_admin_key_must_differ_from_the_api_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UEPNET_API_KEYS", "first-key-here,the-same-key")
    monkeypatch.setenv("UEPNET_ADMIN_KEY", "the-same-key")
    with pytest.raises(InputError, match="UEPNET_ADMIN_KEY must differ from every key in UEPNET_API_KEYS") as error:
        load_settings()
    assert "the-same-key" not in str(error.value)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_on_this_machine_no_keys_are_needed(host: str) -> None:
    assert load_settings({"host": host}).api_keys == ()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.org", ""])
def test_for_other_machines_keys_are_needed_or_insecure_is_said(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    with pytest.raises(InputError, match="UEPNET_INSECURE=1"):
        load_settings({"host": host})
    assert load_settings({"host": host, "insecure": "1"}).insecure
    monkeypatch.setenv("UEPNET_API_KEYS", "first-key-here")
    assert load_settings({"host": host}).host == host


@pytest.mark.parametrize("host", ["example.org:8000", "http://example.org", "*", "a b"])
def test_an_allowed_host_is_a_bare_name(host: str) -> None:
    with pytest.raises(InputError, match="a host is a name or an address without port"):
        load_settings({"allowed_hosts": host})
