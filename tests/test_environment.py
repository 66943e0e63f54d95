from __future__ import annotations

from firesteel.environment import inherited

SECRETS = {
    "FIRESTEEL_CLIENT_TOKEN": "secret",
    "FIRESTEEL_HIGH_AVAILABILITY_ZOOKEEPER_CLIENT_AUTH": "secret",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "DATABASE_URL": "secret",
    "GITHUB_TOKEN": "secret",
    "HADOOP_TOKEN_FILE_LOCATION": "secret",
    "https_proxy": "http://me:secret@proxy:3128",
}
ORDINARY = {
    "PATH": "/bin",
    "HOME": "/home/me",
    "TZ": "Europe/Berlin",
    "LC_ALL": "C.UTF-8",
    "JAVA_HOME": "/java",
    "HADOOP_CONF_DIR": "/etc/hadoop",
    "PYTHONPATH": "/modules",
    "HTTP_PROXY": "http://proxy:3128",
    "no_proxy": "localhost",
}


def test_drivers_get_what_is_ordinary_and_no_secret() -> None:
    assert inherited((), {**SECRETS, **ORDINARY}) == ORDINARY


def test_what_an_admin_names_is_passed_but_never_what_is_firesteels() -> None:
    passed = inherited(("AWS_*", "DATABASE_URL", "https_proxy", "*"), SECRETS)
    assert sorted(passed) == sorted(name for name in SECRETS if not name.startswith("FIRESTEEL_"))
    assert inherited(("FIRESTEEL_*", "FIRESTEEL_CLIENT_TOKEN"), SECRETS) == {}
