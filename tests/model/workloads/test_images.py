"""Names of images are taken apart as engines do, and what an engine or a shell could misread is refused."""

import pytest

from mooring.model.errors import InvalidInput
from mooring.model.workloads.images import (
    ImageName,
    comparable,
    parse_image,
    parse_registry,
)

DIGEST = "sha256:" + "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("nginx", "docker.io/library/nginx:latest"),
        ("nginx:1.27", "docker.io/library/nginx:1.27"),
        ("docker.io/nginx", "docker.io/library/nginx:latest"),
        ("index.docker.io/library/nginx", "docker.io/library/nginx:latest"),
        ("grafana/loki:3.0", "docker.io/grafana/loki:3.0"),
        ("ghcr.io/org/team/tool:V1_a.b-c", "ghcr.io/org/team/tool:V1_a.b-c"),
        ("localhost/busybox:1", "localhost/busybox:1"),
        ("localhost:5000/tool", "localhost:5000/tool:latest"),
        ("10.0.0.7:5000/a/b__c-d.e:x", "10.0.0.7:5000/a/b__c-d.e:x"),
        (f"nginx@{DIGEST}", f"docker.io/library/nginx@{DIGEST}"),
        (f"nginx:1.27@{DIGEST}", f"docker.io/library/nginx@{DIGEST}"),
        (f"r.example:443/x@sha512:{'0' * 128}", f"r.example:443/x@sha512:{'0' * 128}"),
        (f"a/{'b' * 243}", f"docker.io/a/{'b' * 243}:latest"),
    ],
)
def test_a_name_has_one_whole_form(text: str, canonical: str) -> None:
    assert str(parse_image(text)) == canonical
    assert comparable(text) == canonical
    assert str(parse_image(canonical)) == canonical


def test_the_parts_of_a_name() -> None:
    assert parse_image(f"r.example:5000/a/b:c@{DIGEST}") == ImageName("r.example:5000", "a/b", "c", DIGEST)
    assert parse_image("nginx:1.27").short == "nginx:1.27"
    assert parse_image("grafana/loki").short == "grafana/loki:latest"
    assert parse_image("ghcr.io/library/x").short == "ghcr.io/library/x:latest"


@pytest.mark.parametrize(
    ("text", "because"),
    [
        ("", "between '/'"),
        ("nginx;rm -rf /", "lower-case letters"),
        ("$(id)", "lower-case letters"),
        ("nginx:`id`", "a tag is"),
        ("nginx:1 --privileged", "a tag is"),
        ("--privileged", "lower-case letters"),
        ("nginx\n", "lower-case letters"),
        ("nginx:1\n", "a tag is"),
        ("nginx\x00", "lower-case letters"),
        ("../../etc/passwd", "host name"),
        ("a/../b", "lower-case letters"),
        ("/etc/passwd", "lower-case letters"),
        ("a//b", "lower-case letters"),
        ("nginx/", "lower-case letters"),
        ("ghcr.io/", "lower-case letters"),
        ("Nginx", "lower case"),
        ("GHCR.io/x", "host name in lower case"),
        ("ghcr.io:0/x", "the port"),
        ("ghcr.io:65536/x", "the port"),
        ("ghcr.io:٣/x", "the port"),
        ("ghcr.io:/x", "the port"),
        ("user:secret@ghcr.io/x", "a digest"),
        ("https://ghcr.io/x", "the port"),
        ("nginx:", "a tag is"),
        ("nginx:.1", "a tag is"),
        ("nginx:" + "a" * 129, "a tag is"),
        ("nginx@sha256:abc", "a digest"),
        ("nginx@md5:" + "0" * 32, "a digest"),
        (f"nginx@{DIGEST.upper()}", "a digest"),
        (f"nginx@{DIGEST}@{DIGEST}", "a digest"),
        ("ｎginx", "lower-case letters"),
        ("a/" + "b" * 244, "at most 255"),
    ],
)
def test_an_invalid_image_name_is_refused_with_the_invalid_part(text: str, because: str) -> None:
    with pytest.raises(InvalidInput, match=because) as caught:
        parse_image(text)
    assert caught.value.code == "invalid-image"
    assert comparable(text) == text


def test_a_long_or_unprintable_name_is_shown_shortened_on_one_line() -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_image("\x1b[31m" + "x" * 5000)
    assert len(caught.value.message) < 300
    assert caught.value.message.isprintable()


@pytest.mark.parametrize("text", ["docker.io", "ghcr.io", "localhost", "localhost:5000", "10.0.0.7:5000"])
def test_a_registry_alone_is_what_the_names_of_its_images_say(text: str) -> None:
    assert parse_registry(text) == parse_image(f"{text}/a/b").registry == text
    assert parse_registry("index.docker.io") == "docker.io"


@pytest.mark.parametrize(
    "text", ["", "ghcr", "GHCR.io", "https://ghcr.io", "ghcr.io/org", "a.org:0", "a b.org", f"{'a' * 130}.org"]
)
def test_an_invalid_registry_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="is not a registry"):
        parse_registry(text)
